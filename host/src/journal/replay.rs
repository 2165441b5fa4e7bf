//! Recomputing every plan of a journal through the production scheduler.

use std::fmt;
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use super::chain::{Chain, split};
use super::decode::{DecodeError, Decoder};
use super::encode::Encoder;
use super::locate::{first_difference, path_at};
use super::reader::{JournalReader, Line, ReadError, Tail};
use super::torn;
use super::{Header, JournalContent};
use crate::scheduler::{Inputs, Plan, ProtocolError, Scheduler};

/// What a replay found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReplayReport {
    /// Steps whose plan was recomputed and found equal.
    pub steps: u64,
    /// The first difference.
    pub difference: Option<Difference>,
    /// Bytes of a torn last line, which are ignored.
    pub torn_bytes: Option<usize>,
}

/// The first place where a journal is not what its inputs give.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The step.
    pub step: u64,
    /// The line of the file, from 1.
    pub line: u64,
    /// The field of the record.
    pub field: String,
    /// What the journal says there.
    pub recorded: String,
    /// What stands there by the chain, or by the production scheduler.
    pub expected: String,
    /// Whether the line's chain hash fits its bytes: then it was written so, by a build or a
    /// configuration that decides otherwise; if not, it was altered later.
    pub chained: bool,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            step,
            line,
            field,
            recorded,
            expected,
            chained,
        } = self;
        write!(
            f,
            "step {step} (line {line}): {field} is {recorded}, and should be {expected}: "
        )?;
        f.write_str(if *chained {
            "the chain is intact, so it was decided otherwise when it was written"
        } else {
            "the chain is broken here, so the line was altered after it was written"
        })
    }
}

/// Replays a journal up to the first difference.
///
/// # Errors
/// Where the file is not a journal, or its limits cannot make a scheduler.
pub fn replay(path: &Path) -> Result<ReplayReport, ReadError> {
    replay_with(path, |_, _| {})
}

/// Replays a journal, and shows each step found equal to an observer.
///
/// # Errors
/// As [`replay`].
pub fn replay_with(
    path: &Path,
    observe: impl FnMut(&Inputs, &Plan),
) -> Result<ReplayReport, ReadError> {
    replay_files(&[path], observe)
}

/// Replays the files of a journal that was continued, the first first.
///
/// # Errors
/// As [`replay`]; and where a file does not continue the one before it.
pub fn replay_files(
    paths: &[impl AsRef<Path>],
    mut observe: impl FnMut(&Inputs, &Plan),
) -> Result<ReplayReport, ReadError> {
    let mut report = ReplayReport {
        steps: 0,
        difference: None,
        torn_bytes: None,
    };
    let mut last: Option<(Replay, &Path, Chain)> = None;
    for path in paths.iter().map(AsRef::as_ref) {
        let mut reader = JournalReader::open(path)?;
        let mut replay = match last {
            Some((replay, before, chain)) => {
                if reader.header().previous != Some(chain.hex()) {
                    return Err(ReadError::NotNext(path.to_owned(), before.to_owned()));
                }
                replay
            }
            None => Replay::begin(path, reader.header())?,
        };
        replay.file(&mut reader, &mut report, &mut observe)?;
        if report.difference.is_some() {
            break;
        }
        last = Some((replay, path, reader.chain()));
    }
    Ok(report)
}

struct Replay {
    content: JournalContent,
    scheduler: Scheduler,
    encoder: Encoder,
    decoder: Decoder,
    plan: Plan,
    expected: Vec<u8>,
}

impl Replay {
    fn begin(path: &Path, header: &Header) -> Result<Self, ReadError> {
        let not = |why: String| ReadError::NotAJournal(path.to_owned(), why);
        let config = header.config.clone();
        let scheduler = match (&header.checkpoint, &header.previous) {
            (Some(checkpoint), _) => Scheduler::restore(config, checkpoint).map_err(not)?,
            (None, Some(_)) => return Err(ReadError::Continues(path.to_owned())),
            (None, None) => Scheduler::new(config).map_err(|error| not(error.to_string()))?,
        };
        Ok(Self {
            content: header.content,
            scheduler,
            encoder: Encoder::new(header),
            decoder: Decoder::new(header),
            plan: Plan::default(),
            expected: Vec::new(),
        })
    }

    /// Takes the steps of one file, up to the first difference.
    fn file(
        &mut self,
        reader: &mut JournalReader,
        report: &mut ReplayReport,
        observe: &mut impl FnMut(&Inputs, &Plan),
    ) -> Result<(), ReadError> {
        while let Some(line) = reader.next_line()? {
            match self.line(&line, self.scheduler.num_steps() + 1) {
                Ok(inputs) => observe(&inputs, &self.plan),
                Err(difference) => {
                    report.difference = Some(*difference);
                    return Ok(());
                }
            }
            report.steps += 1;
        }
        if let Tail::Torn { line, bytes } = reader.tail() {
            let step = self.scheduler.num_steps() + 1;
            match torn::check(bytes, reader.chain(), step) {
                Ok(()) => report.torn_bytes = Some(bytes.len()),
                Err(found) => report.difference = Some(torn::difference(found, *line, step)),
            }
        }
        Ok(())
    }

    /// Takes the step of one line; says where the line differs from it.
    fn line(&mut self, line: &Line, step: u64) -> Result<Inputs, Box<Difference>> {
        if !line.chained {
            return Err(Box::new(self.altered(line, step)));
        }
        let (_, inputs) = self
            .decoder
            .record(&line.bytes)
            .map_err(|error| unreadable(line, step, &error))?;
        self.recompute(&inputs, line)
            .map_err(|error| impossible(line, step, error))?;
        let recorded = split(&line.bytes).map_or(&line.bytes[..], |(content, _)| content);
        if recorded != self.expected {
            return Err(Box::new(self.decided_otherwise(line, step)));
        }
        Ok(inputs)
    }

    /// Writes into `expected` what the record of these inputs is, without its chain.
    fn recompute(&mut self, inputs: &Inputs, line: &Line) -> Result<(), ProtocolError> {
        self.scheduler.check(inputs)?;
        self.scheduler.step(inputs, &mut self.plan);
        self.expected.clear();
        self.encoder
            .record(inputs, &self.plan, &self.scheduler, &mut self.expected);
        if self.content == JournalContent::Ids {
            self.keep_recorded_inputs(line);
        }
        Ok(())
    }

    /// Contents were decoded to stand-ins, which would be written otherwise: only the step and the
    /// plan are compared.
    fn keep_recorded_inputs(&mut self, line: &Line) {
        let find = |text: &[u8], part: &[u8]| text.windows(part.len()).position(|w| w == part);
        let range = |text: &[u8]| Some(find(text, b",\"inputs\":{")?..find(text, b",\"plan\":{")?);
        if let (Some(made), Some(recorded)) = (range(&self.expected), range(&line.bytes)) {
            let inputs = line.bytes[recorded].iter().copied();
            self.expected.splice(made, inputs);
        }
    }

    fn decided_otherwise(&self, line: &Line, step: u64) -> Difference {
        let mut expected = self.expected.clone();
        line.before.seal(&mut expected);
        let parsed: Option<(Value, Value)> = serde_json::from_slice(&line.bytes)
            .ok()
            .zip(serde_json::from_slice(&expected).ok());
        let found = parsed.and_then(|(recorded, expected)| first_difference(&recorded, &expected));
        let (field, recorded, expected) = found.unwrap_or_else(|| {
            let other = |text: &str| text.to_owned();
            (
                other("the line's form"),
                other("another"),
                other("the one that is written"),
            )
        });
        Difference {
            step,
            line: line.number,
            field,
            recorded,
            expected,
            chained: line.chained,
        }
    }

    /// A line whose chain does not fit: finds the byte that was altered, or else the field whose
    /// recomputation differs.
    fn altered(&mut self, line: &Line, step: u64) -> Difference {
        if let Some(difference) = altered_chain(line, step).or_else(|| altered_byte(line, step)) {
            return difference;
        }
        match self.decoder.record(&line.bytes) {
            Ok((_, inputs)) if self.recompute(&inputs, line).is_ok() => {
                let recorded = split(&line.bytes).map_or(&line.bytes[..], |(content, _)| content);
                if recorded == self.expected {
                    return several(line, step);
                }
                self.decided_otherwise(line, step)
            }
            Ok(_) => several(line, step),
            Err(error) => unreadable(line, step, &error),
        }
    }
}

/// The chain field itself, if it differs from the line's hash in one digit.
fn altered_chain(line: &Line, step: u64) -> Option<Difference> {
    let (_, digits) = split(&line.bytes)?;
    let expected = line.chain.hex();
    // Whatever else was altered: a chain is written in lower case.
    let written = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    let odd = !digits.iter().all(written);
    let differing = digits
        .iter()
        .zip(expected.as_bytes())
        .filter(|(a, b)| a != b)
        .count();
    (odd || differing <= 2).then(|| Difference {
        step,
        line: line.number,
        field: "chain".to_owned(),
        recorded: String::from_utf8_lossy(digits).into_owned(),
        expected,
        chained: false,
    })
}

/// Searches for the one byte whose change makes the chain fit again.
fn altered_byte(line: &Line, step: u64) -> Option<Difference> {
    // Every byte is tried with every printable one: bounded to lines for which that takes seconds.
    const LONGEST: usize = 6 << 10;
    let (content, digits) = split(&line.bytes)?;
    if content.len() > LONGEST {
        return None;
    }
    let recorded = blake3::Hash::from_hex(digits).ok()?;
    let mut hasher = line.before.hasher();
    for (at, byte) in content.iter().enumerate() {
        for instead in (b' '..=b'~').filter(|instead| instead != byte) {
            let mut trial = hasher.clone();
            trial.update(&[instead]).update(&content[at + 1..]);
            if trial.finalize() == recorded {
                let mut original = content.to_vec();
                original[at] = instead;
                return Some(Difference {
                    step,
                    line: line.number,
                    field: field_at(&original, at),
                    recorded: value_around(content, at),
                    expected: value_around(&original, at),
                    chained: false,
                });
            }
        }
        hasher.update(&[*byte]);
    }
    None
}

fn field_at(text: &[u8], at: usize) -> String {
    Some(path_at(text, at))
        .filter(|path| !path.is_empty())
        .unwrap_or_else(|| "the record".to_owned())
}

/// The text between the separators around a byte.
fn value_around(text: &[u8], at: usize) -> String {
    let separates = |byte: &u8| b",:[]{}\"".contains(byte);
    if separates(&text[at]) {
        return String::from_utf8_lossy(&text[at..=at]).into_owned();
    }
    let start = text[..at].iter().rposition(separates).map_or(0, |p| p + 1);
    let end = text[at..]
        .iter()
        .position(separates)
        .map_or(text.len(), |p| at + p);
    String::from_utf8_lossy(&text[start..end]).into_owned()
}

fn unreadable(line: &Line, step: u64, error: &DecodeError) -> Difference {
    let at = error.column.unwrap_or(1).saturating_sub(1);
    Difference {
        step,
        line: line.number,
        field: field_at(&line.bytes, at),
        recorded: format!("unreadable ({error})"),
        expected: "a record".to_owned(),
        chained: line.chained,
    }
}

fn impossible(line: &Line, step: u64, error: ProtocolError) -> Difference {
    Difference {
        step,
        line: line.number,
        field: "inputs".to_owned(),
        recorded: format!("impossible ({error})"),
        expected: "what an engine can give".to_owned(),
        chained: line.chained,
    }
}

fn several(line: &Line, step: u64) -> Difference {
    Difference {
        step,
        line: line.number,
        field: "inputs".to_owned(),
        recorded: "altered in several bytes".to_owned(),
        expected: "what the chain hash was made of".to_owned(),
        chained: false,
    }
}
