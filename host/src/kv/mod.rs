//! KV blocks as numbers: the pool, its reference counts, and the index of what full blocks hold.
//!
//! There is no memory in here. A block is *free* (nothing worth keeping), *referenced* (by so many
//! sequences), or *cached* (unreferenced, but its content may be found again).

mod checkpoint;
mod content;
mod evictable;
mod index;
mod pool;

pub use checkpoint::PoolCheckpoint;
pub use content::ContentId;
pub use pool::BlockPool;
