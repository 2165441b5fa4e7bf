//! Who gives way: victims are tried on paper first, and taken only if what they are for then fits.

use policy_core::{Candidate, Need, RequestPriority, Selection, select_victim};

use super::Scheduler;
use super::pass::Pass;
use super::plan::{Plan, Preemption, Wait};
use super::sequence::Place;
use crate::request::RequestId;

/// What a visited sequence asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    pub(super) request: RequestId,
    pub(super) priority: RequestPriority,
    /// It has a seat and its token of the budget, may preempt later equals, and goes before what
    /// the running sequences lack.
    pub(super) running: bool,
    /// Blocks that must be there to be had.
    pub(super) blocks: u32,
}

/// A victim on paper.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial {
    selection: Selection,
    need: Need,
    first_candidate: u32,
}

#[cfg(test)]
impl Trial {
    pub(super) fn victim(&self) -> policy_core::SequenceId {
        self.selection.victim.id
    }
}

/// What there would be, with the victims on paper gone.
#[derive(Clone, Copy, Debug)]
struct Supply {
    seats: u32,
    blocks: u32,
    /// Blocks spoken for by running sequences.
    lacking: u32,
    tokens: u32,
}

impl Scheduler {
    /// Sees to it that a demand is met, by preempting the fewest that the policy's order allows;
    /// where it cannot be met, nobody is preempted.
    pub(super) fn preempt_for(
        &mut self,
        demand: &Demand,
        pass: &mut Pass,
        plan: &mut Plan,
    ) -> Result<(), Wait> {
        let candidates = plan.candidates.len();
        self.trials.clear();
        let outcome = self.try_victims(demand, pass, plan);
        self.clear_trial_references();
        match outcome {
            Ok(()) => {
                for at in 0..self.trials.len() {
                    self.preempt(self.trials[at], demand, pass, plan);
                }
            }
            Err(_) => plan.candidates.truncate(candidates),
        }
        outcome
    }

    fn try_victims(&mut self, demand: &Demand, pass: &Pass, plan: &mut Plan) -> Result<(), Wait> {
        let mut supply = self.supply(demand, pass);
        loop {
            let short_of_seat = !demand.running && supply.seats == 0;
            let needed = demand.blocks + supply.lacking;
            let short_of_blocks = supply.blocks < needed;
            if !short_of_seat && !short_of_blocks {
                let budget = demand.running || supply.tokens > 0;
                return if budget { Ok(()) } else { Err(Wait::Budget) };
            }
            let (need, wait) = if short_of_seat {
                (Need::Seat, Wait::Seat)
            } else {
                let available = supply.blocks;
                (Need::Blocks, Wait::Blocks { needed, available })
            };
            let trial = self.choose(demand, need, pass, plan).ok_or(wait)?;
            self.count_without(&trial, demand, &mut supply);
            self.trials.push(trial);
        }
    }

    /// What there is; the blocks that the demand shares are held for it.
    fn supply(&mut self, demand: &Demand, pass: &Pass) -> Supply {
        let mut blocks = self.pool.num_available() as u32;
        for at in 0..self.found.len() {
            let block = self.found[at];
            blocks -= u32::from(self.pool.references(block) == 0);
            self.trial_references[block as usize] -= 1;
            self.tried_blocks.push(block);
        }
        Supply {
            seats: self.config.max_num_seqs - self.running.len() as u32,
            blocks,
            lacking: if demand.running {
                0
            } else {
                pass.lacking_blocks
            },
            tokens: pass.allowed(),
        }
    }

    /// The victim among those who may give way: behind the demand in importance, not chosen yet,
    /// and of the lowest class of which any may be taken.
    pub(super) fn choose(
        &self,
        demand: &Demand,
        need: Need,
        pass: &Pass,
        plan: &mut Plan,
    ) -> Option<Trial> {
        let allowed = self.running[pass.visited..]
            .iter()
            .map(|place| self.live.at(place.index))
            .filter(|sequence| demand.running || sequence.priority < demand.priority)
            .map(|sequence| sequence.candidate(&self.config, self.step))
            .filter(|candidate| {
                !self
                    .trials
                    .iter()
                    .any(|t| t.selection.victim.id == candidate.id)
            });
        let lowest = allowed
            .clone()
            .filter(|candidate| need == Need::Blocks || !candidate.exempt)
            .map(|candidate| candidate.priority)
            .min()?;
        let first = plan.candidates.len();
        plan.candidates
            .extend(allowed.filter(|candidate| candidate.priority == lowest));
        let candidates = plan.candidates[first..].iter().copied();
        // Ties end at the smallest sequence id, which policy-core appends to every key.
        let selection = select_victim(self.config.preemption_policy, need, candidates)
            .expect("a sequence id is given once")?;
        Some(Trial {
            selection,
            need,
            first_candidate: first as u32,
        })
    }

    /// Counts what one more victim would leave: of two that share a block, the last one frees it.
    fn count_without(&mut self, trial: &Trial, demand: &Demand, supply: &mut Supply) {
        let place = self.place_of(&trial.selection.victim);
        let sequence = self.live.at(place.index);
        for &block in &sequence.blocks {
            let gone = &mut self.trial_references[block as usize];
            *gone += 1;
            self.tried_blocks.push(block);
            supply.blocks += u32::from(*gone == self.pool.references(block) as i32);
        }
        supply.seats += 1;
        supply.tokens += u32::from(sequence.decodes());
        if !demand.running {
            supply.lacking -= sequence.lacking_blocks(self.config.block_size);
        }
    }

    fn clear_trial_references(&mut self) {
        for block in self.tried_blocks.drain(..) {
            self.trial_references[block as usize] = 0;
        }
    }

    fn place_of(&self, victim: &Candidate) -> Place {
        *self
            .running
            .iter()
            .find(|place| self.live.at(place.index).id == Some(victim.id))
            .expect("a victim runs")
    }

    /// Takes a victim's blocks and seat back: it waits, at the place that it always had.
    fn preempt(&mut self, trial: Trial, demand: &Demand, pass: &mut Pass, plan: &mut Plan) {
        let selection = trial.selection;
        let place = self.place_of(&selection.victim);
        let sequence = self.live.at(place.index);
        pass.reserved -= u32::from(sequence.decodes());
        pass.lacking_blocks -= sequence.lacking_blocks(self.config.block_size);
        let computed_tokens = sequence.num_computed_tokens;
        let recompute_tokens = computed_tokens - self.findable_tokens(place.index);
        let request = sequence.request;
        let blocks_before = self.pool.num_available() as u32;
        self.release_blocks(place.index);
        let at = self.running_position(place.importance);
        self.running.remove(at);
        let sequence = self.live.at_mut(place.index);
        sequence.id = None;
        sequence.num_computed_tokens = 0;
        sequence.preemptions += 1;
        sequence.preempted_step = self.step;
        self.enqueue(place);
        plan.preemptions.push(Preemption {
            victim: selection.victim,
            request,
            beneficiary: demand.request,
            beneficiary_priority: demand.priority,
            need: trial.need,
            runner_up: selection.runner_up,
            separator: selection.separator,
            first_candidate: trial.first_candidate,
            considered: selection.considered as u32,
            exempt: selection.exempt as u32,
            blocks_before,
            blocks_after: self.pool.num_available() as u32,
            computed_tokens,
            recompute_tokens,
        });
    }

    /// Computed tokens of a running sequence that the prefix index would give back to it.
    fn findable_tokens(&self, index: u32) -> u32 {
        let sequence = self.live.at(index);
        let size = self.config.block_size;
        let most = sequence.num_computed_tokens.min(sequence.num_tokens() - 1) / size;
        let found = (0..most as usize)
            .take_while(|&at| {
                let tokens = sequence.block_tokens(at, size);
                self.config.enable_prefix_caching
                    && self
                        .pool
                        .find(&sequence.content_ids[at], &sequence.parent(at), tokens)
                        .is_some()
            })
            .count();
        found as u32 * size
    }
}
