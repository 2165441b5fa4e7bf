//! The proof's own proof: bugs planted in the shipped PTX, each of which a case has to catch, or a
//! list here to name.
//!
//! A mutation changes one instruction. One that no case catches is either a hole in the cases or a
//! change that cannot show; [`allowed`](crate::allowed) names the latter, each with its reason.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use lockstep_kernels::{Kernel, kernels};
use ptx_interpreter::{Module, Order};

use crate::allowed::ALLOWED;
use crate::case::{self, Case};
use crate::cases_of;

/// One planted bug.
struct Mutation {
    class: &'static str,
    line: usize,
    before: String,
    after: String,
}

impl Mutation {
    fn describe(&self, entry: &str) -> String {
        let Self {
            class,
            line,
            before,
            after,
        } = self;
        format!("{entry} {class} {line}: {before} => {}", after.trim())
    }
}

/// The bugs that can be planted in one line.
fn plant(line: &str) -> Vec<(&'static str, String)> {
    let mut out = Vec::new();
    let code = line.trim_start();
    if code.starts_with("bar.sync") {
        out.push(("barrier", String::new()));
    }
    if code.starts_with("cp.async.") && !code.contains('[') {
        out.push(("wait", String::new()));
    }
    for (from, to) in [
        ("setp.lt.", "setp.le."),
        ("setp.le.", "setp.lt."),
        ("setp.gt.", "setp.ge."),
        ("setp.ge.", "setp.gt."),
        ("setp.geu.", "setp.ltu."),
        ("setp.eq.", "setp.ne."),
        ("setp.ne.", "setp.eq."),
        ("min.u32", "max.u32"),
        ("max.u32", "min.u32"),
    ] {
        if code.starts_with(from) {
            out.push(("bound", line.replacen(from, to, 1)));
        }
    }
    if code.starts_with("@%p") || code.starts_with("@!%p") {
        let negated = if code.starts_with("@!") {
            line.replacen("@!", "@", 1)
        } else {
            line.replacen('@', "@!", 1)
        };
        out.push(("bound", negated));
    }
    out.extend(shifted_index(line).map(|after| ("index", after)));
    out.extend(
        wrong_shuffle(line)
            .into_iter()
            .map(|after| ("shuffle", after)),
    );
    out.extend(wrong_arithmetic(line).map(|after| ("arithmetic", after)));
    out
}

/// A load or store one element further on; a constant one greater.
fn shifted_index(line: &str) -> Option<String> {
    let code = line.trim_start();
    let is_access = [
        "ld.global",
        "st.global",
        "ld.shared",
        "st.shared",
        "cp.async.c",
    ];
    if is_access.iter().any(|name| code.starts_with(name)) {
        let opcode = code.split_whitespace().next()?;
        let bits: u32 = opcode.rsplit('.').next()?.get(1..)?.parse().ok()?;
        let lanes = if opcode.contains(".v4") {
            4
        } else if opcode.contains(".v2") {
            2
        } else {
            1
        };
        let end = line.find(']')?;
        return Some(
            format!("{}+{}{}", &line[..end], bits / 8 * lanes, &line[end..]).replace(
                // Two offsets are not PTX: they are added here.
                "++", "+",
            ),
        )
        .map(|text| join_offsets(&text));
    }
    let constant = [
        "add.s32",
        "add.s64",
        "mul.wide.u32",
        "shl.b32",
        "shl.b64",
        "shr.u32",
    ];
    if constant.iter().any(|name| code.starts_with(name)) {
        let (head, last) = line.rsplit_once(", ")?;
        let value: i64 = last.trim_end_matches(';').parse().ok()?;
        return Some(format!("{head}, {};", value + 1));
    }
    None
}

/// `[%rd1+8+4]` as `[%rd1+12]`.
fn join_offsets(text: &str) -> String {
    let (Some(start), Some(end)) = (text.find('['), text.find(']')) else {
        return text.to_owned();
    };
    let mut parts = text[start + 1..end].split('+');
    let base = parts.next().unwrap_or_default();
    let offset: i64 = parts.filter_map(|part| part.parse::<i64>().ok()).sum();
    format!("{}[{base}+{offset}{}", &text[..start], &text[end..])
}

/// A shuffle that goes nowhere.
fn wrong_shuffle(line: &str) -> Option<String> {
    if !line.trim_start().starts_with("shfl.sync") {
        return None;
    }
    let mut operands: Vec<&str> = line.split(", ").collect();
    *operands.get_mut(2)? = "0";
    Some(operands.join(", "))
}

/// One operation in place of another.
fn wrong_arithmetic(line: &str) -> Option<String> {
    for (from, to) in [
        ("add.rn.f32", "sub.rn.f32"),
        ("sub.rn.f32", "add.rn.f32"),
        ("mul.rn.f32", "add.rn.f32"),
        ("div.rn.f32", "mul.rn.f32"),
        ("max.f32", "min.f32"),
        ("min.s32", "max.s32"),
        ("max.s32", "min.s32"),
        ("cvt.rni.", "cvt.rzi."),
        ("sqrt.rn.f32", "abs.f32"),
        ("neg.f32", "abs.f32"),
        ("sub.s32", "add.s32"),
        ("mul.lo.s32", "add.s32"),
        ("or.b32", "and.b32"),
        ("xor.b32", "or.b32"),
        ("abs.f32", "neg.f32"),
    ] {
        if line.trim_start().starts_with(from) {
            return Some(line.replacen(from, to, 1));
        }
    }
    let fused = line.trim_start().starts_with("fma.rn.f32") || line.contains("dp4a.s32.s32");
    if fused {
        // The last source becomes the first one.
        let (head, _) = line.rsplit_once(", ")?;
        let first = head.split(", ").nth(1)?;
        return Some(format!("{head}, {first};"));
    }
    None
}

/// Whether an instruction's result is a register that no other instruction names.
fn is_for_nobody(text: &str, line: &str) -> bool {
    let word = line.split_whitespace().nth(1).unwrap_or_default();
    // A shuffle names a predicate behind its result.
    let register = word
        .trim_end_matches(',')
        .split('|')
        .next()
        .unwrap_or_default();
    if !register.starts_with('%') || !word.ends_with(',') {
        return false;
    }
    let names = |text: &str| {
        let rest = text
            .match_indices(register)
            .map(|(at, _)| &text[at + register.len()..]);
        rest.filter(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
            .count()
    };
    names(text) == 1
}

fn mutations(text: &str) -> Vec<Mutation> {
    let lines = text.lines().enumerate();
    let lines = lines.filter(|(_, line)| !is_for_nobody(text, line));
    let planted = lines.flat_map(|(line, before)| {
        plant(before)
            .into_iter()
            .map(move |(class, after)| Mutation {
                class,
                line,
                before: before.trim().to_owned(),
                after,
            })
    });
    planted.collect()
}

fn caught(text: &str, mutation: &Mutation, cases: &[Case]) -> bool {
    let lines = text.lines().enumerate();
    let changed: Vec<&str> = lines
        .map(|(line, before)| {
            if line == mutation.line {
                &mutation.after
            } else {
                before
            }
        })
        .collect();
    let changed = changed.join("\n");
    let module = Module::parse(&changed)
        .unwrap_or_else(|error| panic!("{} is no PTX: {error}", mutation.after));
    let fails = |order| cases.iter().any(|case| case.check(&module, order).is_err());
    fails(Order::Ascending) || fails(Order::Descending)
}

/// Takes out what [`ALLOWED`] allows, and counts in `used` what each takes out.
fn harmful<'a>(
    kernel: &Kernel,
    text: &str,
    mut survivors: Vec<&'a Mutation>,
    used: &mut [usize],
) -> Vec<&'a Mutation> {
    let lines: Vec<&str> = text.lines().collect();
    for (allowance, used) in ALLOWED.iter().zip(used) {
        let mut of_kernel = 0;
        survivors.retain(|mutation| {
            let is = of_kernel < allowance.most
                && allowance.covers(kernel.entry, mutation.class, &lines[..=mutation.line]);
            of_kernel += usize::from(is);
            !is
        });
        *used = (*used).max(of_kernel);
    }
    survivors
}

/// The cases by what they cost, each with a limit that a loop without an end meets soon.
fn quickest_first(text: &str, mut cases: Vec<Case>) -> Vec<Case> {
    let module = case::module(text);
    for case in &mut cases {
        let run = case.check(&module, Order::Ascending);
        let statistics = run.unwrap_or_else(|error| panic!("{}: {error}", case.name));
        case.step_limit = 2 * statistics.warp_instructions + 1000;
    }
    cases.sort_by_key(|case| case.step_limit);
    cases
}

/// What came of planting bugs.
struct Outcome {
    /// Descriptions of those that were neither caught nor are allowed.
    survivors: Vec<String>,
    planted: usize,
    caught: usize,
    /// The most that each allowance took out in a kernel.
    used: Vec<usize>,
}

impl Outcome {
    fn new() -> Self {
        Self {
            survivors: Vec::new(),
            planted: 0,
            caught: 0,
            used: vec![0; ALLOWED.len()],
        }
    }

    fn add(&mut self, other: Self) {
        self.survivors.extend(other.survivors);
        self.planted += other.planted;
        self.caught += other.caught;
        for (used, other) in self.used.iter_mut().zip(other.used) {
            *used = other.max(*used);
        }
    }

    /// Plants every bug of these classes in a kernel.
    fn of(kernel: &Kernel, classes: &[&str]) -> Self {
        let text = case::entry_text(kernel);
        let cases = quickest_first(&text, cases_of(kernel.entry));
        let mut mutations = mutations(&text);
        mutations.retain(|mutation| classes.contains(&mutation.class));
        let survivors: Vec<&Mutation> = mutations
            .iter()
            .filter(|mutation| !caught(&text, mutation, &cases))
            .collect();
        let mut out = Self::new();
        out.planted = mutations.len();
        out.caught = mutations.len() - survivors.len();
        let survivors = harmful(kernel, &text, survivors, &mut out.used);
        let describe = |mutation: &&Mutation| mutation.describe(kernel.entry);
        out.survivors = survivors.iter().map(describe).collect();
        out
    }
}

/// Part of the names of the kernels to look at, for whoever works on one; empty for all.
fn chosen() -> String {
    std::env::var("LOCKSTEP_TEST_KERNEL").unwrap_or_default()
}

/// Fails where a class plants nothing: then nothing of it would be looked for either.
fn check_classes(classes: &[&str]) {
    for class in classes {
        let plants = |kernel: &Kernel| {
            let planted = mutations(&case::entry_text(kernel));
            planted.iter().any(|mutation| mutation.class == *class)
        };
        assert!(kernels().any(plants), "no {class} is planted");
    }
}

/// Plants every bug of these classes in every kernel, two kernels at a time. What is neither caught
/// nor allowed fails.
fn plant_all(classes: &[&str]) -> Outcome {
    let only = chosen();
    if only.is_empty() {
        check_classes(classes);
    }
    let kernels: Vec<&Kernel> = kernels().filter(|k| k.entry.contains(&only)).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut out = Outcome::new();
        while let Some(kernel) = kernels.get(next.fetch_add(1, Ordering::Relaxed)) {
            out.add(Outcome::of(kernel, classes));
        }
        out
    };
    let mut out = Outcome::new();
    thread::scope(|scope| {
        let workers = [scope.spawn(work), scope.spawn(work)];
        for worker in workers {
            out.add(worker.join().expect("a worker does not panic"));
        }
    });
    out.survivors.sort();
    println!(
        "{} bugs planted, {} caught, the others allowed",
        out.planted, out.caught
    );
    assert!(
        out.survivors.is_empty(),
        "{} neither caught nor allowed:\n{}",
        out.survivors.len(),
        out.survivors.join("\n")
    );
    out
}

#[test]
fn without_a_barrier_a_wait_or_a_shuffle_no_kernel_passes() {
    plant_all(&["barrier", "wait", "shuffle"]);
}

#[test]
#[ignore = "minutes of work: kernels/verify.sh runs it"]
fn every_planted_bug_is_caught_or_explained() {
    let out = plant_all(&["barrier", "wait", "shuffle", "bound", "index", "arithmetic"]);
    if !chosen().is_empty() {
        println!("a part of the kernels alone: whether each allowance is needed is not looked at");
        return;
    }
    let idle = ALLOWED.iter().zip(&out.used);
    let idle = idle.filter(|(allowance, used)| allowance.most != **used);
    let idle: Vec<String> = idle
        .map(|(allowance, used)| format!("{allowance:?} took out {used}"))
        .collect();
    assert!(idle.is_empty(), "allowed in vain:\n{}", idle.join("\n"));
}
