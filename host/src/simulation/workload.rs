//! What a simulation is run on: requests, and when they come and go.

use std::sync::Arc;

use policy_core::RequestPriority;
use serde::{Deserialize, Serialize};

use crate::batch::TokenId;

/// A list of requests, ascending by the step in which they arrive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// The requests: the number of each is its place.
    pub requests: Vec<SimulatedRequest>,
}

/// One request of a workload. In a file it is one line of JSON; all fields but the first three may
/// be left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimulatedRequest {
    /// The step in which it arrives, from 1.
    pub step: u64,
    /// Tokens of its prompt.
    pub prompt_tokens: u32,
    /// Tokens that it generates; 0 only scores the prompt.
    pub output_tokens: u32,
    /// Its class: `low`, `normal` or `high`.
    #[serde(with = "priority_name", default)]
    pub priority: RequestPriority,
    /// The most it may generate, at least `output_tokens`; that by default.
    #[serde(default)]
    pub max_tokens: Option<u32>,
    /// Requests of one family begin with the same tokens.
    #[serde(default)]
    pub family: u32,
    /// How many tokens they share.
    #[serde(default)]
    pub shared_tokens: u32,
    /// Whether its output is structured.
    #[serde(default)]
    pub structured: bool,
    /// Separates prefix caches.
    #[serde(default)]
    pub cache_salt: Option<Arc<str>>,
    /// The request, by its place in the workload, of which it is a further choice.
    #[serde(default)]
    pub sibling_of: Option<u32>,
    /// The step in which its caller goes away.
    #[serde(default)]
    pub cancel_step: Option<u64>,
    /// The step in which its time is up.
    #[serde(default)]
    pub expire_step: Option<u64>,
    /// The token of its answer, from 0, that is not finite.
    #[serde(default)]
    pub non_finite_at: Option<u32>,
    /// Its prompt, where it is to be a given one: `prompt_tokens` of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<Arc<[TokenId]>>,
}

impl SimulatedRequest {
    /// A request of class Normal that arrives in `step`.
    pub fn new(step: u64, prompt_tokens: u32, output_tokens: u32) -> Self {
        Self {
            step,
            prompt_tokens,
            output_tokens,
            priority: RequestPriority::Normal,
            max_tokens: None,
            family: 0,
            shared_tokens: 0,
            structured: false,
            cache_salt: None,
            sibling_of: None,
            cancel_step: None,
            expire_step: None,
            non_finite_at: None,
            prompt: None,
        }
    }

    /// The same, of another class.
    pub fn priority(mut self, priority: RequestPriority) -> Self {
        self.priority = priority;
        self
    }

    /// The most it may generate.
    pub fn max_tokens(&self) -> u32 {
        self.max_tokens.unwrap_or(self.output_tokens)
    }

    /// Its prompt, unless it is given: shared tokens are its family's, the others its own (a sibling's are its first
    /// choice's).
    pub fn prompt(&self, place: u32) -> Vec<TokenId> {
        if let Some(prompt) = &self.prompt {
            return prompt.to_vec();
        }
        let own = self.sibling_of.unwrap_or(place);
        (0..self.prompt_tokens)
            .map(|position| {
                let (kind, source) = if position < self.shared_tokens {
                    (1, self.family)
                } else {
                    (2, own)
                };
                let number = u64::from(source) << 34 | u64::from(position) << 2 | kind;
                (super::random::mix(number) % u64::from(super::model::VOCAB_SIZE)) as TokenId
            })
            .collect()
    }
}

impl Workload {
    /// Reads a workload: one JSON object a line, empty lines left out, in any order.
    ///
    /// # Errors
    /// The line that is not a request, and why.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut requests = Vec::new();
        for (line, number) in text.lines().zip(1..) {
            if line.trim().is_empty() {
                continue;
            }
            let request: SimulatedRequest =
                serde_json::from_str(line).map_err(|error| format!("line {number}: {error}"))?;
            check(&request, requests.len()).map_err(|why| format!("line {number}: {why}"))?;
            requests.push(request);
        }
        if requests.iter().all(|request| request.sibling_of.is_none()) {
            // Without references to places, the order of the lines need not be that of arrival.
            requests.sort_by_key(|request| request.step);
        }
        if !requests.is_sorted_by_key(|request| request.step) {
            return Err("requests with siblings must stand in the order of their steps".to_owned());
        }
        Ok(Self { requests })
    }
}

fn check(request: &SimulatedRequest, place: usize) -> Result<(), String> {
    if request.prompt_tokens == 0 {
        return Err("prompt_tokens is 0 and must be at least 1".to_owned());
    }
    if let Some(prompt) = &request.prompt
        && prompt.len() != request.prompt_tokens as usize
    {
        return Err(format!(
            "prompt has {} tokens, and prompt_tokens is {}",
            prompt.len(),
            request.prompt_tokens
        ));
    }
    if request.max_tokens() < request.output_tokens {
        return Err(format!(
            "max_tokens is {} and must be at least output_tokens, which is {}",
            request.max_tokens(),
            request.output_tokens
        ));
    }
    match request.sibling_of {
        Some(first) if first as usize >= place => Err(format!(
            "sibling_of is {first} and must name an earlier request"
        )),
        _ => Ok(()),
    }
}

mod priority_name {
    use policy_core::RequestPriority;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(
        priority: &RequestPriority,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(priority.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<RequestPriority, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}
