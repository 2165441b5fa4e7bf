//! The flags of the HTTP side: where it listens, who may call, what a client may take up.

use std::path::PathBuf;
use std::time::Duration;

use super::{ApiKeys, Cors, HttpLimits};

/// The flags of the HTTP side. Every limit is one, with its unit in its help.
#[derive(Clone, Debug, clap::Args)]
pub struct HttpArgs {
    /// The address to listen on
    #[arg(long, env = "LOCKSTEP_HOST", default_value = "127.0.0.1")]
    pub host: String,
    /// The port to listen on; 0 takes a free one
    #[arg(long, env = "LOCKSTEP_PORT", default_value_t = 8000)]
    pub port: u16,
    /// Listens on this Unix socket instead
    #[arg(long, env = "LOCKSTEP_UDS")]
    pub uds: Option<PathBuf>,
    /// A key that opens the API; may be given several times
    #[arg(
        long,
        env = "LOCKSTEP_API_KEY",
        value_delimiter = ',',
        hide_env_values = true
    )]
    pub api_key: Vec<String>,
    /// A file of such keys, one a line
    #[arg(long, env = "LOCKSTEP_API_KEY_FILE")]
    pub api_key_file: Option<PathBuf>,
    /// Origins whose pages may call, such as `https://example.org`, or `*` [default: none]
    #[arg(long, env = "LOCKSTEP_ALLOWED_ORIGINS", value_delimiter = ',')]
    pub allowed_origins: Vec<String>,
    /// Length of an answer whose request names none [default: what the context leaves]
    #[arg(long, env = "LOCKSTEP_DEFAULT_MAX_TOKENS")]
    pub default_max_tokens: Option<u32>,
    #[command(flatten)]
    times: TimeArgs,
    #[command(flatten)]
    sizes: SizeArgs,
}

#[derive(Clone, Debug, clap::Args)]
struct TimeArgs {
    /// Seconds that running requests may take after a request to shut down
    #[arg(long, env = "LOCKSTEP_DRAIN_TIMEOUT", default_value_t = 30)]
    drain_timeout: u64,
    /// Seconds from the door to the end of an answer whose request names no `timeout` [default: no limit]
    #[arg(long, env = "LOCKSTEP_REQUEST_TIMEOUT")]
    request_timeout: Option<u64>,
    /// Seconds from the door to the first seat, where the request names no `queue_timeout` [default: no limit]
    #[arg(long, env = "LOCKSTEP_QUEUE_TIMEOUT")]
    queue_timeout: Option<u64>,
    /// Seconds from the first byte of a request's head to its last
    #[arg(long, env = "LOCKSTEP_HTTP_HEADER_TIMEOUT", default_value_t = 10)]
    http_header_timeout: u64,
    /// Seconds that a connection may wait between requests
    #[arg(long, env = "LOCKSTEP_HTTP_IDLE_TIMEOUT", default_value_t = 75)]
    http_idle_timeout: u64,
    /// Seconds from the end of a request's head to the end of its body
    #[arg(long, env = "LOCKSTEP_HTTP_BODY_TIMEOUT", default_value_t = 60)]
    http_body_timeout: u64,
    /// Seconds after which a client that reads nothing counts as gone
    #[arg(long, env = "LOCKSTEP_HTTP_WRITE_TIMEOUT", default_value_t = 60)]
    http_write_timeout: u64,
    /// Seconds of silence after which a stream has a comment line
    #[arg(long, env = "LOCKSTEP_HTTP_KEEP_ALIVE_INTERVAL", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..))]
    http_keep_alive_interval: u64,
    /// Seconds that a resumable stream goes on, or is kept, while nobody reads it
    #[arg(long, env = "LOCKSTEP_RESUME_GRACE", default_value_t = 30)]
    resume_grace: u64,
}

#[derive(Clone, Debug, clap::Args)]
struct SizeArgs {
    /// Resumable streams that are kept
    #[arg(long, env = "LOCKSTEP_MAX_RESUMABLE_STREAMS", default_value_t = 256)]
    max_resumable_streams: usize,
    /// Connections served at a time
    #[arg(long, env = "LOCKSTEP_HTTP_MAX_CONNECTIONS", default_value_t = 4096)]
    http_max_connections: usize,
    /// Bytes of a request's body
    #[arg(long, env = "LOCKSTEP_HTTP_MAX_BODY_BYTES", default_value_t = 8 << 20)]
    http_max_body_bytes: usize,
    /// Bytes of a request's head, at least 8192
    #[arg(long, env = "LOCKSTEP_HTTP_MAX_HEADER_BYTES", default_value_t = 32 << 10)]
    http_max_header_bytes: usize,
    /// Header lines of a request
    #[arg(long, env = "LOCKSTEP_HTTP_MAX_HEADERS", default_value_t = 100)]
    http_max_headers: usize,
    /// Bytes of path and query
    #[arg(long, env = "LOCKSTEP_HTTP_MAX_URL_BYTES", default_value_t = 8 << 10)]
    http_max_url_bytes: usize,
    /// Nesting of a body, at most 120
    #[arg(long, env = "LOCKSTEP_MAX_JSON_DEPTH", default_value_t = 64)]
    max_json_depth: usize,
    /// Choices per prompt (`n`)
    #[arg(long, env = "LOCKSTEP_MAX_CHOICES", default_value_t = 16)]
    max_choices: u32,
    /// Prompts of one request
    #[arg(long, env = "LOCKSTEP_MAX_BATCH_PROMPTS", default_value_t = 256)]
    max_batch_prompts: usize,
    /// Prompts times choices of one request
    #[arg(long, env = "LOCKSTEP_MAX_BATCH_CHOICES", default_value_t = 256)]
    max_batch_choices: usize,
    /// Stop texts of a request
    #[arg(long, env = "LOCKSTEP_MAX_STOP", default_value_t = 16)]
    max_stop: usize,
    /// Bytes of a stop text or bad word
    #[arg(long, env = "LOCKSTEP_MAX_STOP_BYTES", default_value_t = 1024)]
    max_stop_bytes: usize,
    /// Alternatives per token in logprobs
    #[arg(long, env = "LOCKSTEP_MAX_LOGPROBS", default_value_t = 20)]
    max_logprobs: u32,
    /// Entries of `logit_bias`
    #[arg(long, env = "LOCKSTEP_MAX_LOGIT_BIAS", default_value_t = 1024)]
    max_logit_bias: usize,
    /// Entries of `bad_words`
    #[arg(long, env = "LOCKSTEP_MAX_BAD_WORDS", default_value_t = 256)]
    max_bad_words: usize,
    /// Messages of a conversation
    #[arg(long, env = "LOCKSTEP_MAX_MESSAGES", default_value_t = 4096)]
    max_messages: usize,
    /// Tools of a request
    #[arg(long, env = "LOCKSTEP_MAX_TOOLS", default_value_t = 128)]
    max_tools: usize,
    /// Bytes of a schema, grammar or regular expression
    #[arg(long, env = "LOCKSTEP_MAX_GRAMMAR_BYTES", default_value_t = 128 << 10)]
    max_grammar_bytes: usize,
}

impl HttpArgs {
    /// The limits, as the server takes them. What a limit cannot be is the nearest that it can.
    pub fn limits(&self) -> HttpLimits {
        let (times, sizes) = (&self.times, &self.sizes);
        HttpLimits {
            max_connections: sizes.http_max_connections,
            max_body_bytes: sizes.http_max_body_bytes,
            max_header_bytes: sizes.http_max_header_bytes.max(8192),
            max_headers: sizes.http_max_headers,
            max_url_bytes: sizes.http_max_url_bytes,
            header_timeout: Duration::from_secs(times.http_header_timeout),
            idle_timeout: Duration::from_secs(times.http_idle_timeout),
            body_timeout: Duration::from_secs(times.http_body_timeout),
            write_timeout: Duration::from_secs(times.http_write_timeout),
            keep_alive_interval: Duration::from_secs(times.http_keep_alive_interval),
            drain_timeout: Duration::from_secs(times.drain_timeout),
            request_timeout: times.request_timeout.map(Duration::from_secs),
            queue_timeout: times.queue_timeout.map(Duration::from_secs),
            // The parser itself recurses 128 deep at most.
            max_json_depth: sizes.max_json_depth.min(120),
            max_choices: sizes.max_choices.max(1),
            max_batch_prompts: sizes.max_batch_prompts,
            max_batch_choices: sizes.max_batch_choices,
            max_stop: sizes.max_stop,
            max_stop_bytes: sizes.max_stop_bytes,
            max_logprobs: sizes.max_logprobs,
            max_logit_bias: sizes.max_logit_bias,
            max_bad_words: sizes.max_bad_words,
            max_messages: sizes.max_messages,
            max_tools: sizes.max_tools,
            max_grammar_bytes: sizes.max_grammar_bytes,
            resume_grace: Duration::from_secs(times.resume_grace),
            max_resumable_streams: sizes.max_resumable_streams,
            default_max_tokens: self.default_max_tokens,
        }
    }

    /// The keys: of the flag or the environment, and of the file.
    ///
    /// # Errors
    /// A sentence that names the file where it cannot be read or holds no key.
    pub fn keys(&self) -> Result<ApiKeys, String> {
        let mut keys = ApiKeys::new(&self.api_key);
        if let Some(path) = &self.api_key_file {
            let text = std::fs::read_to_string(path).map_err(|error| {
                format!("cannot read --api-key-file {}: {error}", path.display())
            })?;
            let filed = ApiKeys::from_lines(&text);
            if !filed.required() {
                // An empty file must not open the API that it was meant to close.
                return Err(format!("--api-key-file {} holds no key", path.display()));
            }
            keys.merge(filed);
        }
        Ok(keys)
    }

    /// The origins that may call, if any.
    pub fn cors(&self) -> Option<Cors> {
        let origins = self.allowed_origins.clone();
        (!origins.is_empty()).then_some(Cors { origins })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        http: HttpArgs,
    }

    #[test]
    fn flags_default_to_the_default_limits() {
        let command = Command::parse_from(["lockstep"]);
        assert_eq!(command.http.limits(), HttpLimits::default());
        assert_eq!(command.http.cors(), None);
        let command = Command::parse_from([
            "lockstep",
            "--max-logprobs",
            "5",
            "--allowed-origins",
            "a,b",
        ]);
        assert_eq!(command.http.limits().max_logprobs, 5);
        assert_eq!(command.http.cors().unwrap().origins, ["a", "b"]);
    }

    #[test]
    fn keys_come_from_flag_and_file_and_an_empty_file_opens_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        std::fs::write(&path, "# none\n\n").unwrap();
        let parse = || {
            let file = path.to_str().unwrap();
            Command::parse_from(["lockstep", "--api-key", "a", "--api-key-file", file])
                .http
                .keys()
        };
        assert!(parse().is_err());
        std::fs::write(&path, "b\n").unwrap();
        assert_eq!(format!("{:?}", parse().unwrap()), "ApiKeys(2 hidden)");
    }
}
