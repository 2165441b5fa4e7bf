//! Every bound of the HTTP side, each a number with a unit and a default.

use std::time::Duration;

/// What a client may take up. Whatever is over a bound is refused before anything is allocated
/// for it.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpLimits {
    /// Connections served at a time; one more is told 503 and closed.
    pub max_connections: usize,
    /// Bytes of a request's body: 413 above.
    pub max_body_bytes: usize,
    /// Bytes of all bodies together, from their arrival until the engine has their requests: 503
    /// above.
    pub max_bodies_bytes: usize,
    /// Bytes of a request's head, its first line included: 431 above. At least 8192.
    pub max_header_bytes: usize,
    /// Header lines of a request: 431 above.
    pub max_headers: usize,
    /// Bytes of path and query: 414 above.
    pub max_url_bytes: usize,
    /// From the first byte of a head to its last.
    pub header_timeout: Duration,
    /// How long a connection may wait between requests.
    pub idle_timeout: Duration,
    /// From the end of the head to the end of the body: 408 after.
    pub body_timeout: Duration,
    /// How long a client may take no byte that is ready for it before it counts as gone.
    pub write_timeout: Duration,
    /// Silence in a stream after which a comment line is sent.
    pub keep_alive_interval: Duration,
    /// How long running requests may go on once shutdown was asked for.
    pub drain_timeout: Duration,
    /// From the door to the end of an answer whose request names no `timeout`; `None` is for ever.
    pub request_timeout: Option<Duration>,
    /// From the door to the first seat, where the request names no `queue_timeout`.
    pub queue_timeout: Option<Duration>,
    /// Nesting of arrays and objects in a body.
    pub max_json_depth: usize,
    /// `n`: choices per prompt.
    pub max_choices: u32,
    /// Prompts of one completions request.
    pub max_batch_prompts: usize,
    /// Prompts times `n` of one request.
    pub max_batch_choices: usize,
    /// Stop texts of a request; as many stop tokens as 16 times this.
    pub max_stop: usize,
    /// Bytes of one stop text or bad word.
    pub max_stop_bytes: usize,
    /// `logprobs`, `top_logprobs` and `prompt_logprobs`: alternatives per token.
    pub max_logprobs: u32,
    /// Entries of `logit_bias`.
    pub max_logit_bias: usize,
    /// Entries of `bad_words`.
    pub max_bad_words: usize,
    /// Messages of a conversation.
    pub max_messages: usize,
    /// Tools of a request.
    pub max_tools: usize,
    /// Bytes of a constraint: schema, regular expression, choices or grammar.
    pub max_grammar_bytes: usize,
    /// How long a resumable stream goes on, or is kept, while nobody reads it.
    pub resume_grace: Duration,
    /// Resumable streams that are kept: 429 above.
    pub max_resumable_streams: usize,
    /// Length of an answer whose request names none; `None` is what the context leaves.
    pub default_max_tokens: Option<u32>,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            max_connections: 4096,
            max_body_bytes: 8 << 20,
            max_bodies_bytes: 256 << 20,
            max_header_bytes: 32 << 10,
            max_headers: 100,
            max_url_bytes: 8 << 10,
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            body_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(60),
            keep_alive_interval: Duration::from_secs(15),
            drain_timeout: Duration::from_secs(30),
            request_timeout: None,
            queue_timeout: None,
            max_json_depth: 64,
            max_choices: 16,
            max_batch_prompts: 256,
            max_batch_choices: 256,
            max_stop: 16,
            max_stop_bytes: 1024,
            max_logprobs: 20,
            max_logit_bias: 1024,
            max_bad_words: 256,
            max_messages: 4096,
            max_tools: 128,
            max_grammar_bytes: 128 << 10,
            resume_grace: Duration::from_secs(30),
            max_resumable_streams: 256,
            default_max_tokens: None,
        }
    }
}
