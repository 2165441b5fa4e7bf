//! A client of OpenAI's API over real sockets, for our server and for others.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use serde_json::{Map, Value, json};
use tokio::net::TcpStream;

use super::events::{Chunk, EventReader};
use super::prompts::Prompt;
use super::target::{Timeline, Work};
use crate::clock::{self, Moment};

/// How long a server may be silent.
const PATIENCE: Duration = Duration::from_secs(120);
/// The longest answer that is kept whole, in bytes: a server is not owed memory.
const LONGEST: usize = 16 << 20;
/// How much of a refusal is shown, in characters.
const SHOWN: usize = 300;

type Connection = SendRequest<Full<Bytes>>;

/// A server, and how requests to it are written.
#[derive(Debug)]
pub(super) struct HttpClient {
    authority: String,
    prefix: String,
    endpoint: String,
    /// The name of the model in requests.
    pub(super) model: String,
    /// Fields that every request has, over those that it would have.
    extra: Map<String, Value>,
    key: Option<String>,
    /// Connections that no request uses.
    idle: Mutex<Vec<Connection>>,
}

impl HttpClient {
    /// A client of the server at `url` (`http://host:port`, and maybe a path), whose completions or
    /// chat completions are at `endpoint`.
    ///
    /// # Errors
    /// A sentence about the address.
    pub(super) fn new(
        url: &str,
        endpoint: &str,
        extra: Map<String, Value>,
        key: Option<String>,
    ) -> Result<Self, String> {
        let uri: Uri = url
            .parse()
            .map_err(|error| format!("{url} is no address: {error}"))?;
        if uri.scheme_str().is_some_and(|scheme| scheme != "http") {
            return Err(format!("{url}: only http:// is spoken here"));
        }
        let host = uri.host().ok_or_else(|| format!("{url} names no host"))?;
        let path = uri.path().trim_end_matches('/');
        // Clients are given ".../v1" as the base, and the endpoint has it too.
        let prefix = match endpoint.starts_with("/v1/") {
            true => path.strip_suffix("/v1").unwrap_or(path),
            false => path,
        };
        Ok(Self {
            authority: format!("{host}:{}", uri.port_u16().unwrap_or(80)),
            prefix: prefix.to_owned(),
            endpoint: endpoint.to_owned(),
            model: String::new(),
            extra,
            key,
            idle: Mutex::default(),
        })
    }

    /// The name of the first model that the server lists.
    ///
    /// # Errors
    /// What the server said instead.
    pub(super) async fn first_model(&self) -> Result<String, String> {
        let request = self.request("GET", "/v1/models", Bytes::new())?;
        let mut connection = self.connect().await?;
        let answer = within(connection.send_request(request)).await?;
        let body = whole(checked(answer).await?.into_body()).await?;
        let json: Value = serde_json::from_slice(&body)
            .map_err(|error| format!("/v1/models is not JSON: {error}"))?;
        let id = json["data"][0]["id"].as_str();
        id.map(str::to_owned)
            .ok_or_else(|| "/v1/models lists no model".to_owned())
    }

    /// Sends a request and notes when its answer's parts come.
    ///
    /// # Errors
    /// What went wrong, in a sentence.
    pub(super) async fn send(
        &self,
        work: &Work,
        begun: Moment,
        timeline: &mut Timeline,
    ) -> Result<(), String> {
        let body = serde_json::to_vec(&self.body(work)).map_err(|error| error.to_string())?;
        let (connection, answer) = self.ask(body.into()).await?;
        let answer = checked(answer).await?;
        let streams = answer
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream"));
        let mut body = answer.into_body();
        if streams {
            hear(&mut body, begun, timeline).await?;
        } else {
            let data = whole(body).await?;
            timeline.take(&Chunk::read(&data), clock::now().since(begun))?;
        }
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push(connection);
        Ok(())
    }

    /// The request's fields. Those that are not OpenAI's (`ignore_eos`) are vLLM's and
    /// llama-server's.
    fn body(&self, work: &Work) -> Value {
        let mut body = json!({
            "model": self.model,
            "max_tokens": work.output_tokens,
            "temperature": 0.0,
            "ignore_eos": true,
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        match (&work.prompt, self.endpoint.ends_with("/chat/completions")) {
            (Prompt::Text(text), true) => {
                body["messages"] = json!([{"role": "user", "content": text}]);
            }
            (Prompt::Text(text), false) => body["prompt"] = json!(text),
            (Prompt::Ids(ids), _) => body["prompt"] = json!(ids),
        }
        for (name, value) in &self.extra {
            body[name] = value.clone();
        }
        body
    }

    fn request(
        &self,
        method: &str,
        path: &str,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, String> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.prefix))
            .header(HOST, &self.authority)
            .header(CONTENT_TYPE, "application/json");
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, format!("Bearer {key}"));
        }
        request
            .body(Full::new(body))
            .map_err(|error| error.to_string())
    }

    /// Asks on a connection that is free, or on a fresh one.
    async fn ask(&self, body: Bytes) -> Result<(Connection, Response<Incoming>), String> {
        let request = || self.request("POST", &self.endpoint, body.clone());
        if let Some(mut connection) = self.free().await {
            let waited = tokio::time::timeout(PATIENCE, connection.send_request(request()?)).await;
            // A server may close an idle connection while a request is on its way. No answer has
            // begun then, so the request is sent once more.
            if let Ok(answer) = waited.map_err(|_| silent())? {
                return Ok((connection, answer));
            }
        }
        let mut connection = self.connect().await?;
        let answer = within(connection.send_request(request()?)).await?;
        Ok((connection, answer))
    }

    /// A connection that no request uses and that the server is not known to have closed.
    async fn free(&self) -> Option<Connection> {
        loop {
            let mut connection = self
                .idle
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop()?;
            // One that the server has closed is never ready.
            if connection.ready().await.is_ok() {
                return Some(connection);
            }
        }
    }

    async fn connect(&self) -> Result<Connection, String> {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", self.authority);
        let socket = within(TcpStream::connect(&self.authority)).await?;
        socket.set_nodelay(true).map_err(|error| failed(&error))?;
        let opened = handshake(TokioIo::new(socket)).await;
        let (sender, connection) = opened.map_err(|error| failed(&error))?;
        tokio::spawn(connection);
        Ok(sender)
    }
}

impl Timeline {
    fn take(&mut self, chunk: &Chunk, now: Duration) -> Result<(), String> {
        if let Some(error) = &chunk.error {
            return Err(error.clone());
        }
        if chunk.text {
            self.tokens.push(now);
            self.output_tokens = self.output_tokens.max(self.tokens.len() as u64);
        }
        if let Some(tokens) = chunk.prompt_tokens {
            self.prompt_tokens = tokens;
        }
        if let Some(tokens) = chunk.completion_tokens {
            self.output_tokens = tokens;
        }
        Ok(())
    }
}

/// Reads a stream of events to its end.
async fn hear(body: &mut Incoming, begun: Moment, timeline: &mut Timeline) -> Result<(), String> {
    let mut reader = EventReader::default();
    let mut outcome = Ok(());
    while let Some(frame) = next(body).await? {
        let now = clock::now().since(begun);
        reader.push(&frame, |data| {
            let taken = timeline.take(&Chunk::read(data), now);
            if outcome.is_ok() {
                outcome = taken;
            }
        });
    }
    outcome
}

/// The next bytes of a body; `None` at its end.
async fn next(body: &mut Incoming) -> Result<Option<Bytes>, String> {
    let waited = tokio::time::timeout(PATIENCE, body.frame()).await;
    let frame = waited.map_err(|_| silent())?;
    match frame {
        None => Ok(None),
        Some(Ok(frame)) => Ok(Some(frame.into_data().unwrap_or_default())),
        Some(Err(error)) => Err(error.to_string()),
    }
}

/// A body that is no stream.
async fn whole(mut body: Incoming) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    while let Some(frame) = next(&mut body).await? {
        if bytes.len() + frame.len() > LONGEST {
            return Err(format!("the answer is longer than {LONGEST} bytes"));
        }
        bytes.extend_from_slice(&frame);
    }
    Ok(bytes)
}

/// The answer, if it is one.
async fn checked(answer: Response<Incoming>) -> Result<Response<Incoming>, String> {
    let status = answer.status();
    if status == StatusCode::OK {
        return Ok(answer);
    }
    let body = whole(answer.into_body()).await?;
    let text: String = String::from_utf8_lossy(&body).chars().take(SHOWN).collect();
    Err(format!("{status}: {}", text.trim()))
}

async fn within<T, E: std::fmt::Display>(
    future: impl Future<Output = Result<T, E>>,
) -> Result<T, String> {
    let waited = tokio::time::timeout(PATIENCE, future).await;
    waited
        .map_err(|_| silent())?
        .map_err(|error| error.to_string())
}

fn silent() -> String {
    format!("the server was silent for {} s", PATIENCE.as_secs())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    fn client(url: &str, endpoint: &str, extra: Value) -> Result<HttpClient, String> {
        let extra = extra.as_object().cloned().unwrap_or_default();
        HttpClient::new(url, endpoint, extra, None)
    }

    #[test]
    fn addresses_are_read_as_people_write_them() {
        let parts = |url: &str| {
            let client = client(url, "/v1/completions", Value::Null)?;
            Ok::<_, String>((client.authority, client.prefix))
        };
        let expected = |authority: &str, prefix: &str| Ok((authority.into(), prefix.into()));
        assert_eq!(parts("http://localhost:80/"), expected("localhost:80", ""));
        assert_eq!(parts("http://[::1]:8000/v1"), expected("[::1]:8000", ""));
        assert_eq!(parts("http://a/b/v1/"), expected("a:80", "/b"));
        assert!(parts("https://a").is_err());
        assert!(parts("not an address").is_err());
    }

    #[test]
    fn further_fields_replace_those_of_a_request() {
        let work = |prompt| Work {
            prompt,
            output_tokens: 9,
        };
        let extra = json!({"temperature": 0.5, "cache_prompt": false});
        let body = client("http://a", "/v1/completions", extra)
            .unwrap()
            .body(&work(Prompt::Ids(vec![1, 2])));
        assert_eq!(body["prompt"], json!([1, 2]));
        assert_eq!(
            (&body["temperature"], &body["cache_prompt"]),
            (&json!(0.5), &json!(false))
        );
        let chat = client("http://a", "/v1/chat/completions", Value::Null).unwrap();
        let body = chat.body(&work(Prompt::Text("hi".into())));
        assert_eq!(body["messages"][0]["content"], "hi");
        assert_eq!(body["max_tokens"], 9);
    }

    /// Reads one request.
    fn heard(socket: &mut std::net::TcpStream) {
        let (mut seen, mut part) = (Vec::new(), [0; 4096]);
        // Its body is a JSON object, whose last byte closes it.
        while !seen.ends_with(b"}") {
            let count = socket.read(&mut part).unwrap();
            assert!(count > 0, "a request is whole");
            seen.extend_from_slice(&part[..count]);
        }
    }

    fn answer(socket: &mut std::net::TcpStream, body: &[u8]) -> std::io::Result<()> {
        let length = body.len();
        write!(
            socket,
            "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n"
        )?;
        socket.write_all(body)
    }

    /// What becomes of requests, one after the other, to a server that a test plays.
    fn results(
        requests: usize,
        server: impl FnOnce(std::net::TcpListener) + Send + 'static,
    ) -> Vec<Result<(), String>> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || server(listener));
        let client = client(&url, "/v1/completions", Value::Null).unwrap();
        let work = Work {
            prompt: Prompt::Text("hi".into()),
            output_tokens: 1,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let results = runtime.block_on(async {
            let mut results = Vec::new();
            for _ in 0..requests {
                let mut timeline = Timeline::default();
                results.push(client.send(&work, clock::now(), &mut timeline).await);
            }
            results
        });
        drop((client, runtime));
        // After a failure it may wait for a request that nobody sends.
        if results.iter().all(Result::is_ok) {
            server.join().unwrap();
        }
        results
    }

    #[test]
    fn a_request_is_sent_again_where_an_idle_connection_was_closed() {
        let found = results(2, |listener| {
            let (mut first, _) = listener.accept().unwrap();
            heard(&mut first);
            answer(&mut first, b"{}").unwrap();
            heard(&mut first);
            drop(first);
            let (mut second, _) = listener.accept().unwrap();
            heard(&mut second);
            answer(&mut second, b"{}").unwrap();
        });
        assert_eq!(found, [Ok(()), Ok(())]);
    }

    #[test]
    fn a_request_is_sent_once_on_a_fresh_connection() {
        let found = results(1, |listener| {
            let (mut first, _) = listener.accept().unwrap();
            heard(&mut first);
        });
        assert!(found[0].is_err(), "{found:?}");
    }

    #[test]
    fn an_answer_without_an_end_is_refused() {
        let found = results(1, |listener| {
            let (mut first, _) = listener.accept().unwrap();
            heard(&mut first);
            // The client hangs up before the last byte.
            let _ = answer(&mut first, &vec![b' '; 2 * LONGEST]);
        });
        let expected = format!("the answer is longer than {LONGEST} bytes");
        assert_eq!(found, [Err(expected)]);
    }
}
