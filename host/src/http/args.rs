//! The flags of the HTTP side: where it listens, who may call, what a client may take up.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{RangedU64ValueParser, TypedValueParser};

use super::{ApiKeys, Cors, HttpLimits, Tls, TlsError};

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
    /// The certificate to show to clients, or a chain of them, in PEM form: serves over TLS
    #[arg(
        long,
        env = "LOCKSTEP_TLS_CERT",
        requires = "tls_key",
        conflicts_with = "uds"
    )]
    pub tls_cert: Option<PathBuf>,
    /// Its key, in PEM form
    #[arg(long, env = "LOCKSTEP_TLS_KEY", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
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
    #[arg(long, env = "LOCKSTEP_DEFAULT_MAX_TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    pub default_max_tokens: Option<u32>,
    #[command(flatten)]
    times: TimeArgs,
    #[command(flatten)]
    sizes: SizeArgs,
}

#[derive(Clone, Debug, clap::Args)]
struct TimeArgs {
    /// Seconds that running requests may take after a request to shut down
    #[arg(long, env = "LOCKSTEP_DRAIN_TIMEOUT", default_value_t = 30, value_parser = seconds(0))]
    drain_timeout: u64,
    /// Seconds from the door to the end of an answer whose request names no `timeout` [default: no limit]
    #[arg(long, env = "LOCKSTEP_REQUEST_TIMEOUT", value_parser = seconds(1))]
    request_timeout: Option<u64>,
    /// Seconds from the door to the first seat, where the request names no `queue_timeout` [default: no limit]
    #[arg(long, env = "LOCKSTEP_QUEUE_TIMEOUT", value_parser = seconds(1))]
    queue_timeout: Option<u64>,
    /// Seconds from the first byte of a request's head to its last
    #[arg(long, env = "LOCKSTEP_HTTP_HEADER_TIMEOUT", default_value_t = 10, value_parser = seconds(1))]
    http_header_timeout: u64,
    /// Seconds that a connection may wait between requests
    #[arg(long, env = "LOCKSTEP_HTTP_IDLE_TIMEOUT", default_value_t = 75, value_parser = seconds(1))]
    http_idle_timeout: u64,
    /// Seconds from the end of a request's head to the end of its body
    #[arg(long, env = "LOCKSTEP_HTTP_BODY_TIMEOUT", default_value_t = 60, value_parser = seconds(1))]
    http_body_timeout: u64,
    /// Seconds after which a client that reads nothing counts as gone
    #[arg(long, env = "LOCKSTEP_HTTP_WRITE_TIMEOUT", default_value_t = 60, value_parser = seconds(1))]
    http_write_timeout: u64,
    /// Seconds of silence after which a stream has a comment line
    #[arg(long, env = "LOCKSTEP_HTTP_KEEP_ALIVE_INTERVAL", default_value_t = 15, value_parser = seconds(1))]
    http_keep_alive_interval: u64,
    /// Seconds that a resumable stream goes on, or is kept, while nobody reads it
    #[arg(long, env = "LOCKSTEP_RESUME_GRACE", default_value_t = 30, value_parser = seconds(1))]
    resume_grace: u64,
}

#[derive(Clone, Debug, clap::Args)]
struct SizeArgs {
    /// Resumable streams that are kept
    #[arg(long, env = "LOCKSTEP_MAX_RESUMABLE_STREAMS", default_value_t = 256, value_parser = size(0, 1_000_000))]
    max_resumable_streams: usize,
    /// Connections served at a time
    #[arg(long, env = "LOCKSTEP_HTTP_MAX_CONNECTIONS", default_value_t = 4096, value_parser = size(1, 1_000_000))]
    http_max_connections: usize,
    /// Bytes of a request's body
    #[arg(long, env = "LOCKSTEP_HTTP_MAX_BODY_BYTES", default_value_t = 8 << 20, value_parser = size(1024, 1 << 30))]
    http_max_body_bytes: usize,
    /// Bytes of the bodies of all requests together
    #[arg(long, env = "LOCKSTEP_HTTP_MAX_BODIES_BYTES", default_value_t = 256 << 20, value_parser = size(1024, 1 << 40))]
    http_max_bodies_bytes: usize,
    /// Bytes of a request's head, at least 8192
    #[arg(long, env = "LOCKSTEP_HTTP_MAX_HEADER_BYTES", default_value_t = 32 << 10, value_parser = size(8192, 1 << 24))]
    http_max_header_bytes: usize,
    /// Header lines of a request
    #[arg(long, env = "LOCKSTEP_HTTP_MAX_HEADERS", default_value_t = 100, value_parser = size(16, 10_000))]
    http_max_headers: usize,
    /// Bytes of path and query
    #[arg(long, env = "LOCKSTEP_HTTP_MAX_URL_BYTES", default_value_t = 8 << 10, value_parser = size(256, 65_534))]
    http_max_url_bytes: usize,
    /// Nesting of a body, at most 120 (the parser itself recurses 128 deep)
    #[arg(long, env = "LOCKSTEP_MAX_JSON_DEPTH", default_value_t = 64, value_parser = size(4, 120))]
    max_json_depth: usize,
    /// Choices per prompt (`n`)
    #[arg(long, env = "LOCKSTEP_MAX_CHOICES", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    max_choices: u32,
    /// Prompts of one request
    #[arg(long, env = "LOCKSTEP_MAX_BATCH_PROMPTS", default_value_t = 256, value_parser = size(1, 1_000_000))]
    max_batch_prompts: usize,
    /// Prompts times choices of one request
    #[arg(long, env = "LOCKSTEP_MAX_BATCH_CHOICES", default_value_t = 256, value_parser = size(1, 1_000_000))]
    max_batch_choices: usize,
    /// Stop texts of a request
    #[arg(long, env = "LOCKSTEP_MAX_STOP", default_value_t = 16, value_parser = size(0, 10_000))]
    max_stop: usize,
    /// Bytes of a stop text or bad word
    #[arg(long, env = "LOCKSTEP_MAX_STOP_BYTES", default_value_t = 1024, value_parser = size(1, 1 << 20))]
    max_stop_bytes: usize,
    /// Alternatives per token in logprobs
    #[arg(long, env = "LOCKSTEP_MAX_LOGPROBS", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    max_logprobs: u32,
    /// Entries of `logit_bias`
    #[arg(long, env = "LOCKSTEP_MAX_LOGIT_BIAS", default_value_t = 1024, value_parser = size(0, 1_000_000))]
    max_logit_bias: usize,
    /// Entries of `bad_words`
    #[arg(long, env = "LOCKSTEP_MAX_BAD_WORDS", default_value_t = 256, value_parser = size(0, 100_000))]
    max_bad_words: usize,
    /// Messages of a conversation
    #[arg(long, env = "LOCKSTEP_MAX_MESSAGES", default_value_t = 4096, value_parser = size(1, 1_000_000))]
    max_messages: usize,
    /// Tools of a request
    #[arg(long, env = "LOCKSTEP_MAX_TOOLS", default_value_t = 128, value_parser = size(0, 100_000))]
    max_tools: usize,
    /// Bytes of a schema, grammar or regular expression
    #[arg(long, env = "LOCKSTEP_MAX_GRAMMAR_BYTES", default_value_t = 128 << 10, value_parser = size(0, 1 << 26))]
    max_grammar_bytes: usize,
}

/// A number of seconds from `least` up to a day.
fn seconds(least: u64) -> impl TypedValueParser<Value = u64> {
    RangedU64ValueParser::<u64>::new().range(least..=86_400)
}

/// A count or a number of bytes in a range.
fn size(least: u64, most: u64) -> impl TypedValueParser<Value = usize> {
    RangedU64ValueParser::<usize>::new().range(least..=most)
}

impl HttpArgs {
    /// Whether the limits fit each other, and the model's context.
    ///
    /// # Errors
    /// A sentence with the flag, its value and what it must be.
    pub fn check(&self, max_model_len: u32) -> Result<(), String> {
        let (one, all) = (
            self.sizes.http_max_body_bytes,
            self.sizes.http_max_bodies_bytes,
        );
        if all < one {
            return Err(format!(
                "--http-max-bodies-bytes is {all} and must be at least --http-max-body-bytes, which is {one}"
            ));
        }
        match self.default_max_tokens {
            Some(tokens) if tokens >= max_model_len => Err(format!(
                "--default-max-tokens is {tokens} and must be below the context of {max_model_len} tokens"
            )),
            _ => Ok(()),
        }
    }

    /// The limits, as the server takes them.
    pub fn limits(&self) -> HttpLimits {
        let (times, sizes) = (&self.times, &self.sizes);
        HttpLimits {
            max_connections: sizes.http_max_connections,
            max_body_bytes: sizes.http_max_body_bytes,
            max_bodies_bytes: sizes.http_max_bodies_bytes,
            max_header_bytes: sizes.http_max_header_bytes,
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
            max_json_depth: sizes.max_json_depth,
            max_choices: sizes.max_choices,
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

    /// The certificate and its key, if there are any.
    ///
    /// # Errors
    /// A [`TlsError`] that names the file at fault.
    pub fn tls(&self) -> Result<Option<Tls>, TlsError> {
        match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => Tls::load(cert, key).map(Some),
            _ => Ok(None),
        }
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
    fn nonsense_is_refused_with_flag_value_and_limit() {
        let zeros = [
            "--http-max-connections",
            "--max-json-depth",
            "--http-max-body-bytes",
            "--http-max-bodies-bytes",
            "--http-max-header-bytes",
            "--http-max-headers",
            "--http-max-url-bytes",
            "--http-header-timeout",
            "--http-idle-timeout",
            "--http-body-timeout",
            "--http-write-timeout",
            "--http-keep-alive-interval",
            "--request-timeout",
            "--queue-timeout",
            "--resume-grace",
            "--default-max-tokens",
            "--max-choices",
            "--max-batch-prompts",
            "--max-batch-choices",
            "--max-stop-bytes",
            "--max-messages",
        ];
        let cases = zeros.map(|flag| (flag, "0"));
        let more = [
            ("--max-json-depth", "121"),
            ("--http-idle-timeout", "86401"),
            ("--http-max-connections", "99999999999999999999"),
            ("--max-logprobs", "many"),
        ];
        for (flag, value) in cases.into_iter().chain(more) {
            let refused = Command::try_parse_from(["lockstep", flag, value]).err();
            let told = refused.expect(flag).to_string();
            assert!(told.contains(flag) && told.contains(value), "{told}");
        }
    }

    #[test]
    fn limits_that_do_not_fit_each_other_are_refused() {
        let check = |arguments: &[&str]| {
            let command = Command::parse_from(["lockstep"].iter().chain(arguments));
            command.http.check(1000)
        };
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&["--default-max-tokens", "999"]), Ok(()));
        let told = check(&["--default-max-tokens", "1000"]).unwrap_err();
        assert!(told.contains("--default-max-tokens is 1000"), "{told}");
        let told = check(&["--http-max-bodies-bytes", "2048"]).unwrap_err();
        assert!(told.contains("--http-max-bodies-bytes is 2048"), "{told}");
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
