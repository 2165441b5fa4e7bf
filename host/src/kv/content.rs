//! What a full block holds, as a number: a chained, fixed hash of its tokens and all before them.
//!
//! ```text
//! root(salt)  = blake3("lockstep kv content 1" ‖ len(salt) as u64 LE ‖ salt)   (no salt: len 2^64-1)
//! id(parent, tokens) = blake3(parent ‖ each token as u32 LE)
//! ```
//! The hash has no key and no seed: ids are equal in every process, on every machine, for ever.

use std::fmt;

use crate::batch::TokenId;

const DOMAIN: &[u8] = b"lockstep kv content 1";

/// The content of one full block, and of everything before it in its sequence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContentId([u8; 32]);

impl ContentId {
    /// What the first block of a sequence has as its parent. Different salts share nothing.
    pub fn root(salt: Option<&str>) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(DOMAIN);
        // No text is so long: an absent salt differs from every salt, the empty one included.
        let len = salt.map_or(u64::MAX, |salt| salt.len() as u64);
        hasher.update(&len.to_le_bytes());
        hasher.update(salt.unwrap_or_default().as_bytes());
        Self(*hasher.finalize().as_bytes())
    }

    /// The content of the block with these tokens behind this content.
    pub fn child(self, tokens: &[TokenId]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0);
        let mut bytes = [0; 256];
        for part in tokens.chunks(bytes.len() / 4) {
            for (to, token) in bytes.chunks_exact_mut(4).zip(part) {
                to.copy_from_slice(&token.to_le_bytes());
            }
            hasher.update(&bytes[..part.len() * 4]);
        }
        Self(*hasher.finalize().as_bytes())
    }

    /// The 32 bytes of the hash.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Its first eight bytes, little endian: uniform, so a table can place it by them.
    pub(super) fn bucket(&self) -> u64 {
        let mut low = [0; 8];
        low.copy_from_slice(&self.0[..8]);
        u64::from_le_bytes(low)
    }
}

impl serde::Serialize for ContentId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for ContentId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let digits = <std::borrow::Cow<'_, str>>::deserialize(deserializer)?;
        blake3::Hash::from_hex(digits.as_bytes())
            .map(|hash| Self(*hash.as_bytes()))
            .map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for ContentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ContentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regenerate by printing the left side; a change is a new domain string.
    #[test]
    fn content_ids_are_the_published_vectors() {
        let root = ContentId::root(None);
        let salted = ContentId::root(Some("tenant-a"));
        let tokens: Vec<TokenId> = (0..16).collect();
        let first = root.child(&tokens);
        let second = first.child(&tokens);
        let long = root.child(&(0..200).collect::<Vec<_>>());
        let seen = [root, salted, first, second, long].map(|id| id.to_string());
        assert_eq!(seen, VECTORS);
    }

    const VECTORS: [&str; 5] = [
        "d3747004c388ea63b7d9eba7afb17746d593c7f373c69415e2c6f2a585b72d8c",
        "c18f9c3147478c8a4657e46ed7839a485adba2927d019b178e02120829939c85",
        "8c7d183af3644e24e4a9965362d6c7e52bc60325033c1984d6d3ff22e807596f",
        "7a0883c74784d2e75332036c174e9e57887bed2b260a55a8379bab627fb5a2d0",
        "dd9d8ba7181dcc9e947a5a7f1b0a715c1624c62b6d6e3450176c679812cdf76c",
    ];

    #[test]
    fn content_tells_salts_parents_and_order_apart() {
        let root = ContentId::root(None);
        assert_ne!(root, ContentId::root(Some("")));
        assert_ne!(root.child(&[1, 2]), root.child(&[2, 1]));
        assert_ne!(root.child(&[1]), ContentId::root(Some("")).child(&[1]));
        assert_ne!(root.child(&[1]).child(&[1]), root.child(&[1]));
        assert_eq!(root.child(&[7, 8]), ContentId::root(None).child(&[7, 8]));
    }
}
