//! Text to ids and back.

pub mod byte_level;
