//! The journal of a simulated load: replayed, altered, torn, and decided otherwise.

use std::fs;
use std::path::{Path, PathBuf};

use lockstep::journal::{
    Header, JournalContent, JournalOptions, JournalSync, JournalWriter, ReplayReport, replay,
    replay_files,
};
use lockstep::scheduler::{Preemption, Scheduler, SchedulerConfig};
use policy_core::Separator;

use lockstep::simulation::{Random, SimulatedRequest, Simulation, Workload, recorded_load, swarm};

fn record(path: &Path, content: JournalContent, seed: u64) -> u64 {
    let (config, workload) = swarm(seed, 40);
    record_load(path, content, config, workload)
}

pub(super) fn record_load(
    path: &Path,
    content: JournalContent,
    config: SchedulerConfig,
    workload: Workload,
) -> u64 {
    record_rotated(path, content, config, workload, None, None)
}

fn record_rotated(
    path: &Path,
    content: JournalContent,
    config: SchedulerConfig,
    workload: Workload,
    max_bytes: Option<u64>,
    max_files: Option<u32>,
) -> u64 {
    let options = JournalOptions {
        path: path.to_owned(),
        sync: JournalSync::None,
        content,
        max_bytes,
        max_files,
    };
    let header = Header::new(config.clone(), "", "portable-1");
    let mut writer = JournalWriter::create(&options, header).unwrap();
    let mut simulation = Simulation::new(config, workload).unwrap();
    while !simulation.is_done() {
        simulation.step();
        writer
            .append(&simulation.inputs, &simulation.plan, &simulation.scheduler)
            .unwrap();
    }
    writer.close().unwrap();
    simulation.scheduler.num_steps()
}

fn file(dir: &tempfile::TempDir) -> PathBuf {
    dir.path().join("journal.jsonl")
}

#[test]
fn a_journal_replays_to_identical_plans_with_and_without_its_tokens() {
    for content in [JournalContent::Tokens, JournalContent::Ids] {
        for seed in 0..12 {
            let dir = tempfile::tempdir().unwrap();
            let steps = record(&file(&dir), content, seed);
            let report = replay(&file(&dir)).unwrap();
            assert_eq!(report.difference, None, "{content:?}, seed {seed}");
            let whole = ReplayReport {
                steps,
                difference: None,
                torn_bytes: None,
            };
            assert_eq!(report, whole);
        }
    }
}

#[test]
fn a_journal_without_tokens_holds_none() {
    let dir = tempfile::tempdir().unwrap();
    record(&file(&dir), JournalContent::Ids, 3);
    let text = fs::read_to_string(file(&dir)).unwrap();
    assert!(!text.contains("\"prompt\":"));
    assert!(!text.contains("cache_salt"));
    assert!(text.contains("\"prompt_tokens\":"));
}

#[test]
fn one_altered_byte_is_found_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(&dir);
    record(&path, JournalContent::Tokens, 1);
    let whole = fs::read(&path).unwrap();
    let line_starts: Vec<usize> = std::iter::once(0)
        .chain(
            whole
                .iter()
                .enumerate()
                .filter(|(_, b)| **b == b'\n')
                .map(|(at, _)| at + 1),
        )
        .collect();
    let mut tried = 0;
    for at in (line_starts[1]..whole.len() - 1).step_by(whole.len() / 40) {
        let mut altered = whole.clone();
        altered[at] = if altered[at] == b'1' { b'2' } else { b'1' };
        fs::write(&path, &altered).unwrap();
        let line = line_starts.iter().filter(|start| **start <= at).count() as u64;
        let found = replay(&path)
            .unwrap()
            .difference
            .unwrap_or_else(|| panic!("byte {at} of line {line} was altered, and not found"));
        assert_eq!(found.line, line, "byte {at}");
        assert_eq!(found.step, line - 1, "byte {at}");
        assert!(!found.chained && !found.field.is_empty(), "{found}");
        tried += 1;
    }
    assert!(tried > 35);
}

#[test]
fn an_altered_byte_is_named_by_its_field() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(&dir);
    record(&path, JournalContent::Tokens, 1);
    let whole = fs::read_to_string(&path).unwrap();
    for (text, field) in [
        ("\"max_tokens\":", "inputs.arrivals[0].max_tokens"),
        ("\"step\":", "step"),
        ("\"chunks\":[[", "plan.chunks[0][0]"),
        ("\"chain\":\"", "chain"),
    ] {
        let header = whole.find('\n').unwrap();
        let at = header + whole[header..].find(text).unwrap() + text.len();
        let mut altered = whole.clone().into_bytes();
        altered[at] = if altered[at] == b'7' { b'8' } else { b'7' };
        fs::write(&path, altered).unwrap();
        let found = replay(&path).unwrap().difference.unwrap();
        assert_eq!(found.field, field, "{found}");
    }
}

/// A build that decides otherwise, played by other limits than the header says.
#[test]
fn another_decision_is_caught_at_the_first_step_that_differs() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(&dir);
    let load = |seed| {
        (0..seed)
            .map(|n| SimulatedRequest::new(1 + n / 3, 20, 90))
            .collect()
    };
    let workload = Workload { requests: load(12) };
    let said = SchedulerConfig {
        num_blocks: 24,
        max_model_len: 256,
        ..SchedulerConfig::default()
    };
    let done = SchedulerConfig {
        worn_after_preemptions: 1,
        ..said.clone()
    };
    let plans = |config: &SchedulerConfig| {
        let mut simulation = Simulation::new(config.clone(), workload.clone()).unwrap();
        let mut plans = Vec::new();
        while !simulation.is_done() {
            simulation.step();
            plans.push(simulation.plan.clone());
        }
        plans
    };
    let pairs = plans(&said).into_iter().zip(plans(&done)).zip(1..);
    let differing = pairs.filter(|((a, b), _)| a != b).map(|(_, step)| step);
    let first = differing.min().expect("the limits make a difference");

    let options = JournalOptions {
        path: path.clone(),
        sync: JournalSync::None,
        content: JournalContent::Tokens,
        max_bytes: None,
        max_files: None,
    };
    let header = Header::new(said, "", "portable-1");
    let mut writer = JournalWriter::create(&options, header).unwrap();
    let mut simulation = Simulation::new(done, workload.clone()).unwrap();
    while !simulation.is_done() {
        simulation.step();
        writer
            .append(&simulation.inputs, &simulation.plan, &simulation.scheduler)
            .unwrap();
    }
    writer.close().unwrap();
    let found = replay(&path).unwrap().difference.unwrap();
    assert_eq!(found.step, first);
    assert!(found.chained, "the chain is intact: it was written so");
    assert!(found.field.starts_with("plan.preemptions[0]."), "{found}");
}

/// A build whose tie-break is turned round writes the runner-up where the smallest id should
/// stand: replay names the step and the field.
#[test]
fn a_flipped_tie_break_is_caught_at_the_first_step_that_differs() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(&dir);
    let requests = (0..12)
        .map(|n| SimulatedRequest::new(1 + n / 6, 20, 90))
        .collect();
    let config = SchedulerConfig {
        num_blocks: 24,
        max_model_len: 256,
        ..SchedulerConfig::default()
    };
    let options = JournalOptions {
        path: path.clone(),
        sync: JournalSync::None,
        content: JournalContent::Tokens,
        max_bytes: None,
        max_files: None,
    };
    let header = Header::new(config.clone(), "", "portable-1");
    let mut writer = JournalWriter::create(&options, header).unwrap();
    let mut simulation = Simulation::new(config, Workload { requests }).unwrap();
    let mut flipped = None;
    while flipped.is_none() {
        assert!(!simulation.is_done(), "the load has a tie");
        simulation.step();
        let plan = &mut simulation.plan;
        let tied = |p: &Preemption| p.separator == Some(Separator::Id);
        if let Some(preemption) = plan.preemptions.iter_mut().find(|p| tied(p)) {
            let runner_up = preemption.runner_up.replace(preemption.victim);
            preemption.victim = runner_up.unwrap();
            flipped = Some(plan.step);
        }
        writer
            .append(&simulation.inputs, &simulation.plan, &simulation.scheduler)
            .unwrap();
    }
    writer.close().unwrap();
    let found = replay(&path).unwrap().difference.unwrap();
    assert_eq!(Some(found.step), flipped, "{found}");
    assert!(found.chained, "{found}");
    assert!(found.field.starts_with("plan.preemptions"), "{found}");
}

#[test]
fn a_torn_last_line_is_reported_and_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(&dir);
    let steps = record(&path, JournalContent::Tokens, 2);
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 5]).unwrap();
    let report = replay(&path).unwrap();
    assert_eq!((report.steps, report.difference), (steps - 1, None));
    assert!(report.torn_bytes.is_some_and(|bytes| bytes > 70));
}

#[test]
fn a_last_line_that_no_crash_leaves_is_a_difference() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(&dir);
    let steps = record(&path, JournalContent::Tokens, 2);
    let whole = fs::read(&path).unwrap();
    let last = whole[..whole.len() - 1]
        .iter()
        .rposition(|byte| *byte == b'\n')
        .unwrap()
        + 1;
    let mut altered = whole[..whole.len() - 1].to_vec();
    let digit = altered.len() - 3;
    altered[digit] = if altered[digit] == b'0' { b'1' } else { b'0' };
    let zeros = [&whole[..], &[0; 100]].concat();
    let rubbish = [&whole[..last], b"{\"a\": 1"].concat();
    for (text, before) in [(altered, steps - 1), (zeros, steps), (rubbish, steps - 1)] {
        fs::write(&path, text).unwrap();
        let report = replay(&path).unwrap();
        let found = report.difference.expect("not torn");
        assert_eq!((report.steps, report.torn_bytes), (before, None));
        assert_eq!((found.step, found.chained), (before + 1, false), "{found}");
    }
    // Cut at the very end it is torn, and its chain holds.
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    assert!(replay(&path).unwrap().torn_bytes.is_some());
}

#[test]
fn a_chain_in_capitals_is_named_as_the_chain() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(&dir);
    record(&path, JournalContent::Tokens, 2);
    let text = fs::read_to_string(&path).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let (content, chain) = lines[3].split_once(",\"chain\":").unwrap();
    lines[3] = format!("{content},\"chain\":{}", chain.to_uppercase());
    fs::write(&path, lines.join("\n") + "\n").unwrap();
    let found = replay(&path).unwrap().difference.unwrap();
    assert_eq!((found.line, found.field.as_str()), (4, "chain"), "{found}");
}

#[test]
fn a_journal_that_breaks_off_says_what_had_not_ended() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(&dir);
    record(&path, JournalContent::Tokens, 2);
    assert_eq!(recorded_load(&path).unwrap().unended, 0);
    let text = fs::read_to_string(&path).unwrap();
    let half: Vec<&str> = text.lines().take(text.lines().count() / 2).collect();
    fs::write(&path, half.join("\n") + "\n").unwrap();
    let load = recorded_load(&path).unwrap();
    assert!(load.unended > 0 && load.unended <= load.workload.requests.len());
}

#[test]
fn files_that_are_no_journals_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(&dir);
    assert!(
        replay(&path)
            .unwrap_err()
            .to_string()
            .contains("journal.jsonl")
    );
    for (text, why) in [
        ("", "not a journal"),
        ("hello\n", "not a journal"),
        ("{\"journal\":99}\n", "version 99"),
        ("{\"journal\":1}\n", "not a journal"),
    ] {
        fs::write(&path, text).unwrap();
        let error = replay(&path).unwrap_err().to_string();
        assert!(error.contains(why), "{text:?}: {error}");
    }
    record(&path, JournalContent::Tokens, 1);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(
        &path,
        text.replacen("\"block_size\":", "\"block_size\": ", 1),
    )
    .unwrap();
    let error = replay(&path).unwrap_err().to_string();
    assert!(error.contains("header, was altered"), "{error}");
}

#[test]
fn a_journal_is_never_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    for seed in 0..3 {
        record(&file(&dir), JournalContent::Tokens, seed);
    }
    let mut names: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(
        names,
        ["journal.jsonl", "journal.jsonl.1", "journal.jsonl.2"]
    );
    for name in names {
        assert_eq!(replay(&dir.path().join(name)).unwrap().difference, None);
    }
}

/// Steps that a rotated journal's files hold, each replayed by itself.
#[test]
fn every_file_of_a_rotated_journal_replays_by_itself() {
    for seed in 0..4 {
        let dir = tempfile::tempdir().unwrap();
        let (config, workload) = swarm(seed, 40);
        let content = JournalContent::Tokens;
        let steps = record_rotated(&file(&dir), content, config, workload, Some(20_000), None);
        let files = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let reports: Vec<_> = files.map(|path| replay(&path).unwrap()).collect();
        assert!(
            reports.iter().all(|report| report.difference.is_none()),
            "seed {seed}"
        );
        assert_eq!(
            reports.iter().map(|report| report.steps).sum::<u64>(),
            steps
        );
        assert!(reports.len() > 1, "seed {seed}: {} files", reports.len());
    }
}

#[test]
fn the_files_of_a_rotated_journal_without_tokens_replay_together() {
    let dir = tempfile::tempdir().unwrap();
    let (config, workload) = swarm(3, 40);
    let content = JournalContent::Ids;
    let steps = record_rotated(&file(&dir), content, config, workload, Some(20_000), None);
    let count = fs::read_dir(dir.path()).unwrap().count();
    assert!(count > 2);
    let mut files: Vec<_> = (1..count)
        .map(|n| dir.path().join(format!("journal.jsonl.{n}")))
        .collect();
    files.push(file(&dir));
    let report = replay_files(&files, |_, _| {}).unwrap();
    assert_eq!((report.steps, report.difference), (steps, None));
    let alone = replay(&files[1]).unwrap_err().to_string();
    assert!(alone.contains("continues an earlier file"), "{alone}");
    files.remove(1);
    let gap = replay_files(&files, |_, _| {}).unwrap_err().to_string();
    assert!(gap.contains("does not continue"), "{gap}");
}

#[test]
fn a_rotated_journal_keeps_the_newest_files() {
    let dir = tempfile::tempdir().unwrap();
    let (config, workload) = swarm(3, 40);
    let content = JournalContent::Tokens;
    record_rotated(
        &file(&dir),
        content,
        config,
        workload,
        Some(20_000),
        Some(2),
    );
    let mut names: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_by_key(|name| name.len());
    assert_eq!(names.len(), 3, "{names:?}");
    assert_eq!(names[0], "journal.jsonl");
    assert!(!names.contains(&"journal.jsonl.1".to_owned()), "{names:?}");
}

/// A scheduler that is taken down and put up again decides as the one that was not.
#[test]
fn a_restored_scheduler_decides_as_the_one_it_was_taken_of() {
    for seed in 0..100 {
        let (config, workload) = swarm(seed, 40);
        let mut kept = Simulation::new(config.clone(), workload.clone()).unwrap();
        let mut restored = Simulation::new(config.clone(), workload).unwrap();
        while !kept.is_done() {
            kept.step();
            restored.step();
            assert_eq!(kept.plan, restored.plan, "seed {seed}");
            if kept.now().is_multiple_of(7) {
                let text = serde_json::to_string(&restored.scheduler.checkpoint()).unwrap();
                let checkpoint = serde_json::from_str(&text).unwrap();
                let scheduler = Scheduler::restore(config.clone(), &checkpoint).unwrap();
                assert_eq!(scheduler.checkpoint(), checkpoint);
                restored.scheduler = scheduler;
                restored.scheduler.pool().check();
            }
        }
    }
}

/// A checkpoint comes from a file: whatever is altered in it, restoring it does not panic.
#[test]
fn an_altered_checkpoint_is_refused_or_restored_and_never_panics() {
    let (config, workload) = swarm(3, 40);
    let mut simulation = Simulation::new(config.clone(), workload).unwrap();
    while simulation.scheduler.num_running() < 2 || simulation.now() < 60 {
        simulation.step();
    }
    let text = serde_json::to_string(&simulation.scheduler.checkpoint()).unwrap();
    let digits: Vec<usize> = text
        .match_indices(|c: char| c.is_ascii_digit())
        .map(|(at, _)| at)
        .collect();
    let mut random = Random::new(1);
    let (mut refused, mut restored) = (0, 0);
    for _ in 0..4000 {
        let mut altered = text.clone().into_bytes();
        let at = digits[random.below(digits.len() as u32) as usize];
        altered[at] = b'0' + random.below(10) as u8;
        let Ok(checkpoint) = serde_json::from_slice(&altered) else {
            refused += 1;
            continue;
        };
        match Scheduler::restore(config.clone(), &checkpoint) {
            Ok(scheduler) => {
                scheduler.pool().check();
                restored += 1;
            }
            Err(_) => refused += 1,
        }
    }
    assert!(
        refused > 100 && restored > 100,
        "{refused} refused, {restored} restored"
    );
}
