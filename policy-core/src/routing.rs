//! Which worker gets a request: rendezvous hashing, the same on every machine.
//!
//! Each worker has a score for each request key, a hash of both; the least score wins. No table is
//! kept and nothing is counted, so two routers that know the same workers agree without talking,
//! and when a worker goes, only its own requests move, each to its runner-up.
//!
//! # The hash
//! [`score`] is SipHash-2-4 (Aumasson and Bernstein, 2012) with the 128-bit key
//! `"lockstep/routing"` in ASCII, over the bytes of the request key followed by the eight bytes of
//! the worker id, least significant first. It is part of this crate's contract: another hash, key
//! or layout would be another function, with another name. The key is public, and whoever chooses
//! request keys can therefore choose their worker: hash untrusted text under a secret first.

use core::fmt;

use crate::order::{Choice, DuplicateId, Identified, select_least};

/// A worker's number, the same on every router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(u64);

impl WorkerId {
    /// The id with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number of this id.
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl Identified for WorkerId {
    type Id = Self;

    fn id(&self) -> Self {
        *self
    }
}

/// The worker for a request, and the one to fall back on; `None` where there are no workers.
///
/// `request_key` is what should stay together: a session, a tenant, a prompt's first blocks.
/// O(n · length of the key) time, one pass, no allocation; the order of `workers` does not matter.
/// Two workers may score alike; the worker id, which ends the rank, still separates them.
///
/// # Errors
/// [`DuplicateId`] where two of the three least-scored workers have one id
/// (see [`crate::order`]).
///
/// ```
/// use policy_core::{WorkerId, select_worker};
/// let workers = [0, 1, 2, 3].map(WorkerId::new);
/// let choice = select_worker(b"session 42", workers)?.unwrap();
/// assert_eq!(choice.winner, WorkerId::new(3));
///
/// // The chosen worker goes: the request moves to its runner-up, whatever order the rest is in.
/// let rest = [2, 0, 1].map(WorkerId::new);
/// assert_eq!(select_worker(b"session 42", rest)?.unwrap().winner, choice.runner_up.unwrap());
/// # Ok::<(), policy_core::DuplicateId<WorkerId>>(())
/// ```
pub fn select_worker<T: Identified<Id = WorkerId>>(
    request_key: &[u8],
    workers: impl IntoIterator<Item = T>,
) -> Result<Option<Choice<T>>, DuplicateId<WorkerId>> {
    // `select_least` appends the worker id: it is what makes a tie of scores impossible.
    select_least(workers, |worker| score(request_key, worker.id()))
}

/// The score of a worker for a request key: the least one wins (see [the hash](self#the-hash)).
///
/// O(length of the key).
///
/// ```
/// use policy_core::{WorkerId, routing::score};
/// assert_eq!(score(b"session 42", WorkerId::new(3)), 0x160a_7201_18b7_2a5f);
/// ```
pub fn score(request_key: &[u8], worker: WorkerId) -> u64 {
    const KEY: [u64; 2] = [
        u64::from_le_bytes(*b"lockstep"),
        u64::from_le_bytes(*b"/routing"),
    ];
    let mut hash = SipHash24::new(KEY);
    hash.write(request_key);
    hash.write(&worker.number().to_le_bytes());
    hash.finish()
}

/// SipHash-2-4, byte by byte: small rather than fast, and without an index that could be wrong.
struct SipHash24 {
    v: [u64; 4],
    word: u64,
    length: u8,
}

impl SipHash24 {
    const fn new([k0, k1]: [u64; 2]) -> Self {
        Self {
            v: [
                k0 ^ 0x736f_6d65_7073_6575,
                k1 ^ 0x646f_7261_6e64_6f6d,
                k0 ^ 0x6c79_6765_6e65_7261,
                k1 ^ 0x7465_6462_7974_6573,
            ],
            word: 0,
            length: 0,
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.word |= u64::from(byte) << (8 * u32::from(self.length % 8));
            // The specification keeps the length modulo 256.
            self.length = self.length.wrapping_add(1);
            if self.length.is_multiple_of(8) {
                self.absorb(self.word);
                self.word = 0;
            }
        }
    }

    fn absorb(&mut self, word: u64) {
        self.v[3] ^= word;
        self.round();
        self.round();
        self.v[0] ^= word;
    }

    fn finish(mut self) -> u64 {
        self.absorb(self.word | u64::from(self.length) << 56);
        self.v[2] ^= 0xff;
        for _ in 0..4 {
            self.round();
        }
        let [a, b, c, d] = self.v;
        a ^ b ^ c ^ d
    }

    const fn round(&mut self) {
        let [mut a, mut b, mut c, mut d] = self.v;
        a = a.wrapping_add(b);
        c = c.wrapping_add(d);
        b = b.rotate_left(13) ^ a;
        d = d.rotate_left(16) ^ c;
        a = a.rotate_left(32);
        c = c.wrapping_add(b);
        a = a.wrapping_add(d);
        b = b.rotate_left(17) ^ c;
        d = d.rotate_left(21) ^ a;
        c = c.rotate_left(32);
        self.v = [a, b, c, d];
    }
}

#[cfg(test)]
mod tests {
    use super::SipHash24;

    fn hash(bytes: &[u8]) -> u64 {
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        let mut hash = SipHash24::new(key);
        hash.write(bytes);
        hash.finish()
    }

    #[test]
    fn the_vectors_of_the_paper_and_of_its_reference_code() {
        assert_eq!(
            hash(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]),
            0xa129_ca61_49be_45e5
        );
        assert_eq!(hash(&[]), 0x726f_db47_dd0e_0e31);
        assert_eq!(hash(&[0]), 0x74f8_39c5_93dc_67fd);
        assert_eq!(hash(&[0, 1, 2, 3, 4, 5, 6, 7]), 0x93f5_f579_9a93_2462);
    }
}
