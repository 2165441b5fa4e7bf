//! One file over HTTP, resumed where an earlier attempt broke off.
//!
//! The client is `ureq` over `rustls` (its `ring` provider, Mozilla's roots): small, blocking, and
//! without a system library. What has come stands in a `.part` file beside the target; what it
//! is a part of (the address and its entity tag) stands in a `.part.json` file beside that.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use ureq::http::{Response, StatusCode, header};
use ureq::{Agent, Body};

use super::{HubError, progress};

/// How long a connection may take to come about, the search for the name included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a server may say nothing.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a transfer that broke off is taken up again.
const ATTEMPTS: u32 = 4;
/// The longest JSON answer that is read.
const MAX_JSON_BYTES: u64 = 16 << 20;

/// What is fetched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Download<'a> {
    /// The address.
    pub(super) url: &'a str,
    /// A bearer token; it is not passed on when the server redirects.
    pub(super) token: Option<&'a str>,
    /// The file's size, if it is known.
    pub(super) bytes: Option<u64>,
}

/// What a `.part` file is a part of.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PartOf {
    url: String,
    etag: String,
}

/// A client with short patience.
pub(super) fn agent() -> Agent {
    Agent::config_builder()
        .user_agent(concat!("lockstep/", env!("CARGO_PKG_VERSION")))
        .http_status_as_error(false)
        .timeout_resolve(Some(CONNECT_TIMEOUT))
        .timeout_connect(Some(CONNECT_TIMEOUT))
        .timeout_recv_response(Some(READ_TIMEOUT))
        .timeout_per_read(Some(READ_TIMEOUT))
        .build()
        .new_agent()
}

/// The JSON document at `url`.
pub(super) fn json(url: &str, token: Option<&str>) -> Result<serde_json::Value, HubError> {
    let failed = transport(url);
    let mut request = agent().get(url);
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let mut response = request.call().map_err(&failed)?;
    refuse_status(url, &response)?;
    let body = response
        .body_mut()
        .with_config()
        .limit(MAX_JSON_BYTES)
        .read_to_vec();
    let bad = |error: serde_json::Error| bad_answer(url, error.to_string());
    serde_json::from_slice(&body.map_err(&failed)?).map_err(bad)
}

fn transport(url: &str) -> impl Fn(ureq::Error) -> HubError {
    move |error| HubError::Transport {
        url: url.into(),
        message: error.to_string(),
    }
}

fn bad_answer(url: &str, message: impl Into<String>) -> HubError {
    HubError::BadAnswer {
        url: url.into(),
        message: message.into(),
    }
}

fn refuse_status(url: &str, response: &Response<Body>) -> Result<(), HubError> {
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    Err(HubError::Status {
        url: url.into(),
        status: status.as_u16(),
    })
}

impl Download<'_> {
    /// Fetches the file into `part`, going on from what is there.
    ///
    /// Whatever the outcome, what has come stays in `part`, for the next attempt.
    pub(super) fn run(&self, part: &Path) -> Result<(), HubError> {
        let mut attempts = 1;
        loop {
            let before = length(part);
            match self.attempt(part) {
                // A server that gives nothing is not asked again: another source may be better.
                Err(error @ HubError::Transport { .. })
                    if attempts < ATTEMPTS && length(part) != before =>
                {
                    attempts += 1;
                    log::warn!("{error}; going on (attempt {attempts} of {ATTEMPTS})");
                }
                outcome => return outcome,
            }
        }
    }

    fn attempt(&self, part: &Path) -> Result<(), HubError> {
        let (have, tag) = self.resumable(part);
        let response = self.request(have, tag.as_deref())?;
        if response.status() == StatusCode::RANGE_NOT_SATISFIABLE {
            forget(part)?;
            return self.receive(self.request(0, None)?, part, 0);
        }
        self.receive(response, part, have)
    }

    /// How many bytes of the file are in `part`, and the tag of the file that they are of.
    fn resumable(&self, part: &Path) -> (u64, Option<String>) {
        let part_of = std::fs::read(description(part)).ok();
        let part_of = part_of.and_then(|text| serde_json::from_slice::<PartOf>(&text).ok());
        match (part_of, std::fs::metadata(part)) {
            (Some(of), Ok(metadata)) if of.url == self.url && metadata.len() > 0 => {
                (metadata.len(), Some(of.etag))
            }
            _ => (0, None),
        }
    }

    fn request(&self, have: u64, tag: Option<&str>) -> Result<Response<Body>, HubError> {
        let mut request = agent().get(self.url);
        if let Some(token) = self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        if let Some(tag) = tag {
            request = request
                .header(header::RANGE, format!("bytes={have}-"))
                .header(header::IF_RANGE, tag);
        }
        request.call().map_err(transport(self.url))
    }

    fn receive(&self, response: Response<Body>, part: &Path, have: u64) -> Result<(), HubError> {
        let start = if response.status() == StatusCode::PARTIAL_CONTENT {
            let start = range_start(&response);
            if start != Some(have) {
                forget(part)?;
                return Err(bad_answer(
                    self.url,
                    "the range sent is not the range asked for",
                ));
            }
            have
        } else {
            refuse_status(self.url, &response)?;
            0
        };
        let total = response
            .body()
            .content_length()
            .map(|length| start + length);
        if let (Some(total), Some(expected)) = (total, self.bytes)
            && total != expected
        {
            let message = format!("the file has {total} bytes, not {expected}");
            return Err(bad_answer(self.url, message));
        }
        self.describe(&response, part)?;
        self.copy(response, part, start, total.or(self.bytes))
    }

    /// Notes what `part` is a part of, if the server gave a tag that a range can be asked for by.
    fn describe(&self, response: &Response<Body>, part: &Path) -> Result<(), HubError> {
        let tag = response
            .headers()
            .get(header::ETAG)
            .and_then(|tag| tag.to_str().ok());
        let path = description(part);
        match tag.filter(|tag| !tag.starts_with("W/")) {
            Some(etag) => {
                let of = PartOf {
                    url: self.url.into(),
                    etag: etag.into(),
                };
                let text = serde_json::to_vec(&of).unwrap_or_default();
                std::fs::write(&path, text).map_err(HubError::io("write", &path))
            }
            None => remove(&path),
        }
    }

    fn copy(
        &self,
        mut response: Response<Body>,
        part: &Path,
        start: u64,
        total: Option<u64>,
    ) -> Result<(), HubError> {
        let mut file = open_at(part, start).map_err(HubError::io("write", part))?;
        let bar = progress::bytes("fetching", start, total);
        let mut reader = response.body_mut().as_reader();
        let mut buffer = vec![0; 1 << 18];
        let mut done = start;
        loop {
            let read = match reader.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    let message = error.to_string();
                    return Err(HubError::Transport {
                        url: self.url.into(),
                        message,
                    });
                }
            };
            done += read as u64;
            if self.bytes.is_some_and(|expected| done > expected) {
                forget(part)?;
                return Err(bad_answer(self.url, "more bytes came than the file has"));
            }
            let bytes = buffer.get(..read).unwrap_or_default();
            file.write_all(bytes).map_err(HubError::io("write", part))?;
            bar.set_position(done);
        }
        bar.finish_and_clear();
        if total.is_some_and(|total| done < total) {
            let message = format!("the connection ended after {done} bytes");
            return Err(HubError::Transport {
                url: self.url.into(),
                message,
            });
        }
        file.sync_all().map_err(HubError::io("write", part))
    }
}

/// The file that describes a part.
fn description(part: &Path) -> PathBuf {
    let mut name = part.as_os_str().to_owned();
    name.push(".json");
    name.into()
}

/// Removes a part and its description.
pub(super) fn forget(part: &Path) -> Result<(), HubError> {
    remove(part)?;
    remove(&description(part))
}

fn remove(path: &Path) -> Result<(), HubError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(HubError::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}

fn length(part: &Path) -> u64 {
    std::fs::metadata(part).map_or(0, |metadata| metadata.len())
}

/// `part`, cut to `start` bytes and open at its end.
fn open_at(part: &Path, start: u64) -> io::Result<File> {
    let file = OpenOptions::new().create(true).append(true).open(part)?;
    file.set_len(start)?;
    Ok(file)
}

/// The first byte of the range that a server sent.
fn range_start(response: &Response<Body>) -> Option<u64> {
    let range = response
        .headers()
        .get(header::CONTENT_RANGE)?
        .to_str()
        .ok()?;
    range
        .strip_prefix("bytes ")?
        .split_once('-')?
        .0
        .parse()
        .ok()
}
