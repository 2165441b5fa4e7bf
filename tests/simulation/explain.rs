//! The account that a journal gives of a request.

use std::path::Path;

use lockstep::journal::{Chronicle, JournalContent, explain};
use lockstep::request::RequestId;
use lockstep::scheduler::SchedulerConfig;
use lockstep::simulation::{SimulatedRequest, Simulation, Workload};
use policy_core::RequestPriority::{High, Low};

use super::journal::record_load;

/// Two Lows have the two seats when a High comes, and a third Low waits all the while.
fn load() -> (SchedulerConfig, Workload) {
    let of = |priority, step, prompt, output| {
        SimulatedRequest::new(step, prompt, output).priority(priority)
    };
    let requests = vec![
        of(Low, 1, 20, 40),
        of(Low, 3, 5, 30),
        of(Low, 8, 5, 2),
        of(High, 10, 5, 4),
    ];
    let config = SchedulerConfig {
        max_num_seqs: 2,
        ..SchedulerConfig::default()
    };
    (config, Workload { requests })
}

fn told(path: &Path, request: u64) -> String {
    let account = explain(path, RequestId::new(request)).unwrap();
    account.sentences().join("\n")
}

#[test]
fn a_journal_explains_who_waited_who_was_displaced_and_why_not_another() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.jsonl");
    let (config, workload) = load();
    record_load(&path, JournalContent::Ids, config, workload);
    let victim = "\
Request 0 (low) arrived in step 1 with a prompt of 20 tokens, for an answer of at most 40 tokens.
In step 1 it was admitted, as sequence 0; nothing of it was found computed.
In step 10 it was preempted so that request 3 (high) could have a seat: of 2 candidates of class low, longest-first chose request 0 (sequence 0), and not request 1 (sequence 1), which has generated 7 since its admission, against 9. Blocks that could be had went from 1021 to 1023; of its 28 computed tokens, 12 must be computed again.
In step 10 it was the next to be admitted and waited, since it had been preempted in that step.
From step 11 to step 13 it was the next to be admitted and waited for a seat: all were taken, and nobody who had one may give way to it.
In step 14 it was admitted again, as sequence 3; 16 tokens of it were found computed.
It ended in step 45 (length) with 40 tokens generated, after 1 preemption.";
    assert_eq!(told(&path, 0), victim);
    let beneficiary = "\
Request 3 (high) arrived in step 10 with a prompt of 5 tokens, for an answer of at most 4 tokens.
In step 10 request 0 (sequence 0) gave way to it, for a seat.
In step 10 it was admitted, as sequence 2; nothing of it was found computed.
It ended in step 14 (length) with 4 tokens generated, after 0 preemptions.";
    assert_eq!(told(&path, 3), beneficiary);
    let error = explain(&path, RequestId::new(9)).unwrap_err().to_string();
    assert_eq!(
        error,
        "the journal names no request 9; the last it names is 3"
    );
}

#[test]
fn a_live_chronicle_gives_the_same_account_and_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.jsonl");
    let (config, workload) = load();
    record_load(
        &path,
        JournalContent::Tokens,
        config.clone(),
        workload.clone(),
    );
    let mut chronicle = Chronicle::new(config.preemption_policy, 2);
    let mut simulation = Simulation::new(config, workload).unwrap();
    while !simulation.is_done() {
        simulation.step();
        chronicle.record(&simulation.inputs, &simulation.plan);
    }
    let last = simulation
        .outcomes
        .iter()
        .map(|o| o.released.unwrap().0)
        .max();
    let known = (0..4).filter_map(|number| chronicle.account(RequestId::new(number)));
    let known: Vec<_> = known.cloned().collect();
    assert_eq!(known.len(), 2, "the two that ended last, by step {last:?}");
    for account in known {
        let recorded = explain(&path, RequestId::new(account.request)).unwrap();
        assert_eq!(account, recorded);
    }
    let preemptions: Vec<_> = chronicle.preemptions().collect();
    assert_eq!((preemptions.len(), preemptions[0].step), (1, 10));
    assert_eq!(preemptions[0].candidates.len(), 2);
}
