//! One block: its warps, taken in turn, and the barrier they meet at.

use crate::fault::{Fault, FaultKind};
use crate::launch::{Launch, Statistics};
use crate::memory::Memory;
use crate::module::Kernel;
use crate::shared::Shared;
use crate::warp::{Stop, Warp};

/// Lanes of a warp.
pub(crate) const LANES: usize = 32;

/// A block that is running.
pub(crate) struct Block<'a> {
    warps: Vec<Warp>,
    pub(crate) context: Context<'a>,
}

/// What all warps of a block have in common.
pub(crate) struct Context<'a> {
    pub(crate) kernel: &'a Kernel,
    pub(crate) launch: &'a Launch,
    pub(crate) parameters: &'a [u8],
    pub(crate) memory: &'a mut Memory,
    pub(crate) shared: Shared,
    /// The block's number in the grid.
    pub(crate) number: u32,
    /// The same along each axis.
    pub(crate) position: [u32; 3],
    /// Barriers passed, from one.
    pub(crate) epoch: u32,
}

impl<'a> Block<'a> {
    pub(crate) fn new(
        kernel: &'a Kernel,
        launch: &'a Launch,
        parameters: &'a [u8],
        number: u32,
        memory: &'a mut Memory,
        shared: Shared,
    ) -> Self {
        let threads: u32 = launch.block.iter().product();
        let warps = threads.div_ceil(LANES as u32);
        let [x, y, _] = launch.grid;
        Self {
            warps: (0..warps).map(|w| Warp::new(kernel, w, threads)).collect(),
            context: Context {
                kernel,
                launch,
                parameters,
                memory,
                shared,
                number,
                position: [number % x, number / x % y, number / x / y],
                epoch: 1,
            },
        }
    }

    /// Runs until every thread has ended.
    pub(crate) fn run(&mut self, statistics: &mut Statistics) -> Result<(), Fault> {
        loop {
            let mut waiting = 0;
            let mut ended = 0;
            let count = self.warps.len();
            for index in 0..count {
                let warp = &mut self.warps[self.context.launch.order.nth(index, count)];
                match warp.run(&mut self.context, statistics)? {
                    Stop::Barrier => waiting += 1,
                    Stop::End => ended += 1,
                }
            }
            if waiting == 0 {
                statistics.unread_copies += self.context.shared.unread_copies();
                return Ok(());
            }
            if ended > 0 || self.warps.iter().any(Warp::has_exited_lanes) {
                return Err(self.exited_at_barrier());
            }
            self.context.epoch += 1;
            for warp in &mut self.warps {
                warp.release();
            }
        }
    }

    fn exited_at_barrier(&self) -> Fault {
        let waiting = self.warps.iter().find(|w| w.is_waiting());
        let (thread, at) = waiting.map_or((0, 0), |w| (w.first_thread(), w.position()));
        let (line, opcode) = self.context.kernel.instruction(at).unwrap_or((0, ""));
        Fault {
            kind: FaultKind::ExitedAtBarrier,
            line,
            opcode: opcode.to_owned(),
            block: self.context.number,
            thread,
        }
    }
}
