//! The KV block pool and its prefix index: ids and counts, no memory.
