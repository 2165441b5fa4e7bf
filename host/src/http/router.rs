//! Path and method to handler; what every answer has in common.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hyper::body::Incoming;
use hyper::header::{EXPECT, HeaderValue};
use hyper::{Method, Request, StatusCode};

use super::account::{Guard, label_of};
use super::body::Reply;
use super::call::Call;
use super::connection::Phase;
use super::error::ApiError;
use super::server::Server;
use super::wire::Bounds;
use super::{chat, completions, debug, models, ops, probes, responses, resumable, tokenize};
use crate::metrics::Metrics;

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Route {
    Health,
    Live,
    Ready,
    Version,
    Metrics,
    OpenApi,
    ServerInfo,
    Load,
    Loads,
    Models,
    Model(String),
    TokenizerInfo,
    Streams,
    DebugRequest(String),
    DebugPreemptions,
    Chat,
    Completions,
    Responses,
    RenderChat,
    RenderCompletion,
    Tokenize,
    Detokenize,
    Abort,
}

impl Route {
    fn find(path: &str) -> Option<Self> {
        Some(match path {
            "/health" => Self::Health,
            "/live" => Self::Live,
            "/ready" => Self::Ready,
            "/version" => Self::Version,
            "/metrics" => Self::Metrics,
            "/openapi.json" => Self::OpenApi,
            "/server_info" => Self::ServerInfo,
            "/load" => Self::Load,
            "/v1/loads" => Self::Loads,
            "/v1/models" => Self::Models,
            "/tokenizer_info" => Self::TokenizerInfo,
            "/v1/streams" => Self::Streams,
            "/debug/preemptions" => Self::DebugPreemptions,
            "/v1/chat/completions" => Self::Chat,
            "/v1/completions" => Self::Completions,
            "/v1/responses" => Self::Responses,
            "/v1/chat/completions/render" => Self::RenderChat,
            "/v1/completions/render" => Self::RenderCompletion,
            "/tokenize" => Self::Tokenize,
            "/detokenize" => Self::Detokenize,
            "/abort" => Self::Abort,
            _ => return Self::find_with_name(path),
        })
    }

    /// Names may hold slashes, as they are or encoded.
    fn find_with_name(path: &str) -> Option<Self> {
        if let Some(name) = path.strip_prefix("/v1/models/") {
            return Some(Self::Model(percent_decode(name)?));
        }
        let id = path.strip_prefix("/debug/requests/")?;
        Some(Self::DebugRequest(percent_decode(id)?))
    }

    /// What the log calls it.
    fn name(&self) -> &'static str {
        match self {
            Self::Health => "health",
            Self::Live => "live",
            Self::Ready => "ready",
            Self::Version => "version",
            Self::Metrics => "metrics",
            Self::OpenApi => "openapi",
            Self::ServerInfo => "server_info",
            Self::Load => "load",
            Self::Loads => "loads",
            Self::Models => "models",
            Self::Model(_) => "model",
            Self::TokenizerInfo => "tokenizer_info",
            Self::Streams => "streams",
            Self::DebugRequest(_) => "debug_request",
            Self::DebugPreemptions => "debug_preemptions",
            Self::Chat => "chat_completions",
            Self::Completions => "completions",
            Self::Responses => "responses",
            Self::RenderChat => "render_chat",
            Self::RenderCompletion => "render_completion",
            Self::Tokenize => "tokenize",
            Self::Detokenize => "detokenize",
            Self::Abort => "abort",
        }
    }

    fn posted(&self) -> bool {
        matches!(
            self,
            Self::Chat
                | Self::Completions
                | Self::Responses
                | Self::RenderChat
                | Self::RenderCompletion
                | Self::Tokenize
                | Self::Detokenize
                | Self::Abort
        )
    }

    /// Probes and metrics need no key: those who ask them have none.
    fn public(&self) -> bool {
        matches!(
            self,
            Self::Health | Self::Live | Self::Ready | Self::Version | Self::Metrics | Self::OpenApi
        )
    }

    fn check_method(&self, method: &Method) -> Result<(), ApiError> {
        let (fits, allow) = if self.posted() {
            (method == Method::POST, "POST")
        } else {
            (method == Method::GET || method == Method::HEAD, "GET, HEAD")
        };
        if fits {
            return Ok(());
        }
        let message = format!("this path takes {allow} only");
        let mut error = ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message);
        error.allow = Some(allow);
        Err(error.code("method_not_allowed"))
    }
}

/// Answers a request. Whatever happens, there is an answer in the API's shape, with the request's
/// id, and one line in the log.
pub(super) async fn answer(server: Arc<Server>, phase: Phase, request: Request<Incoming>) -> Reply {
    let _counted = Counted::new(&server.app.metrics);
    let label = label_of(request.headers()).unwrap_or_else(|| server.ids.next_id("req-"));
    let route = Route::find(request.uri().path());
    let name = route.as_ref().map_or("unknown", Route::name);
    let mut guard = Guard::new(&label, name, phase);
    let asked = request.headers().clone();
    let account = guard.account();
    let call = Call::new(Arc::clone(&server), request, label.clone(), account);
    let answered = dispatch(call, route).await;
    let mut reply = answered.unwrap_or_else(|error| error.reply());
    if let Ok(value) = HeaderValue::from_str(&label) {
        reply.headers_mut().insert("x-request-id", value);
    }
    if let Some(cors) = &server.app.cors {
        cors.mark(&asked, reply.headers_mut());
    }
    let status = reply.status().as_u16();
    server.app.metrics.responded(status);
    guard.status(status);
    reply.map(|body| body.guarded(guard))
}

async fn dispatch(call: Call, route: Option<Route>) -> Result<Reply, ApiError> {
    let server = Arc::clone(&call.server);
    let app = &server.app;
    check_url(&call, app.limits.max_url_bytes)?;
    check_expectation(&call)?;
    let route = route.ok_or_else(|| {
        ApiError::new(StatusCode::NOT_FOUND, "there is nothing at this path").code("not_found")
    })?;
    if call.method == Method::OPTIONS
        && let Some(cors) = &app.cors
    {
        return Ok(cors.preflight());
    }
    route.check_method(&call.method)?;
    if !route.public() {
        app.keys.check(&call.headers)?;
    }
    match route {
        Route::Health => probes::health(&server),
        Route::Live => probes::live(),
        Route::Ready => probes::ready(&server),
        Route::Version => probes::version(&server),
        Route::Metrics => probes::metrics(&server),
        Route::OpenApi => probes::openapi(),
        Route::ServerInfo => probes::server_info(&server),
        Route::Load => probes::load(&server),
        Route::Loads => probes::loads(&server),
        Route::Models => models::list(&server),
        Route::Model(name) => models::one(&server, &name),
        Route::TokenizerInfo => tokenize::info(&server),
        Route::Streams => resumable::resume(&server, &call.headers),
        Route::DebugRequest(id) => debug::request(&server, &id),
        Route::DebugPreemptions => debug::preemptions(&server),
        Route::Chat => chat::answer(call).await,
        Route::Completions => completions::answer(call).await,
        Route::Responses => responses::answer(call).await,
        Route::RenderChat => tokenize::render_chat(call).await,
        Route::RenderCompletion => tokenize::render_completion(call).await,
        Route::Tokenize => tokenize::tokenize(call).await,
        Route::Detokenize => tokenize::detokenize(call).await,
        Route::Abort => ops::abort(call).await,
    }
}

fn check_url(call: &Call, max: usize) -> Result<(), ApiError> {
    let bytes = call
        .uri
        .path_and_query()
        .map_or(0, |whole| whole.as_str().len());
    if bytes <= max {
        return Ok(());
    }
    let message = format!("the URL has {bytes} bytes; the limit is {max}");
    Err(ApiError::new(StatusCode::URI_TOO_LONG, message).code("url_too_long"))
}

/// The one expectation that there is, to be asked for the body, is met by reading it.
fn check_expectation(call: &Call) -> Result<(), ApiError> {
    let met = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    if call.headers.get_all(EXPECT).iter().all(met) {
        return Ok(());
    }
    let message = "the header Expect must be 100-continue or absent";
    Err(ApiError::new(StatusCode::EXPECTATION_FAILED, message).code("expectation_failed"))
}

fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        rest = after;
        let digits = std::str::from_utf8(digits).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
    }
    String::from_utf8(bytes).ok()
}

/// Counts a call as being answered until its handler is done.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(metrics: &'a Metrics) -> Self {
        metrics.in_flight().fetch_add(1, Ordering::Relaxed);
        Self(metrics.in_flight())
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Server {
    /// What decides an answer beside its request, the day among it where the template reads it.
    pub(super) fn fingerprint(&self) -> String {
        let own = &self.app.model.fingerprint;
        match self.app.text.day() {
            Some(day) => format!("{own}-{day}"),
            None => own.clone(),
        }
    }

    /// What bodies are read against.
    pub(super) fn bounds(&self) -> Bounds<'_> {
        let door = self.app.intake.limits();
        Bounds {
            limits: &self.app.limits,
            vocab_size: door.vocab_size,
            max_model_len: door.max_model_len,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_paths_are_decoded() {
        let model = |name: &str| Some(Route::Model(name.into()));
        assert_eq!(Route::find("/v1/models/a%2Fb"), model("a/b"));
        assert_eq!(Route::find("/v1/models/a/b"), model("a/b"));
        assert_eq!(Route::find("/v1/models/%C3%A9"), model("é"));
        for path in [
            "/v1/models/%",
            "/v1/models/%2",
            "/v1/models/%zz",
            "/v1/models/%ff",
            "/v1",
            "",
            "*",
        ] {
            assert_eq!(Route::find(path), None, "{path}");
        }
    }

    #[test]
    fn every_path_is_described_with_its_methods() {
        let description: serde_json::Value = serde_json::from_str(probes::OPENAPI).unwrap();
        let paths = description["paths"].as_object().unwrap();
        let own: Vec<&str> = include_str!("router.rs")
            .lines()
            .filter_map(|line| line.trim().strip_prefix("\"/")?.split_once("\" => Self::"))
            .map(|(path, _)| path)
            .collect();
        assert!(own.len() >= 20, "the table of paths has been found");
        for path in &own {
            assert!(
                paths.contains_key(&format!("/{path}")),
                "/{path} is not described"
            );
        }
        for (path, methods) in paths {
            let route = Route::find(&path.replace(['{', '}'], "")).expect(path);
            let methods: Vec<&str> = methods
                .as_object()
                .unwrap()
                .keys()
                .map(String::as_str)
                .collect();
            let expected = if route.posted() {
                vec!["post"]
            } else {
                vec!["get", "head"]
            };
            assert_eq!(methods, expected, "{path}");
            assert_eq!(
                description["paths"][path][methods[0]]["security"].is_array(),
                route.public()
            );
        }
    }
}
