//! Who touched a byte last, and whether anything orders that before the next access.

use crate::fault::FaultKind;

/// Stands for several blocks, warps or threads.
const MANY: u32 = u32::MAX;

/// One thread at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) block: u32,
    pub(crate) warp: u32,
    pub(crate) thread: u32,
    /// Barriers that its block has passed, from one; zero in a [`Shadow`] is "never".
    pub(crate) epoch: u32,
    /// Warp barriers that its warp has passed.
    pub(crate) warp_epoch: u32,
}

const NEVER: Access = Access {
    block: 0,
    warp: 0,
    thread: 0,
    epoch: 0,
    warp_epoch: 0,
};

impl Access {
    /// Whether this earlier access is ordered before `now`.
    fn before(&self, now: &Self, blocks_share: bool) -> bool {
        if self.epoch == 0 {
            return true;
        }
        if self.block != now.block {
            return !blocks_share;
        }
        self.epoch != now.epoch
            || self.thread == now.thread
            || self.warp == now.warp && self.warp_epoch < now.warp_epoch
    }

    fn race(&self, address: u64) -> FaultKind {
        FaultKind::Race {
            address,
            block: self.block,
            thread: self.thread,
        }
    }
}

/// The last write of a byte, and the reads since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shadow {
    write: Access,
    read: Access,
}

impl Shadow {
    /// A byte that this launch has not touched.
    pub(crate) const UNTOUCHED: Self = Self {
        write: NEVER,
        read: NEVER,
    };

    /// Notes a read.
    ///
    /// # Errors
    /// A write that is not ordered before it.
    pub(crate) fn read(
        &mut self,
        now: &Access,
        blocks_share: bool,
        address: u64,
    ) -> Result<(), FaultKind> {
        if !self.write.before(now, blocks_share) {
            return Err(self.write.race(address));
        }
        let earlier = self.read;
        self.read = *now;
        if earlier.epoch == 0 || !blocks_share && earlier.block != now.block {
            return Ok(());
        }
        if earlier.block != now.block {
            self.read = Access {
                block: MANY,
                ..*now
            };
        } else if earlier.epoch == now.epoch && earlier.warp != now.warp {
            self.read = Access {
                warp: MANY,
                thread: MANY,
                ..*now
            };
        } else if earlier.epoch == now.epoch && earlier.thread != now.thread {
            self.read = Access {
                thread: MANY,
                ..*now
            };
        }
        Ok(())
    }

    /// Notes a write.
    ///
    /// # Errors
    /// A read or a write that is not ordered before it.
    pub(crate) fn write(
        &mut self,
        now: &Access,
        blocks_share: bool,
        address: u64,
    ) -> Result<(), FaultKind> {
        for earlier in [&self.write, &self.read] {
            if !earlier.before(now, blocks_share) {
                return Err(earlier.race(address));
            }
        }
        *self = Self {
            write: *now,
            read: NEVER,
        };
        Ok(())
    }
}
