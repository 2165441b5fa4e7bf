//! Work on streams, put off as long as its order allows.

use std::collections::{BTreeMap, VecDeque};

use crate::error::Code;

/// One piece of work.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    HostToDevice {
        to: u64,
        from: usize,
        bytes: usize,
    },
    DeviceToHost {
        to: usize,
        from: u64,
        bytes: usize,
    },
    DeviceToDevice {
        to: u64,
        from: u64,
        bytes: usize,
    },
    Launch(Launch),
    Free(u64),
    /// The event's number, and how often it had been recorded, this time included.
    Record(usize, u64),
    Wait(usize, u64),
}

/// A kernel with its size and arguments.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) function: usize,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) arguments: Vec<ptx_interpreter::Argument>,
}

/// An event: its recordings, and those that the device has reached.
#[derive(Clone, Copy, Debug, Default)]
struct Event {
    recorded: u64,
    reached: u64,
    stream: usize,
}

#[derive(Debug, Default)]
struct Stream {
    work: VecDeque<Work>,
    /// What is recorded instead of queued.
    capture: Option<Vec<Work>>,
}

/// All streams and events.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    streams: BTreeMap<usize, Stream>,
    events: BTreeMap<usize, Event>,
}

impl Streams {
    pub(crate) fn add_stream(&mut self, number: usize) {
        self.streams.insert(number, Stream::default());
    }

    pub(crate) fn add_event(&mut self, number: usize) {
        self.events.insert(number, Event::default());
    }

    pub(crate) fn remove_event(&mut self, number: usize) -> Result<(), Code> {
        self.events
            .remove(&number)
            .map(|_| ())
            .ok_or(Code::INVALID_HANDLE)
    }

    pub(crate) fn remove_stream(&mut self, number: usize) -> Result<(), Code> {
        self.streams
            .remove(&number)
            .map(|_| ())
            .ok_or(Code::INVALID_HANDLE)
    }

    pub(crate) fn numbers(&self) -> Vec<usize> {
        self.streams.keys().copied().collect()
    }

    fn stream(&mut self, number: usize) -> Result<&mut Stream, Code> {
        self.streams.get_mut(&number).ok_or(Code::INVALID_HANDLE)
    }

    /// Puts work at the end of a stream, or of what is captured of it.
    pub(crate) fn push(&mut self, stream: usize, work: Work) -> Result<(), Code> {
        let stream = self.stream(stream)?;
        match &mut stream.capture {
            Some(capture) => capture.push(work),
            None => stream.work.push_back(work),
        }
        Ok(())
    }

    pub(crate) fn record(&mut self, event: usize, stream: usize) -> Result<(), Code> {
        let found = self.events.get_mut(&event).ok_or(Code::INVALID_HANDLE)?;
        found.recorded += 1;
        found.stream = stream;
        let times = found.recorded;
        self.push(stream, Work::Record(event, times))
    }

    pub(crate) fn wait(&mut self, stream: usize, event: usize) -> Result<(), Code> {
        let times = self
            .events
            .get(&event)
            .ok_or(Code::INVALID_HANDLE)?
            .recorded;
        self.push(stream, Work::Wait(event, times))
    }

    pub(crate) fn begin_capture(&mut self, stream: usize) -> Result<(), Code> {
        let stream = self.stream(stream)?;
        stream.capture = Some(Vec::new());
        Ok(())
    }

    pub(crate) fn end_capture(&mut self, stream: usize) -> Result<Vec<Work>, Code> {
        self.stream(stream)?
            .capture
            .take()
            .ok_or(Code::INVALID_VALUE)
    }

    /// Refuses what may not be asked of a stream that is captured.
    pub(crate) fn not_captured(&mut self, stream: usize) -> Result<(), Code> {
        match self.stream(stream)?.capture {
            None => Ok(()),
            Some(_) => Err(Code::STREAM_CAPTURE_UNSUPPORTED),
        }
    }

    /// The stream on which an event was last recorded and how often, if the device has not reached
    /// that yet.
    pub(crate) fn outstanding(&self, event: usize) -> Result<Option<(usize, u64)>, Code> {
        let found = self.events.get(&event).ok_or(Code::INVALID_HANDLE)?;
        Ok((found.reached < found.recorded).then_some((found.stream, found.recorded)))
    }

    /// Whether the device has reached that recording of an event. One that is gone was reached.
    pub(crate) fn reached(&self, event: usize, times: u64) -> bool {
        self.events
            .get(&event)
            .is_none_or(|found| found.reached >= times)
    }

    pub(crate) fn reach(&mut self, event: usize, times: u64) {
        if let Some(found) = self.events.get_mut(&event) {
            found.reached = found.reached.max(times);
        }
    }

    /// Where the recording that a wait is for is queued.
    pub(crate) fn stream_of(&self, event: usize) -> Option<usize> {
        self.events.get(&event).map(|found| found.stream)
    }

    /// The first piece of work of a stream.
    pub(crate) fn first(&self, stream: usize) -> Option<Work> {
        self.streams.get(&stream)?.work.front().cloned()
    }

    pub(crate) fn pop(&mut self, stream: usize) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.work.pop_front();
        }
    }
}
