//! A journal that keeps only its chain: equal runs have equal chains.

use super::{Chain, Encoder, Header};
use crate::scheduler::{Inputs, Plan, Scheduler};

/// Makes the records of a run and folds them into their chain, without a file.
#[derive(Clone, Debug)]
pub struct Recorder {
    encoder: Encoder,
    chain: Chain,
    line: Vec<u8>,
}

impl Recorder {
    /// A recorder that has taken in the header.
    pub fn new(header: &Header) -> Self {
        let mut line = Vec::new();
        Encoder::header(header, &mut line);
        Self {
            encoder: Encoder::new(header),
            chain: Chain::default().next(&line),
            line,
        }
    }

    /// Takes in the step that `scheduler` has just taken.
    pub fn append(&mut self, inputs: &Inputs, plan: &Plan, scheduler: &Scheduler) {
        if plan.step == 0 {
            return;
        }
        self.line.clear();
        self.encoder.record(inputs, plan, scheduler, &mut self.line);
        self.chain = self.chain.next(&self.line);
    }

    /// The chain so far.
    pub fn chain(&self) -> Chain {
        self.chain
    }

    /// The last record, without its chain field.
    pub fn last_record(&self) -> &[u8] {
        &self.line
    }
}
