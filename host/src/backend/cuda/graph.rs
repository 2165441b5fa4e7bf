//! Launches that are recorded once and launched together.

use std::sync::Arc;

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaGraph, CudaStream};

use super::driver::Named;

/// The graphs that were recorded, by number.
#[derive(Default)]
pub(super) struct Graphs {
    graphs: Vec<CudaGraph>,
}

// SAFETY: a graph may be used from any thread as long as one at a time does, and its owner is one.
unsafe impl Send for Graphs {}

impl std::fmt::Debug for Graphs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} graphs", self.graphs.len())
    }
}

impl Graphs {
    pub(super) fn begin(stream: &CudaStream) -> Result<(), String> {
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        stream.begin_capture(mode).named("cuStreamBeginCapture")
    }

    pub(super) fn end(&mut self, stream: &Arc<CudaStream>) -> Result<usize, String> {
        let graph = stream.end_capture(CUgraphInstantiate_flags(0));
        let graph = graph.named("cuStreamEndCapture, cuGraphInstantiate")?;
        self.graphs
            .push(graph.ok_or("the driver recorded no graph")?);
        Ok(self.graphs.len() - 1)
    }

    pub(super) fn launch(&self, graph: usize) -> Result<(), String> {
        let found = self.graphs.get(graph);
        let found = found.ok_or_else(|| format!("there is no graph {graph}"))?;
        found.launch().named("cuGraphLaunch")
    }
}
