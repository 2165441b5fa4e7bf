//! A journal file, line by line, with its chain followed.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use super::chain::{Chain, split};
use super::{Header, JOURNAL_VERSION};

/// Why a journal cannot be read.
#[derive(Debug)]
pub enum ReadError {
    /// The file cannot be opened or read.
    Io(PathBuf, io::Error),
    /// The first line is not the header of a journal.
    NotAJournal(PathBuf, String),
    /// Another version of the format.
    Version(PathBuf, u32),
    /// The header does not have the chain hash that it says.
    HeaderAltered(PathBuf),
    /// The file continues another one, and cannot be read without it.
    Continues(PathBuf),
    /// The file does not continue the one before it.
    NotNext(PathBuf, PathBuf),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(path, error) => write!(f, "{}: {error}", path.display()),
            Self::NotAJournal(path, why) => write!(
                f,
                "{} is not a journal: its first line is not a header ({why})",
                path.display()
            ),
            Self::Version(path, version) => write!(
                f,
                "{} has journal version {version}, and this build reads version {JOURNAL_VERSION}",
                path.display()
            ),
            Self::Continues(path) => write!(
                f,
                "{} continues an earlier file: give all of them, in order, up to the first",
                path.display()
            ),
            Self::NotNext(path, before) => write!(
                f,
                "{} does not continue {}",
                path.display(),
                before.display()
            ),
            Self::HeaderAltered(path) => write!(
                f,
                "{}: line 1, the header, was altered: its chain hash does not fit",
                path.display()
            ),
        }
    }
}

impl std::error::Error for ReadError {}

/// What a record's line says, and whether the chain holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its number in the file, from 1 (the header).
    pub number: u64,
    /// The whole line, without its end.
    pub bytes: Vec<u8>,
    /// The chain before it, as its predecessors make it.
    pub before: Chain,
    /// The chain with it, computed from its bytes.
    pub chain: Chain,
    /// Whether that is the chain it says.
    pub chained: bool,
}

/// How a file ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tail {
    /// With a whole line.
    Whole,
    /// Within a line: the last write was cut short.
    Torn {
        /// The number of the line.
        line: u64,
        /// What there is of it.
        bytes: Vec<u8>,
    },
}

/// Reads one journal file.
#[derive(Debug)]
pub struct JournalReader {
    path: PathBuf,
    input: BufReader<File>,
    header: Header,
    chain: Chain,
    number: u64,
    tail: Tail,
}

impl JournalReader {
    /// Opens a journal and reads its header.
    ///
    /// # Errors
    /// Why the file is not a journal that this build can read.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let io = |error| ReadError::Io(path.to_owned(), error);
        let mut input = BufReader::new(File::open(path).map_err(io)?);
        let mut line = Vec::new();
        input.read_until(b'\n', &mut line).map_err(io)?;
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        let not = |why: String| ReadError::NotAJournal(path.to_owned(), why);
        let version: Version =
            serde_json::from_slice(text).map_err(|error| not(error.to_string()))?;
        if version.journal != JOURNAL_VERSION {
            return Err(ReadError::Version(path.to_owned(), version.journal));
        }
        let header: Header =
            serde_json::from_slice(text).map_err(|error| not(error.to_string()))?;
        let (content, digits) = split(text).ok_or_else(|| not("no chain field".to_owned()))?;
        let chain = Chain::default().next(content);
        if chain.hex().as_bytes() != digits {
            return Err(ReadError::HeaderAltered(path.to_owned()));
        }
        Ok(Self {
            path: path.to_owned(),
            input,
            header,
            chain,
            number: 1,
            tail: Tail::Whole,
        })
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The chain with the last line that was read.
    pub fn chain(&self) -> Chain {
        self.chain
    }

    /// How the file ended; known once [`Self::next_line`] gave `None`.
    pub fn tail(&self) -> &Tail {
        &self.tail
    }

    /// The next record's line; `None` at the end. A last line without its end is left out.
    ///
    /// After a line that breaks the chain, the chain goes on from what the line's bytes make it.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub fn next_line(&mut self) -> Result<Option<Line>, ReadError> {
        let mut bytes = Vec::new();
        self.input
            .read_until(b'\n', &mut bytes)
            .map_err(|error| ReadError::Io(self.path.clone(), error))?;
        if bytes.is_empty() {
            return Ok(None);
        }
        self.number += 1;
        let number = self.number;
        if bytes.pop_if(|byte| *byte == b'\n').is_none() {
            self.tail = Tail::Torn {
                line: number,
                bytes,
            };
            return Ok(None);
        }
        let before = self.chain;
        let (content, digits) = split(&bytes).unwrap_or((&bytes, &[]));
        self.chain = before.next(content);
        let chained = self.chain.hex().as_bytes() == digits;
        let chain = self.chain;
        Ok(Some(Line {
            number,
            bytes,
            before,
            chain,
            chained,
        }))
    }
}

#[derive(serde::Deserialize)]
struct Version {
    journal: u32,
}
