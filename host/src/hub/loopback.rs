//! A server on the loopback interface that sends files, whole, in ranges, or not quite.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What is answered at a path.
#[derive(Clone, Debug)]
pub(super) enum Page {
    /// A file with an entity tag; ranges are honoured if the tag is the one asked for.
    File { body: Vec<u8>, etag: &'static str },
    /// The same file, but each connection ends after so many bytes of it.
    Broken {
        body: Vec<u8>,
        etag: &'static str,
        after: usize,
    },
    /// Another place.
    Redirect(String),
    /// Nothing but a status.
    Status(u16),
}

/// A request as it came: its path and its headers, names in lower case.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) path: String,
    pub(super) headers: BTreeMap<String, String>,
}

/// The server; it ends with the process of the test.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) address: String,
    pages: Arc<Mutex<BTreeMap<String, Page>>>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let server = Self {
            address,
            pages: Arc::default(),
            seen: Arc::default(),
        };
        let answering = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                answering.answer(stream);
            }
        });
        server
    }

    pub(super) fn put(&self, path: &str, page: Page) {
        self.pages
            .lock()
            .expect("no panic")
            .insert(path.into(), page);
    }

    /// The requests since the last call.
    pub(super) fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.seen.lock().expect("no panic"))
    }

    fn answer(&self, mut stream: TcpStream) {
        let Some(seen) = read_request(&stream) else {
            return;
        };
        let page = self
            .pages
            .lock()
            .expect("no panic")
            .get(&seen.path)
            .cloned();
        self.seen.lock().expect("no panic").push(seen.clone());
        let answer = match page.unwrap_or(Page::Status(404)) {
            Page::Status(status) => head(status, &[], 0),
            Page::Redirect(to) => head(302, &[("location", &to)], 0),
            Page::File { body, etag } => file(&seen, &body, etag, usize::MAX),
            Page::Broken { body, etag, after } => file(&seen, &body, etag, after),
        };
        // A client that has gone is no fault of the server.
        let _ = stream.write_all(&answer);
    }
}

fn read_request(stream: &TcpStream) -> Option<Seen> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next()?.ok()?;
    let path = first.split(' ').nth(1)?.to_string();
    let mut headers = BTreeMap::new();
    for line in lines
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty())
    {
        let (name, value) = line.split_once(':')?;
        headers.insert(name.to_lowercase(), value.trim().to_string());
    }
    Some(Seen { path, headers })
}

fn head(status: u16, headers: &[(&str, &str)], length: usize) -> Vec<u8> {
    let mut head =
        format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    (head + "\r\n").into_bytes()
}

fn file(seen: &Seen, body: &[u8], etag: &str, after: usize) -> Vec<u8> {
    let range = seen
        .headers
        .get("range")
        .filter(|_| seen.headers.get("if-range").is_none_or(|tag| tag == etag));
    let start = range.and_then(|range| {
        range
            .strip_prefix("bytes=")?
            .strip_suffix('-')?
            .parse::<usize>()
            .ok()
    });
    let total = body.len();
    let (status, start, span) = match start {
        Some(start) if start >= total => {
            return head(416, &[("content-range", &format!("bytes */{total}"))], 0);
        }
        Some(start) => (206, start, format!("bytes {start}-{}/{total}", total - 1)),
        None => (200, 0, String::new()),
    };
    let mut headers = vec![("etag", etag)];
    if status == 206 {
        headers.push(("content-range", &span));
    }
    let mut answer = head(status, &headers, total - start);
    answer.extend(body[start..].iter().take(after));
    answer
}
