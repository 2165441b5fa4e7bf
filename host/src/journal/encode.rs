//! Records as text: written by hand, since a step's record is made in every step.

use policy_core::{Candidate, RequestPriority};
use serde::Serialize;

use super::{Header, JournalContent};
use crate::kv::ContentId;
use crate::scheduler::{
    Advance, Arrival, Blocked, Chunk, Finish, Inputs, Plan, Preemption, RejectReason, Release,
    ReleaseCause, Scheduler, Wait,
};

/// Writes the lines of a journal, without their chain field.
#[derive(Clone, Copy, Debug)]
pub struct Encoder {
    content: JournalContent,
    block_size: usize,
    prefix_caching: bool,
}

impl Encoder {
    /// An encoder of the records that belong under this header.
    pub fn new(header: &Header) -> Self {
        Self {
            content: header.content,
            block_size: header.config.block_size as usize,
            prefix_caching: header.config.enable_prefix_caching,
        }
    }

    /// Appends the header's line, without its chain.
    pub fn header(header: &Header, line: &mut Vec<u8>) {
        json(header, line);
        line.pop();
    }

    /// Appends a step's line, without its chain. `scheduler` has just taken that step.
    pub fn record(&self, inputs: &Inputs, plan: &Plan, scheduler: &Scheduler, line: &mut Vec<u8>) {
        line.extend_from_slice(b"{\"step\":");
        number(plan.step, line);
        line.extend_from_slice(b",\"inputs\":{");
        self.inputs(inputs, scheduler, line);
        line.extend_from_slice(b"},\"plan\":{");
        encode_plan(plan, line);
        line.push(b'}');
    }

    fn inputs(&self, inputs: &Inputs, scheduler: &Scheduler, line: &mut Vec<u8>) {
        let mut fields = Fields::new(line);
        let mut filled = scheduler.filled_blocks().iter().peekable();
        fields.list("advances", &inputs.advances, |advance, line| {
            let block = filled.next_if(|(sequence, _)| *sequence == advance.sequence);
            let token = match self.content {
                JournalContent::Tokens => advance.token.map(Token::Plain),
                JournalContent::Ids => advance.token.map(|_| Token::Hidden(block.map(|b| b.1))),
            };
            encode_advance(advance, token, line);
        });
        fields.list("arrivals", &inputs.arrivals, |arrival, line| {
            self.arrival(arrival, line);
        });
        let ids = |request: &crate::request::RequestId, line: &mut Vec<u8>| {
            number(request.number(), line);
        };
        fields.list("cancels", &inputs.cancels, ids);
        fields.list("expiries", &inputs.expiries, ids);
        if inputs.drain {
            fields.key("drain").extend_from_slice(b"true");
        }
    }

    fn arrival(&self, arrival: &Arrival, line: &mut Vec<u8>) {
        line.push(b'{');
        let mut fields = Fields::new(line);
        number(arrival.request.number(), fields.key("request"));
        text(arrival.priority.name(), fields.key("priority"));
        number(arrival.max_tokens.into(), fields.key("max_tokens"));
        if arrival.structured {
            fields.key("structured").extend_from_slice(b"true");
        }
        if let Some(first) = arrival.sibling_of {
            number(first.number(), fields.key("sibling_of"));
        }
        match self.content {
            JournalContent::Tokens => {
                if let Some(salt) = &arrival.cache_salt {
                    json(salt, fields.key("cache_salt"));
                }
                if let Some(parameters) = &arrival.parameters {
                    json(parameters, fields.key("parameters"));
                }
                fields.list("prompt", arrival.prompt.iter(), |token, line| {
                    number(u64::from(*token), line);
                });
            }
            JournalContent::Ids => self.prompt_ids(arrival, &mut fields),
        }
        line.push(b'}');
    }

    fn prompt_ids(&self, arrival: &Arrival, fields: &mut Fields<'_>) {
        number(arrival.prompt.len() as u64, fields.key("prompt_tokens"));
        if !self.prefix_caching {
            return;
        }
        let mut parent = ContentId::root(arrival.cache_salt.as_deref());
        let blocks = arrival.prompt.chunks_exact(self.block_size);
        fields.list("prompt_ids", blocks, |tokens, line| {
            parent = parent.child(tokens);
            content(&parent, line);
        });
    }
}

/// What is written of an advance's token.
enum Token {
    /// The token.
    Plain(u32),
    /// The content of the block that it filled, if it filled one.
    Hidden(Option<ContentId>),
}

fn encode_advance(advance: &Advance, token: Option<Token>, line: &mut Vec<u8>) {
    line.push(b'[');
    number(advance.sequence.number(), line);
    line.push(b',');
    match token {
        None => line.extend_from_slice(b"null"),
        Some(Token::Plain(token)) => number(token.into(), line),
        Some(Token::Hidden(None)) => line.push(b'0'),
        Some(Token::Hidden(Some(id))) => content(&id, line),
    }
    if let Some(finish) = advance.finished {
        line.push(b',');
        text(finish_name(finish), line);
    }
    line.push(b']');
}

fn encode_plan(plan: &Plan, line: &mut Vec<u8>) {
    let mut fields = Fields::new(line);
    fields.list("releases", &plan.releases, encode_release);
    fields.list("preemptions", &plan.preemptions, |preemption, line| {
        encode_preemption(preemption, preemption.candidates(plan), line);
    });
    fields.list("evictions", &plan.evictions, |block, line| {
        number(u64::from(*block), line);
    });
    fields.list("admissions", &plan.admissions, |admission, line| {
        numbers(
            [
                admission.sequence.number(),
                admission.request.number(),
                admission.cached_tokens.into(),
                admission.preemptions.into(),
            ],
            line,
        );
    });
    fields.list("copies", &plan.copies, |(from, to), line| {
        numbers([(*from).into(), (*to).into()], line);
    });
    fields.list("chunks", &plan.chunks, |chunk, line| {
        encode_chunk(chunk, plan.new_blocks(chunk), line);
    });
    if let Some(blocked) = &plan.blocked {
        encode_blocked(blocked, fields.key("blocked"));
    }
}

fn encode_release(release: &Release, line: &mut Vec<u8>) {
    line.push(b'{');
    let mut fields = Fields::new(line);
    number(release.request.number(), fields.key("request"));
    text(cause_name(release.cause), fields.key("cause"));
    number(
        release.generated_tokens.into(),
        fields.key("generated_tokens"),
    );
    number(release.cached_tokens.into(), fields.key("cached_tokens"));
    number(release.preemptions.into(), fields.key("preemptions"));
    line.push(b'}');
}

fn encode_chunk(chunk: &Chunk, new_blocks: &[u32], line: &mut Vec<u8>) {
    line.push(b'[');
    number(chunk.sequence.number(), line);
    for value in [chunk.start, chunk.len, u32::from(chunk.sample)] {
        line.push(b',');
        number(value.into(), line);
    }
    if !new_blocks.is_empty() {
        line.extend_from_slice(b",[");
        commas(new_blocks, line, |block, line| {
            number((*block).into(), line)
        });
        line.push(b']');
    }
    line.push(b']');
}

fn encode_preemption(preemption: &Preemption, candidates: &[Candidate], line: &mut Vec<u8>) {
    line.push(b'{');
    let mut fields = Fields::new(line);
    candidate(&preemption.victim, fields.key("victim"));
    number(preemption.request.number(), fields.key("request"));
    number(preemption.beneficiary.number(), fields.key("for"));
    text(
        preemption.beneficiary_priority.name(),
        fields.key("for_priority"),
    );
    text(preemption.need.name(), fields.key("need"));
    if let Some(runner_up) = &preemption.runner_up {
        candidate(runner_up, fields.key("runner_up"));
    }
    if let Some(separator) = preemption.separator {
        text(separator.name(), fields.key("separator"));
    }
    number(preemption.exempt.into(), fields.key("exempt"));
    fields.list("candidates", candidates, candidate);
    number(preemption.blocks_before.into(), fields.key("blocks_before"));
    number(preemption.blocks_after.into(), fields.key("blocks_after"));
    number(
        preemption.computed_tokens.into(),
        fields.key("computed_tokens"),
    );
    number(
        preemption.recompute_tokens.into(),
        fields.key("recompute_tokens"),
    );
    line.push(b'}');
}

fn candidate(candidate: &Candidate, line: &mut Vec<u8>) {
    line.push(b'[');
    number(candidate.id.number(), line);
    line.push(b',');
    text(RequestPriority::name(candidate.priority), line);
    for value in [
        candidate.generated_tokens,
        candidate.exempt.into(),
        candidate.worn.into(),
    ] {
        line.push(b',');
        number(value.into(), line);
    }
    line.push(b']');
}

fn encode_blocked(blocked: &Blocked, line: &mut Vec<u8>) {
    line.push(b'{');
    let mut fields = Fields::new(line);
    number(blocked.request.number(), fields.key("request"));
    text(wait_name(blocked.wait), fields.key("wait"));
    if let Wait::Blocks { needed, available } = blocked.wait {
        number(needed.into(), fields.key("needed"));
        number(available.into(), fields.key("available"));
    }
    line.push(b'}');
}

pub(super) fn wait_name(wait: Wait) -> &'static str {
    match wait {
        Wait::Seat => "seat",
        Wait::Blocks { .. } => "blocks",
        Wait::Budget => "budget",
        Wait::Preempted => "preempted",
        Wait::Shortage => "shortage",
        Wait::Sibling => "sibling",
    }
}

pub(super) fn finish_name(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
        Finish::NonFinite => "non-finite",
        Finish::NoToken => "no-token",
    }
}

pub(super) fn cause_name(cause: ReleaseCause) -> &'static str {
    match cause {
        ReleaseCause::Finished(finish) => finish_name(finish),
        ReleaseCause::Cancelled => "cancelled",
        ReleaseCause::Expired => "expired",
        ReleaseCause::Rejected(RejectReason::EmptyPrompt) => "rejected-empty-prompt",
        ReleaseCause::Rejected(RejectReason::TooLong) => "rejected-too-long",
        ReleaseCause::Rejected(RejectReason::Draining) => "rejected-draining",
    }
}

/// The fields of an object that is open: those with nothing to say are left out.
struct Fields<'a> {
    line: &'a mut Vec<u8>,
    first: bool,
}

impl<'a> Fields<'a> {
    fn new(line: &'a mut Vec<u8>) -> Self {
        Self { line, first: true }
    }

    fn key(&mut self, name: &str) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.first) {
            self.line.push(b',');
        }
        text(name, self.line);
        self.line.push(b':');
        self.line
    }

    fn list<T>(
        &mut self,
        name: &str,
        items: impl IntoIterator<Item = T>,
        item: impl FnMut(T, &mut Vec<u8>),
    ) {
        let mut items = items.into_iter().peekable();
        if items.peek().is_none() {
            return;
        }
        let line = self.key(name);
        line.push(b'[');
        commas(items, line, item);
        line.push(b']');
    }
}

fn commas<T>(
    items: impl IntoIterator<Item = T>,
    line: &mut Vec<u8>,
    mut item: impl FnMut(T, &mut Vec<u8>),
) {
    for (at, value) in items.into_iter().enumerate() {
        if at > 0 {
            line.push(b',');
        }
        item(value, line);
    }
}

fn numbers<const N: usize>(values: [u64; N], line: &mut Vec<u8>) {
    line.push(b'[');
    commas(values, line, number);
    line.push(b']');
}

fn number(value: u64, line: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = value;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    line.extend_from_slice(&digits[at..]);
}

/// A name of this crate's own: nothing in it needs escaping.
fn text(name: &str, line: &mut Vec<u8>) {
    line.push(b'"');
    line.extend_from_slice(name.as_bytes());
    line.push(b'"');
}

fn content(id: &ContentId, line: &mut Vec<u8>) {
    line.push(b'"');
    for byte in id.as_bytes() {
        for digit in [byte >> 4, byte & 15] {
            line.push(b"0123456789abcdef"[usize::from(digit)]);
        }
    }
    line.push(b'"');
}

fn json(value: &impl Serialize, line: &mut Vec<u8>) {
    serde_json::to_writer(line, value).expect("plain data written to memory");
}
