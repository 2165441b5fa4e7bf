//! The living state of requests, and where it is kept.

use std::sync::Arc;

use policy_core::{Candidate, Importance, RequestPriority, SequenceId};

use super::config::SchedulerConfig;
use super::inputs::Arrival;
use crate::batch::TokenId;
use crate::kv::ContentId;
use crate::request::RequestId;

/// A live request: waiting, or running under the id of its admission.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    pub(super) request: RequestId,
    pub(super) importance: Importance,
    pub(super) priority: RequestPriority,
    pub(super) structured: bool,
    pub(super) arrived_step: u64,
    pub(super) max_tokens: u32,
    pub(super) num_prompt_tokens: u32,
    /// The first choice of the same `n > 1`.
    pub(super) sibling_of: Option<RequestId>,
    /// The content that its first block has as its parent.
    pub(super) root: ContentId,
    /// The content of each block that its tokens fill, as far as it was needed.
    pub(super) content_ids: Vec<ContentId>,
    prompt: Arc<[TokenId]>,
    /// Prompt and answer; empty before the first admission.
    tokens: Vec<TokenId>,
    /// The id of this admission; `None` while it waits.
    pub(super) id: Option<SequenceId>,
    pub(super) admitted_step: u64,
    /// Tokens of the answer at this admission.
    generated_before: u32,
    /// Its blocks; none while it waits.
    pub(super) blocks: Vec<u32>,
    /// Tokens whose keys and values are written; none while it waits.
    pub(super) num_computed_tokens: u32,
    pub(super) preemptions: u32,
    pub(super) preempted_step: u64,
    /// Tokens found at the first admission.
    pub(super) cached_tokens: u32,
}

impl Sequence {
    pub(super) fn new(arrival: &Arrival, importance: Importance, step: u64) -> Self {
        Self {
            request: arrival.request,
            importance,
            priority: arrival.priority,
            structured: arrival.structured,
            arrived_step: step,
            max_tokens: arrival.max_tokens,
            num_prompt_tokens: arrival.prompt.len() as u32,
            sibling_of: None,
            root: ContentId::root(arrival.cache_salt.as_deref()),
            content_ids: Vec::new(),
            prompt: Arc::clone(&arrival.prompt),
            tokens: Vec::new(),
            id: None,
            admitted_step: 0,
            generated_before: 0,
            blocks: Vec::new(),
            num_computed_tokens: 0,
            preemptions: 0,
            preempted_step: 0,
            cached_tokens: 0,
        }
    }

    /// Prompt, then answer.
    pub(super) fn tokens(&self) -> &[TokenId] {
        if self.tokens.is_empty() {
            &self.prompt
        } else {
            &self.tokens
        }
    }

    pub(super) fn num_tokens(&self) -> u32 {
        self.tokens().len() as u32
    }

    pub(super) fn generated_tokens(&self) -> u32 {
        self.num_tokens() - self.num_prompt_tokens
    }

    /// Tokens that have no key and value yet: at least one while it runs.
    pub(super) fn lacking_tokens(&self) -> u32 {
        self.num_tokens() - self.num_computed_tokens
    }

    /// Whether one token is all it lacks.
    pub(super) fn decodes(&self) -> bool {
        self.lacking_tokens() == 1
    }

    /// Blocks that its tokens fill or begin, beyond those it has.
    pub(super) fn lacking_blocks(&self, block_size: u32) -> u32 {
        self.num_tokens().div_ceil(block_size) - self.blocks.len() as u32
    }

    /// The parent of the block at this index of its table.
    pub(super) fn parent(&self, index: usize) -> ContentId {
        match index.checked_sub(1) {
            Some(before) => self.content_ids[before],
            None => self.root,
        }
    }

    /// The tokens of a full block of its table.
    pub(super) fn block_tokens(&self, index: usize, block_size: u32) -> &[TokenId] {
        let size = block_size as usize;
        &self.tokens()[index * size..(index + 1) * size]
    }

    /// Computes the content of the blocks that its tokens fill.
    pub(super) fn extend_content_ids(&mut self, block_size: u32) {
        let full = (self.num_tokens() / block_size) as usize;
        while self.content_ids.len() < full {
            let index = self.content_ids.len();
            let id = self
                .parent(index)
                .child(self.block_tokens(index, block_size));
            self.content_ids.push(id);
        }
    }

    /// Makes room for the whole answer, so that no later step allocates for it.
    pub(super) fn reserve(&mut self, block_size: u32) {
        let most = self.num_prompt_tokens as usize + self.max_tokens as usize;
        self.tokens.reserve_exact(most - self.tokens.len());
        if self.tokens.is_empty() {
            self.tokens.extend_from_slice(&self.prompt);
        }
        let blocks = most.div_ceil(block_size as usize);
        self.blocks.reserve_exact(blocks - self.blocks.len());
        self.content_ids
            .reserve_exact(blocks - self.content_ids.len());
    }

    /// Seats it.
    pub(super) fn admit(&mut self, id: SequenceId, step: u64) {
        self.id = Some(id);
        self.admitted_step = step;
        self.generated_before = self.generated_tokens();
    }

    /// Tokens of the answer at this admission.
    pub(super) fn generated_before(&self) -> u32 {
        self.generated_before
    }

    /// Takes the answer and the seat that a checkpoint says it had.
    pub(super) fn restore_answer(
        &mut self,
        tokens: &[TokenId],
        id: Option<SequenceId>,
        admitted_step: u64,
        generated_before: u32,
    ) {
        if id.is_some() || tokens.len() > self.prompt.len() {
            self.tokens = tokens.to_vec();
        }
        self.id = id;
        self.admitted_step = admitted_step;
        self.generated_before = generated_before;
    }

    /// Appends a token of the answer.
    pub(super) fn push(&mut self, token: TokenId) {
        self.tokens.push(token);
    }

    /// What the choice of a victim sees of it.
    pub(super) fn candidate(&self, config: &SchedulerConfig, step: u64) -> Candidate {
        let generated_tokens = self.generated_tokens() - self.generated_before;
        let leased =
            generated_tokens == 0 && step - self.admitted_step < u64::from(config.seat_lease_steps);
        Candidate {
            id: self.running_id(),
            priority: self.priority,
            generated_tokens,
            exempt: self.structured || leased,
            worn: self.preemptions >= config.worn_after_preemptions,
        }
    }

    pub(super) fn running_id(&self) -> SequenceId {
        self.id.expect("a running sequence has an id")
    }
}

/// Where a live request's state is kept, and its place in the order: ordered by importance alone,
/// which is unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) importance: Importance,
    pub(super) index: u32,
}

/// The state of all live requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Live {
    sequences: Vec<Option<Sequence>>,
    vacant: Vec<u32>,
    /// Ascending by request; arrivals append.
    by_request: Vec<(RequestId, u32)>,
}

impl Live {
    pub(super) fn insert(&mut self, sequence: Sequence) -> Place {
        let importance = sequence.importance;
        let request = sequence.request;
        let index = match self.vacant.pop() {
            Some(index) => index,
            None => {
                self.sequences.push(None);
                self.sequences.len() as u32 - 1
            }
        };
        self.sequences[index as usize] = Some(sequence);
        self.by_request.push((request, index));
        Place { importance, index }
    }

    pub(super) fn remove(&mut self, index: u32) -> Sequence {
        let sequence = self.sequences[index as usize]
            .take()
            .expect("the sequence is live");
        let at = self.position(sequence.request).expect("it is listed");
        self.by_request.remove(at);
        self.vacant.push(index);
        sequence
    }

    pub(super) fn find(&self, request: RequestId) -> Option<u32> {
        self.position(request).map(|at| self.by_request[at].1)
    }

    pub(super) fn at(&self, index: u32) -> &Sequence {
        self.sequences[index as usize]
            .as_ref()
            .expect("the sequence is live")
    }

    pub(super) fn at_mut(&mut self, index: u32) -> &mut Sequence {
        self.sequences[index as usize]
            .as_mut()
            .expect("the sequence is live")
    }

    /// All live requests, by their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Sequence> {
        self.by_request.iter().map(|&(_, index)| self.at(index))
    }

    fn position(&self, request: RequestId) -> Option<usize> {
        self.by_request
            .binary_search_by_key(&request, |&(request, _)| request)
            .ok()
    }
}
