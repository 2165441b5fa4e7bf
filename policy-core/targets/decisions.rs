//! One input and every decision made on it, as text: the same on a server, a microcontroller and a
//! web page.
//!
//! A server of three seats and eight blocks serves seven requests under each policy; then blocks are
//! evicted, requests routed and names parsed. The host's test, the firmware and the WebAssembly
//! module include this file, and `run.sh` compares what they print.

use core::fmt::{self, Write};

use policy_core::heapless::Vec;
use policy_core::{
    Aging, Arrival, CachedBlock, Candidate, DuplicateId, Identified, Importance, Need,
    PreemptionPolicy, RequestPriority, SequenceId, WorkerId, select_block, select_least,
    select_least_n, select_victim, select_victims, select_worker,
};

use RequestPriority::{High, Low, Normal};

const SEATS: usize = 3;
const BLOCKS: u32 = 8;
const BLOCK_SIZE: u32 = 2;
const LAST_STEP: u64 = 100;

/// When a request arrives, how urgent it is, how many tokens it wants, whether it is structured.
const REQUESTS: [(u64, RequestPriority, u32, bool); 7] = [
    (0, Normal, 9, false),
    (0, Normal, 9, false),
    (1, Low, 9, false),
    (3, High, 8, false),
    (4, Low, 6, true),
    (4, High, 8, false),
    (6, Normal, 5, true),
];

/// Why the decisions could not be printed: never, unless something is broken.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The writer refused text.
    Write,
    /// Two sequences had one id.
    Duplicate,
    /// A list was full, or an id could not be given.
    Bound,
    /// Requests were left when the last step was over.
    Unfinished,
}

impl From<fmt::Error> for Failure {
    fn from(_: fmt::Error) -> Self {
        Self::Write
    }
}

impl<I> From<DuplicateId<I>> for Failure {
    fn from(_: DuplicateId<I>) -> Self {
        Self::Duplicate
    }
}

/// Writes every decision, one a line.
///
/// # Errors
/// A [`Failure`], where the writer or this file is broken.
pub(crate) fn decide(out: &mut impl Write) -> Result<(), Failure> {
    for &policy in PreemptionPolicy::ALL {
        Server::new(policy).serve(out)?;
    }
    evict(out)?;
    route(out)?;
    parse(out)
}

#[derive(Clone, Copy)]
struct Request {
    number: u64,
    importance: Importance,
    priority: RequestPriority,
    structured: bool,
    wanted: u32,
    /// Tokens generated over all its admissions.
    generated: u32,
    /// A step in which a request was preempted does not admit it again.
    not_before: u64,
}

impl Identified for Request {
    type Id = u64;

    fn id(&self) -> u64 {
        self.number
    }
}

#[derive(Clone, Copy)]
struct Running {
    id: SequenceId,
    request: Request,
    /// Tokens generated since this admission.
    generated: u32,
}

impl Running {
    const fn candidate(&self) -> Candidate {
        Candidate {
            id: self.id,
            priority: self.request.priority,
            generated_tokens: self.generated,
            exempt: self.request.structured,
            worn: false,
        }
    }

    /// How many blocks it needs to hold one token more.
    const fn blocks(&self) -> u32 {
        self.request.generated / BLOCK_SIZE + 1
    }
}

impl Identified for Running {
    type Id = SequenceId;

    fn id(&self) -> SequenceId {
        self.id
    }
}

struct Server {
    policy: PreemptionPolicy,
    step: u64,
    next: SequenceId,
    waiting: Vec<Request, 8>,
    running: Vec<Running, SEATS>,
}

impl Server {
    const fn new(policy: PreemptionPolicy) -> Self {
        Self {
            policy,
            step: 0,
            next: SequenceId::FIRST,
            waiting: Vec::new(),
            running: Vec::new(),
        }
    }

    fn serve(&mut self, out: &mut impl Write) -> Result<(), Failure> {
        writeln!(out, "policy {}", self.policy)?;
        for step in 0..LAST_STEP {
            self.step = step;
            self.arrive()?;
            self.admit(out)?;
            self.make_room(out)?;
            self.decode(out)?;
        }
        if self.waiting.is_empty() && self.running.is_empty() {
            Ok(())
        } else {
            Err(Failure::Unfinished)
        }
    }

    fn arrive(&mut self) -> Result<(), Failure> {
        for (number, (step, priority, wanted, structured)) in (0..).zip(REQUESTS) {
            if step == self.step {
                let arrival = Arrival {
                    priority,
                    step,
                    number,
                };
                let request = Request {
                    number,
                    importance: Aging::from_steps(4).importance(arrival),
                    priority,
                    structured,
                    wanted,
                    generated: 0,
                    not_before: step,
                };
                self.waiting.push(request).map_err(|_| Failure::Bound)?;
            }
        }
        Ok(())
    }

    fn admit(&mut self, out: &mut impl Write) -> Result<(), Failure> {
        loop {
            let ready = self.waiting.iter().filter(|r| r.not_before <= self.step);
            let Some(head) = select_least(ready, |request| request.importance)? else {
                return Ok(());
            };
            let head = *head.winner;
            if self.running.is_full() && !self.take_seat(head, out)? {
                return Ok(());
            }
            let id = self.next;
            self.next = id.successor().ok_or(Failure::Bound)?;
            self.waiting.retain(|request| request.number != head.number);
            let admitted = Running {
                id,
                request: head,
                generated: 0,
            };
            self.running.push(admitted).map_err(|_| Failure::Bound)?;
            let (step, number) = (self.step, head.number);
            writeln!(out, "step {step}: admit request {number} as sequence {id}")?;
        }
    }

    /// Preempts a sequence of a lower class than `head`, if there is one to preempt.
    fn take_seat(&mut self, head: Request, out: &mut impl Write) -> Result<bool, Failure> {
        let lower = self.running.iter().map(Running::candidate);
        let lower = lower.filter(|candidate| candidate.priority < head.priority);
        let Some(chosen) = select_victim(self.policy, Need::Seat, lower)? else {
            return Ok(false);
        };
        let (step, victim, number) = (self.step, chosen.victim.id, head.number);
        write!(
            out,
            "step {step}: preempt sequence {victim} for request {number}"
        )?;
        match (chosen.runner_up, chosen.separator) {
            (Some(next), Some(by)) => writeln!(out, ", not {}: {by}", next.id)?,
            _ => writeln!(out, ", the only one")?,
        }
        self.preempt(victim)?;
        Ok(true)
    }

    /// Preempts until the blocks suffice for one token more each; never the most important one.
    fn make_room(&mut self, out: &mut impl Write) -> Result<(), Failure> {
        if self.shortage() == 0 {
            return Ok(());
        }
        let Some(first) = select_least(&self.running, |running| running.request.importance)? else {
            return Ok(());
        };
        let kept = first.winner.id;
        let others = self.running.iter().map(Running::candidate);
        let others = others.filter(|candidate| candidate.id != kept);
        let victims = select_victims::<SEATS>(self.policy, Need::Blocks, others)?;
        let mut done = Ok(());
        let _reach = victims.take_until(|victim| {
            done = self.preempt(victim.id);
            self.shortage() == 0 || done.is_err()
        });
        done?;
        let (step, short) = (self.step, self.shortage());
        write!(out, "step {step}: blocks for sequence {kept} from")?;
        for victim in &victims.ranked {
            if self.running.iter().all(|running| running.id != victim.id) {
                write!(out, " {}", victim.id)?;
            }
        }
        writeln!(out, ", {short} short")?;
        Ok(())
    }

    fn shortage(&self) -> u32 {
        let needed: u32 = self.running.iter().map(Running::blocks).sum();
        needed.saturating_sub(BLOCKS)
    }

    fn preempt(&mut self, victim: SequenceId) -> Result<(), Failure> {
        let (waiting, step) = (&mut self.waiting, self.step);
        let mut refused = false;
        self.running.retain(|running| {
            if running.id != victim {
                return true;
            }
            let request = Request {
                not_before: step + 1,
                ..running.request
            };
            refused |= waiting.push(request).is_err();
            false
        });
        if refused { Err(Failure::Bound) } else { Ok(()) }
    }

    fn decode(&mut self, out: &mut impl Write) -> Result<(), Failure> {
        for running in &mut self.running {
            running.generated += 1;
            running.request.generated += 1;
            if running.request.generated == running.request.wanted {
                let (step, number) = (self.step, running.request.number);
                writeln!(out, "step {step}: request {number} is whole")?;
            }
        }
        self.running
            .retain(|running| running.request.generated < running.request.wanted);
        Ok(())
    }
}

fn evict(out: &mut impl Write) -> Result<(), Failure> {
    let blocks = [(4, 9, 0), (1, 3, 1), (2, 3, 2), (5, 3, 2), (0, 8, 4)];
    let mut cached: Vec<CachedBlock, 5> = Vec::new();
    for (id, last_used_step, depth) in blocks {
        let block = CachedBlock {
            id,
            last_used_step,
            depth,
        };
        cached.push(block).map_err(|_| Failure::Bound)?;
    }
    write!(out, "evict blocks")?;
    while let Some(choice) = select_block(cached.iter().copied())? {
        write!(out, " {}", choice.winner.id)?;
        cached.retain(|block| block.id != choice.winner.id);
    }
    writeln!(out)?;
    Ok(())
}

fn route(out: &mut impl Write) -> Result<(), Failure> {
    for key in ["alpha", "beta", "gamma", "delta"] {
        let workers = [3, 0, 2, 1].map(WorkerId::new);
        if let Some(choice) = select_worker(key.as_bytes(), workers)? {
            write!(out, "route {key} to worker {}", choice.winner)?;
            if let Some(next) = choice.runner_up {
                write!(out, ", else {next}")?;
            }
            writeln!(out)?;
        }
    }
    let nearest = select_least_n::<2, _, _, _>([9, 4, 6].map(SequenceId::new), |_| ())?;
    for id in &nearest.items {
        writeln!(out, "oldest sequence {id}")?;
    }
    Ok(())
}

fn parse(out: &mut impl Write) -> Result<(), Failure> {
    for text in ["low", "high", "-7", "0", "urgent"] {
        match text.parse::<RequestPriority>() {
            Ok(priority) => writeln!(out, "{text} is {priority}")?,
            Err(error) => writeln!(out, "{error}")?,
        }
    }
    Ok(())
}
