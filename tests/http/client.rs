//! A small HTTP client that can also misbehave: it writes the bytes it is told to.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Nothing here takes this long; a test that would hang fails instead.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// A connection to the server under test.
pub(super) struct Connection {
    socket: TcpStream,
    buffer: Vec<u8>,
}

/// An answer's first part.
#[derive(Clone, Debug, Default)]
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
}

/// A whole answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Answer {
    pub(super) head: Head,
    pub(super) body: Vec<u8>,
}

impl Head {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let found = self
            .headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    fn chunked(&self) -> bool {
        self.header("transfer-encoding") == Some("chunked")
    }
}

impl Answer {
    pub(super) fn status(&self) -> u16 {
        self.head.status
    }

    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("answers are UTF-8")
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {:?}", String::from_utf8_lossy(&self.body)))
    }

    /// The data of each event of a stream.
    pub(super) fn events(&self) -> Vec<String> {
        let frames = self.text().split("\n\n").filter(|frame| !frame.is_empty());
        let data = frames.filter(|frame| !frame.starts_with(':'));
        data.map(|frame| {
            frame
                .strip_prefix("data: ")
                .expect("a data frame")
                .to_owned()
        })
        .collect()
    }

    /// The chunks of a stream that ended as it should.
    pub(super) fn chunks(&self) -> Vec<Value> {
        let mut events = self.events();
        assert_eq!(events.pop().as_deref(), Some("[DONE]"), "{}", self.text());
        let parse = |event: &String| serde_json::from_str(event).expect("a chunk is JSON");
        events.iter().map(parse).collect()
    }
}

impl Connection {
    pub(super) async fn open(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address)
            .await
            .expect("the server listens");
        Self {
            socket,
            buffer: Vec::new(),
        }
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.socket.write_all(bytes).await
    }

    /// Sends a request with a body of JSON.
    pub(super) async fn post(&mut self, path: &str, headers: &str, body: &str) {
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n{headers}\r\n{body}",
            body.len()
        );
        self.write(request.as_bytes())
            .await
            .expect("the request is taken");
    }

    /// Sends a request without a body.
    pub(super) async fn ask(&mut self, method: &str, path: &str, headers: &str) {
        let request = format!("{method} {path} HTTP/1.1\r\nhost: test\r\n{headers}\r\n");
        self.write(request.as_bytes())
            .await
            .expect("the request is taken");
    }

    /// More bytes from the server; `false` at the end.
    async fn fill(&mut self) -> io::Result<bool> {
        let read = self.socket.read_buf(&mut self.buffer);
        let read = tokio::time::timeout(PATIENCE, read)
            .await
            .expect("the server says something");
        Ok(read? > 0)
    }

    /// Whether the server has closed; whatever it says before is dropped.
    pub(super) async fn closed(&mut self) -> bool {
        while self.fill().await.unwrap_or(false) {}
        true
    }

    async fn until(&mut self, pattern: &[u8]) -> io::Result<Vec<u8>> {
        loop {
            let found = self
                .buffer
                .windows(pattern.len())
                .position(|window| window == pattern);
            if let Some(at) = found {
                let rest = self.buffer.split_off(at + pattern.len());
                let mut part = std::mem::replace(&mut self.buffer, rest);
                part.truncate(at);
                return Ok(part);
            }
            if !self.fill().await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    async fn exactly(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() < length {
            if !self.fill().await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let rest = self.buffer.split_off(length);
        Ok(std::mem::replace(&mut self.buffer, rest))
    }

    /// The head of the next answer.
    pub(super) async fn head(&mut self) -> io::Result<Head> {
        let text = String::from_utf8(self.until(b"\r\n\r\n").await?).expect("heads are ASCII");
        let mut lines = text.split("\r\n");
        let status = lines
            .next()
            .and_then(|line| line.split(' ').nth(1))
            .expect("a status");
        let header = |line: &str| {
            let (name, value) = line.split_once(": ").expect("a header");
            (name.to_owned(), value.to_owned())
        };
        Ok(Head {
            status: status.parse().expect("a number"),
            headers: lines.map(header).collect(),
        })
    }

    /// The next chunk of a chunked body; empty at its end.
    pub(super) async fn chunk(&mut self) -> io::Result<Vec<u8>> {
        let size = self.until(b"\r\n").await?;
        let size = std::str::from_utf8(&size).expect("a size");
        let size = usize::from_str_radix(size, 16).expect("a hexadecimal size");
        let chunk = self.exactly(size).await?;
        self.until(b"\r\n").await?;
        Ok(chunk)
    }

    /// The next answer, whole.
    pub(super) async fn answer(&mut self) -> Answer {
        self.answer_to("GET").await
    }

    /// The next answer, to a request with this method.
    pub(super) async fn answer_to(&mut self, method: &str) -> Answer {
        self.try_answer(method).await.expect("a whole answer")
    }

    pub(super) async fn try_answer(&mut self, method: &str) -> io::Result<Answer> {
        let head = self.head().await?;
        let mut body = Vec::new();
        if head.chunked() {
            loop {
                let chunk = self.chunk().await?;
                if chunk.is_empty() {
                    break;
                }
                body.extend(chunk);
            }
        } else if method != "HEAD" && head.status != 204 {
            let length = head
                .header("content-length")
                .map_or(0, |l| l.parse().expect("a length"));
            body = self.exactly(length).await?;
        }
        Ok(Answer { head, body })
    }
}

/// One request on a connection of its own.
pub(super) async fn post(address: SocketAddr, path: &str, body: &Value) -> Answer {
    post_with(address, path, "", &body.to_string()).await
}

/// The same with further headers, each ended by a line break, and a body as it is.
pub(super) async fn post_with(
    address: SocketAddr,
    path: &str,
    headers: &str,
    body: &str,
) -> Answer {
    let mut connection = Connection::open(address).await;
    connection.post(path, headers, body).await;
    connection.answer().await
}

/// One request without a body.
pub(super) async fn ask(address: SocketAddr, method: &str, path: &str, headers: &str) -> Answer {
    let mut connection = Connection::open(address).await;
    connection.ask(method, path, headers).await;
    connection.answer_to(method).await
}

/// `GET`.
pub(super) async fn get(address: SocketAddr, path: &str) -> Answer {
    ask(address, "GET", path, "").await
}
