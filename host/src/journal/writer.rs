//! The journal's writer: a thread of its own behind a bounded, ordered hand-over.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::chain::Chain;
use super::encode::Encoder;
use super::file::{FileSink, Sink};
use super::sync::JournalSync;
use super::{Header, JournalContent};
use crate::scheduler::{Inputs, Plan, Scheduler};

/// Records that may be on their way to the file: with more, the engine waits. Nothing is lost.
const IN_FLIGHT: usize = 64;

/// Where a journal goes, and how.
#[derive(Clone, Debug)]
pub struct JournalOptions {
    /// The file. One that is there already is renamed to `FILE.1`, or the next free number.
    pub path: PathBuf,
    /// How records reach the disk.
    pub sync: JournalSync,
    /// What is recorded of prompts and answers.
    pub content: JournalContent,
    /// The size, in bytes, at which the file is renamed to the next free `FILE.N` and begun anew.
    pub max_bytes: Option<u64>,
    /// How many renamed files are kept, the newest; `None` keeps all.
    pub max_files: Option<u32>,
}

/// The journal cannot be written: the engine must stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalError {
    path: PathBuf,
    message: String,
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "journal {}: {}", self.path.display(), self.message)
    }
}

impl std::error::Error for JournalError {}

/// The engine's end of a journal.
///
/// `append` costs the engine one serialisation into a reused buffer. Hashing, writing and syncing
/// happen on the writer's thread, in the order of the appends.
#[derive(Debug)]
pub struct JournalWriter {
    encoder: Encoder,
    header: Header,
    path: PathBuf,
    sync: JournalSync,
    max_bytes: Option<u64>,
    /// Bytes handed over for the present file.
    bytes: u64,
    lines: Option<SyncSender<Message>>,
    empties: Receiver<Vec<u8>>,
    appended: u64,
    progress: Arc<Progress>,
    thread: Option<JoinHandle<()>>,
}

/// What the writer's thread has done.
#[derive(Debug, Default)]
struct Progress {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    written: u64,
    durable: u64,
    failure: Option<String>,
}

impl Progress {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is plain numbers: whole at any time, whoever panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }
}

impl JournalWriter {
    /// Creates the file, writes its header, and starts the writer's thread.
    ///
    /// # Errors
    /// Where the file cannot be created or written.
    pub fn create(options: &JournalOptions, header: Header) -> Result<Self, JournalError> {
        let header = Header {
            content: options.content,
            ..header
        };
        let fail = |error: io::Error| JournalError {
            path: options.path.clone(),
            message: error.to_string(),
        };
        let mut sink = FileSink::create(options).map_err(fail)?;
        let mut line = Vec::new();
        Encoder::header(&header, &mut line);
        let chain = Chain::default().seal(&mut line);
        sink.write(&line).map_err(fail)?;
        Self::start(options, header, Box::new(sink), chain).map_err(fail)
    }

    fn start(
        options: &JournalOptions,
        header: Header,
        sink: Box<dyn Sink>,
        chain: Chain,
    ) -> io::Result<Self> {
        let (lines, incoming) = sync_channel(IN_FLIGHT);
        let (recycled, empties) = sync_channel(IN_FLIGHT);
        for _ in 0..IN_FLIGHT {
            let _ = recycled.try_send(Vec::new());
        }
        let progress = Arc::new(Progress::default());
        let writer = Writer {
            sink,
            chain,
            sync: options.sync,
            progress: Arc::clone(&progress),
            unsynced: 0,
        };
        let thread = std::thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || writer.run(&incoming, &recycled))?;
        Ok(Self {
            encoder: Encoder::new(&header),
            header,
            path: options.path.clone(),
            sync: options.sync,
            max_bytes: options.max_bytes,
            bytes: 0,
            lines: Some(lines),
            empties,
            appended: 0,
            progress,
            thread: Some(thread),
        })
    }

    /// Queues the record of the step that `scheduler` has just taken; before the plan is carried
    /// out. Waits where too many records are on their way.
    ///
    /// A plan of step 0, which is no step, has no record.
    ///
    /// # Errors
    /// Where an earlier record could not be written: nothing after it is, and the engine must stop.
    pub fn append(
        &mut self,
        inputs: &Inputs,
        plan: &Plan,
        scheduler: &Scheduler,
    ) -> Result<(), JournalError> {
        self.check()?;
        if plan.step == 0 {
            return Ok(());
        }
        let mut line = self.empty()?;
        self.encoder.record(inputs, plan, scheduler, &mut line);
        self.bytes += (line.len() + Chain::FIELD_BYTES) as u64;
        self.send(Message::Record(line))?;
        self.appended += 1;
        if self.max_bytes.is_some_and(|most| self.bytes >= most) {
            self.rotate(scheduler)?;
        }
        Ok(())
    }

    /// Has the file continued by a new one, which begins with the scheduler's state. That is made
    /// of tokens: without them, the files replay together only.
    fn rotate(&mut self, scheduler: &Scheduler) -> Result<(), JournalError> {
        let mut line = self.empty()?;
        self.header.checkpoint = match self.header.content {
            JournalContent::Tokens => Some(scheduler.checkpoint()),
            JournalContent::Ids => None,
        };
        Encoder::header(&self.header, &mut line);
        self.header.checkpoint = None;
        self.bytes = 0;
        self.send(Message::Rotate(line))
    }

    fn empty(&self) -> Result<Vec<u8>, JournalError> {
        let mut line = self.empties.recv().map_err(|_| self.ended())?;
        line.clear();
        Ok(line)
    }

    fn send(&self, message: Message) -> Result<(), JournalError> {
        let lines = self.lines.as_ref().ok_or_else(|| self.ended())?;
        lines.send(message).map_err(|_| self.ended())
    }

    /// Under a sync after each record, waits until every record is durable; else only checks for
    /// an earlier failure.
    ///
    /// The token of a step's chunk is in the *next* step's record, as an advance. So an engine that
    /// promises durability hands a step's events out after this call in the next step.
    ///
    /// # Errors
    /// Where a record could not be written.
    pub fn wait_durable(&self) -> Result<(), JournalError> {
        if self.sync != JournalSync::STEP {
            return self.check();
        }
        let mut state = self.progress.lock();
        while state.failure.is_none() && state.durable < self.appended {
            state = self
                .progress
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        self.check()
    }

    /// Whether a token may leave only once its record is durable.
    pub fn holds_tokens_back(&self) -> bool {
        self.sync == JournalSync::STEP
    }

    /// Records that were appended and are not written yet.
    pub fn lag(&self) -> u64 {
        self.appended - self.progress.lock().written
    }

    /// Writes what is queued, syncs the file, and ends the thread.
    ///
    /// # Errors
    /// Where a record could not be written.
    pub fn close(mut self) -> Result<(), JournalError> {
        self.end();
        self.check()
    }

    fn end(&mut self) {
        self.lines = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was noted as a failure.
            let _ = thread.join();
        }
    }

    fn check(&self) -> Result<(), JournalError> {
        match &self.progress.lock().failure {
            Some(message) => Err(self.error(message.clone())),
            None => Ok(()),
        }
    }

    fn ended(&self) -> JournalError {
        self.error("its writer has ended".to_owned())
    }

    fn error(&self, message: String) -> JournalError {
        JournalError {
            path: self.path.clone(),
            message,
        }
    }
}

impl Drop for JournalWriter {
    fn drop(&mut self) {
        self.end();
    }
}

/// A line on its way, without its chain.
enum Message {
    /// A step's.
    Record(Vec<u8>),
    /// The header of a new file.
    Rotate(Vec<u8>),
}

struct Writer {
    sink: Box<dyn Sink>,
    chain: Chain,
    sync: JournalSync,
    progress: Arc<Progress>,
    unsynced: u32,
}

impl Writer {
    /// Writes lines until there are no more senders; after a failure it only takes them in, so that
    /// the engine comes to see the failure and is not left waiting.
    fn run(mut self, incoming: &Receiver<Message>, recycled: &SyncSender<Vec<u8>>) {
        let mut outcome = Ok(());
        for mut message in incoming {
            if outcome.is_ok() {
                outcome = match &mut message {
                    Message::Record(line) => self.line(line),
                    Message::Rotate(line) => self.rotate(line),
                };
                self.note(&outcome);
            }
            let (Message::Record(line) | Message::Rotate(line)) = message;
            // The receiver is gone only when the engine is.
            let _ = recycled.try_send(line);
        }
        if outcome.is_ok() {
            let outcome = self.synced();
            self.note(&outcome);
        }
    }

    fn note(&self, outcome: &io::Result<()>) {
        if let Err(error) = outcome {
            self.progress
                .change(|state| state.failure = Some(error.to_string()));
        }
    }

    fn line(&mut self, line: &mut Vec<u8>) -> io::Result<()> {
        self.chain = self.chain.seal(line);
        self.sink.write(line)?;
        self.unsynced += 1;
        self.progress.change(|state| state.written += 1);
        match self.sync {
            JournalSync::Every(steps) if self.unsynced >= steps.get() => self.synced(),
            _ => Ok(()),
        }
    }

    fn rotate(&mut self, header: &mut Vec<u8>) -> io::Result<()> {
        self.synced()?;
        self.sink.rotate()?;
        let previous = format!(",\"previous\":\"{}\"", self.chain.hex());
        header.extend_from_slice(previous.as_bytes());
        self.chain = Chain::default().seal(header);
        self.sink.write(header)
    }

    fn synced(&mut self) -> io::Result<()> {
        self.sink.sync()?;
        self.unsynced = 0;
        self.progress.change(|state| state.durable = state.written);
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.note(&Err(io::Error::other("its writer panicked")));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::scheduler::SchedulerConfig;
    use crate::simulation::{SimulatedRequest, Simulation, Workload};

    /// A disk that takes so many lines, each when it is let.
    struct Disk {
        room: usize,
        lines: mpsc::Sender<Vec<u8>>,
        leave: Option<mpsc::Receiver<()>>,
        syncs: Arc<Mutex<u64>>,
    }

    impl Sink for Disk {
        fn write(&mut self, line: &[u8]) -> io::Result<()> {
            if let Some(leave) = &self.leave {
                let _ = leave.recv();
            }
            self.room = self
                .room
                .checked_sub(1)
                .ok_or_else(|| io::Error::from(io::ErrorKind::StorageFull))?;
            let _ = self.lines.send(line.to_vec());
            Ok(())
        }

        fn rotate(&mut self) -> io::Result<()> {
            Ok(())
        }

        fn sync(&mut self) -> io::Result<()> {
            *self.syncs.lock().unwrap() += 1;
            Ok(())
        }
    }

    struct Written {
        lines: mpsc::Receiver<Vec<u8>>,
        syncs: Arc<Mutex<u64>>,
    }

    fn writer(
        room: usize,
        sync: JournalSync,
        leave: Option<mpsc::Receiver<()>>,
    ) -> (JournalWriter, Written) {
        let (sender, lines) = mpsc::channel();
        let syncs = Arc::new(Mutex::new(0));
        let disk = Disk {
            room,
            lines: sender,
            leave,
            syncs: Arc::clone(&syncs),
        };
        let options = JournalOptions {
            path: PathBuf::from("journal"),
            sync,
            content: JournalContent::Tokens,
            max_bytes: None,
            max_files: None,
        };
        let header = Header::new(SchedulerConfig::default(), "", "portable-1");
        let writer =
            JournalWriter::start(&options, header, Box::new(disk), Chain::default()).unwrap();
        (writer, Written { lines, syncs })
    }

    fn simulation(output_tokens: u32) -> Simulation {
        let requests = vec![SimulatedRequest::new(1, 5, output_tokens)];
        Simulation::new(SchedulerConfig::default(), Workload { requests }).unwrap()
    }

    fn append(writer: &mut JournalWriter, simulation: &mut Simulation) -> Result<(), JournalError> {
        simulation.step();
        writer.append(&simulation.inputs, &simulation.plan, &simulation.scheduler)
    }

    #[test]
    fn a_full_disk_is_seen_by_a_later_append_and_nothing_is_written_after_it() {
        let (mut writer, written) = writer(3, JournalSync::None, None);
        let mut simulation = simulation(1000);
        let failed = (0..1000).find_map(|_| append(&mut writer, &mut simulation).err());
        let message = failed.expect("the failure is seen").to_string();
        assert!(message.starts_with("journal journal: "), "{message}");
        assert!(writer.wait_durable().is_err());
        assert!(writer.close().is_err());
        assert_eq!(written.lines.into_iter().count(), 3);
    }

    #[test]
    fn records_are_written_in_order_and_none_is_lost_behind_a_slow_disk() {
        let (leave, leaves) = mpsc::channel();
        let (mut writer, written) = writer(usize::MAX, JournalSync::None, Some(leaves));
        let mut simulation = simulation(500);
        let slow = std::thread::spawn(move || (0..400).try_for_each(|_| leave.send(())));
        for _ in 0..400 {
            append(&mut writer, &mut simulation).unwrap();
            assert!(writer.lag() <= IN_FLIGHT as u64);
        }
        slow.join().unwrap().unwrap();
        writer.close().unwrap();
        let steps: Vec<Vec<u8>> = written.lines.into_iter().collect();
        assert_eq!(steps.len(), 400);
        for (line, step) in steps.iter().zip(1..) {
            assert!(line.starts_with(format!("{{\"step\":{step},").as_bytes()));
        }
    }

    #[test]
    fn every_record_is_durable_under_a_sync_after_each() {
        let (mut writer, written) = writer(usize::MAX, JournalSync::STEP, None);
        let mut simulation = simulation(50);
        for step in 1..=40 {
            append(&mut writer, &mut simulation).unwrap();
            writer.wait_durable().unwrap();
            assert_eq!(*written.syncs.lock().unwrap(), step);
        }
        writer.close().unwrap();
    }

    #[test]
    fn without_syncs_the_file_is_synced_at_the_end() {
        let (mut writer, written) = writer(usize::MAX, JournalSync::None, None);
        append(&mut writer, &mut simulation(5)).unwrap();
        writer.close().unwrap();
        assert_eq!(*written.syncs.lock().unwrap(), 1);
    }

    #[test]
    fn a_sync_policy_parses_from_what_it_prints_as() {
        for text in ["none", "step", "16"] {
            assert_eq!(text.parse::<JournalSync>().unwrap().to_string(), text);
        }
        assert!(
            "0".parse::<JournalSync>()
                .unwrap_err()
                .contains("none, step")
        );
    }
}
