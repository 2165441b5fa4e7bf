//! The account of a request's life: what happened to it, to whom it happened, and why.

use policy_core::{Candidate, Need};
use serde::Serialize;

/// What became of one request. Steps are those of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Account {
    /// The request.
    pub request: u64,
    /// Its class.
    pub priority: &'static str,
    /// The step in which it arrived.
    pub arrived_step: u64,
    /// Tokens of its prompt.
    pub prompt_tokens: u32,
    /// The most tokens of its answer.
    pub max_tokens: u32,
    /// What happened, in order.
    pub events: Vec<AccountEvent>,
    /// Events that found no place.
    pub events_left_out: u64,
}

/// One event of a request's life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum AccountEvent {
    /// It was the most important that waited, and something was in its way.
    Blocked {
        /// The first step of the wait.
        from_step: u64,
        /// The last.
        to_step: u64,
        /// What it waited for: `seat`, `blocks`, `budget`, `sibling`, `shortage` or `preempted`.
        wait: &'static str,
        /// Blocks it needed in the last step, where it waited for blocks.
        needed_blocks: Option<u32>,
        /// Blocks that could be had then.
        available_blocks: Option<u32>,
    },
    /// It got a seat.
    Admitted {
        /// The step.
        step: u64,
        /// The id of this admission.
        sequence: u64,
        /// Tokens that were found computed.
        cached_tokens: u32,
        /// Preemptions before it.
        preemptions: u32,
    },
    /// Another gave way for it.
    Displaced(Box<PreemptionAccount>),
    /// It gave way.
    Preempted(Box<PreemptionAccount>),
    /// It ended.
    Released {
        /// The step.
        step: u64,
        /// How: `stop`, `length`, `non-finite`, `cancelled`, `expired` or `rejected-…`.
        cause: &'static str,
        /// Tokens generated.
        generated_tokens: u32,
        /// Preemptions in all.
        preemptions: u32,
    },
}

/// One preemption: who, for whom, and why not another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PreemptionAccount {
    /// The step.
    pub step: u64,
    /// Who gave way.
    pub victim: CandidateAccount,
    /// The request for which it did.
    pub beneficiary: u64,
    /// That request's class.
    pub beneficiary_priority: &'static str,
    /// What for: `seat` or `blocks`.
    pub need: &'static str,
    /// The policy that chose.
    pub policy: &'static str,
    /// All that were considered, in order of importance.
    pub candidates: Vec<CandidateAccount>,
    /// How many of them were exempt.
    pub exempt: u32,
    /// Who would have been next.
    pub runner_up: Option<CandidateAccount>,
    /// The component of the key that separated the two.
    pub separator: Option<&'static str>,
    /// Blocks that could be had before.
    pub blocks_before: u32,
    /// The same after.
    pub blocks_after: u32,
    /// Tokens whose keys and values were given up.
    pub computed_tokens: u32,
    /// How many of them must be computed again, unless more is evicted.
    pub recompute_tokens: u32,
}

/// A running sequence that might have given way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CandidateAccount {
    /// The id of its admission.
    pub sequence: u64,
    /// Its request; `None` where its admission is no longer known.
    pub request: Option<u64>,
    /// Its class.
    pub priority: &'static str,
    /// Tokens generated since its admission.
    pub generated_tokens: u32,
    /// Whether it was exempt.
    pub exempt: bool,
    /// Whether it had been preempted so often that it came last.
    pub worn: bool,
}

impl CandidateAccount {
    pub(super) fn new(candidate: &Candidate, request: Option<u64>) -> Self {
        Self {
            sequence: candidate.id.number(),
            request,
            priority: candidate.priority.name(),
            generated_tokens: candidate.generated_tokens,
            exempt: candidate.exempt,
            worn: candidate.worn,
        }
    }

    fn name(&self) -> String {
        match self.request {
            Some(request) => format!("request {request} (sequence {})", self.sequence),
            None => format!("sequence {}", self.sequence),
        }
    }
}

impl Account {
    /// The account in sentences, one for each event.
    pub fn sentences(&self) -> Vec<String> {
        let mut sentences = vec![format!(
            "Request {} ({}) arrived in step {} with a prompt of {}, for an answer of at most {}.",
            self.request,
            self.priority,
            self.arrived_step,
            count(self.prompt_tokens.into(), "token"),
            count(self.max_tokens.into(), "token"),
        )];
        sentences.extend(self.events.iter().map(AccountEvent::sentence));
        if self.events_left_out > 0 {
            let left_out = count(self.events_left_out, "later event");
            sentences.push(format!("{left_out} found no place in this account."));
        }
        if !matches!(self.events.last(), Some(AccountEvent::Released { .. })) {
            sentences.push("It has not ended.".to_owned());
        }
        sentences
    }
}

impl AccountEvent {
    fn sentence(&self) -> String {
        match self {
            Self::Blocked {
                from_step,
                to_step,
                wait,
                needed_blocks,
                available_blocks,
            } => {
                let span = if from_step == to_step {
                    format!("In step {from_step} it")
                } else {
                    format!("From step {from_step} to step {to_step} it")
                };
                let blocks = needed_blocks.zip(*available_blocks);
                format!(
                    "{span} was the next to be admitted and {}.",
                    why(wait, blocks)
                )
            }
            Self::Admitted {
                step,
                sequence,
                cached_tokens,
                preemptions,
            } => {
                let again = if *preemptions > 0 { " again" } else { "" };
                let found = match cached_tokens {
                    0 => "nothing of it was found computed".to_owned(),
                    tokens => format!(
                        "{} of it were found computed",
                        count((*tokens).into(), "token")
                    ),
                };
                format!("In step {step} it was admitted{again}, as sequence {sequence}; {found}.")
            }
            Self::Displaced(preemption) => preemption.displaced(),
            Self::Preempted(preemption) => preemption.preempted(),
            Self::Released {
                step,
                cause,
                generated_tokens,
                preemptions,
            } => format!(
                "It ended in step {step} ({cause}) with {} generated, after {}.",
                count((*generated_tokens).into(), "token"),
                count((*preemptions).into(), "preemption"),
            ),
        }
    }
}

fn why(wait: &str, blocks: Option<(u32, u32)>) -> String {
    match (wait, blocks) {
        ("seat", _) => {
            "waited for a seat: all were taken, and nobody who had one may give way to it"
                .to_owned()
        }
        ("blocks", Some((needed, available))) => format!(
            "waited for KV blocks: with what the running sequences need, {needed} were needed and {available} could be had"
        ),
        ("budget", _) => "waited for a token of the step's budget".to_owned(),
        ("sibling", _) => {
            "waited for the first choice of its request to compute the prompt that they share"
                .to_owned()
        }
        ("preempted", _) => "waited, since it had been preempted in that step".to_owned(),
        _ => "waited, since a sequence ahead of it lacked KV blocks".to_owned(),
    }
}

impl PreemptionAccount {
    fn displaced(&self) -> String {
        format!(
            "In step {} {} gave way to it, for {}.",
            self.step,
            self.victim.name(),
            need_text(self.need)
        )
    }

    fn preempted(&self) -> String {
        format!(
            "In step {} it was preempted so that request {} ({}) could have {}: {}. \
             Blocks that could be had went from {} to {}; of its {}, {} must be computed again.",
            self.step,
            self.beneficiary,
            self.beneficiary_priority,
            need_text(self.need),
            self.reason(),
            self.blocks_before,
            self.blocks_after,
            count(self.computed_tokens.into(), "computed token"),
            self.recompute_tokens,
        )
    }

    /// Why it was this victim and not its neighbour.
    pub fn reason(&self) -> String {
        let exempt = match self.exempt {
            0 => String::new(),
            exempt => format!(" ({exempt} exempt)"),
        };
        let among = format!(
            "of {} of class {}{exempt}, {} chose {}",
            count(self.candidates.len() as u64, "candidate"),
            self.victim.priority,
            self.policy,
            self.victim.name(),
        );
        let Some((other, separator)) = self.runner_up.as_ref().zip(self.separator) else {
            return format!("{among}, the only one that might give way");
        };
        let next = other.name();
        let because = match separator {
            "exempt" => "which is exempt".to_owned(),
            "worn" => "which has been preempted too often".to_owned(),
            "priority" => format!("which is {}", other.priority),
            "generated-tokens" => format!(
                "which has generated {} since its admission, against {}",
                other.generated_tokens, self.victim.generated_tokens
            ),
            _ => "with which it tied on everything, so that the smaller sequence id decided"
                .to_owned(),
        };
        format!("{among}, and not {next}, {because}")
    }
}

fn need_text(need: &str) -> &'static str {
    if need == Need::Seat.name() {
        "a seat"
    } else {
        "KV blocks"
    }
}

fn count(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}
