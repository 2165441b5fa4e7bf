//! Names of answers.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

/// Gives each answer a name that no other of this process has.
#[derive(Debug)]
pub(super) struct IdSource {
    key: [u8; 32],
    given: AtomicU64,
}

impl IdSource {
    /// A source for a server with this seed that was started then, in Unix seconds.
    pub(super) fn new(seed: u64, started: u64) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("lockstep 2026 names of answers");
        hasher.update(&seed.to_le_bytes());
        hasher.update(&started.to_le_bytes());
        Self {
            key: *hasher.finalize().as_bytes(),
            given: AtomicU64::new(0),
        }
    }

    /// The next name: the prefix and 24 hexadecimal digits.
    pub(super) fn next_id(&self, prefix: &str) -> String {
        let number = self.given.fetch_add(1, Ordering::Relaxed);
        let digest = blake3::keyed_hash(&self.key, &number.to_le_bytes());
        let mut id = String::with_capacity(prefix.len() + 24);
        id.push_str(prefix);
        for byte in digest.as_bytes().iter().take(12) {
            // Writing to a string cannot fail.
            let _ = write!(id, "{byte:02x}");
        }
        id
    }
}
