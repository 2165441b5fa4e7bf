//! Names of answers.

use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};

/// Gives each answer a name that no other of this process has.
#[derive(Debug)]
pub(super) struct IdSource {
    key: [u8; 32],
    /// Entropy of the system, for names that nobody may guess.
    secret: Option<[u8; 32]>,
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
            secret: system_entropy(),
            given: AtomicU64::new(0),
        }
    }

    /// The next name: the prefix and 24 hexadecimal digits.
    pub(super) fn next_id(&self, prefix: &str) -> String {
        let number = self.given.fetch_add(1, Ordering::Relaxed);
        named(prefix, &self.key, number)
    }

    /// A name that nobody can guess; `None` where the system has no entropy to give.
    pub(super) fn secret(&self, prefix: &str) -> Option<String> {
        let number = self.given.fetch_add(1, Ordering::Relaxed);
        Some(named(prefix, self.secret.as_ref()?, number))
    }
}

fn named(prefix: &str, key: &[u8; 32], number: u64) -> String {
    let digest = blake3::keyed_hash(key, &number.to_le_bytes());
    let mut id = String::with_capacity(prefix.len() + 24);
    id.push_str(prefix);
    for byte in digest.as_bytes().iter().take(12) {
        // Writing to a string cannot fail.
        let _ = write!(id, "{byte:02x}");
    }
    id
}

/// It names streams and reaches nothing else: no plan, no record, no token.
fn system_entropy() -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    let mut device = File::open("/dev/urandom").ok()?;
    device.read_exact(&mut bytes).ok()?;
    Some(bytes)
}
