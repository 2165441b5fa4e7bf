//! The bytes of a file: a memory map, or a vector in tests.

use std::fs::File;
use std::ops::Deref;
use std::path::Path;

use memmap2::Mmap;

use super::GgufError;

/// A file's bytes, wherever they are.
#[derive(Debug)]
pub(super) enum FileBytes {
    Mapped(Mmap),
    Owned(Vec<u8>),
}

impl FileBytes {
    pub(super) fn map(path: &Path) -> Result<Self, GgufError> {
        let failed = |source| GgufError::Open {
            path: path.into(),
            source,
        };
        // Asked before opening: to open a pipe is to wait for its writer.
        let metadata = std::fs::metadata(path).map_err(failed)?;
        if !metadata.is_file() {
            return Err(GgufError::NotRegularFile { path: path.into() });
        }
        let file = File::open(path).map_err(failed)?;
        // SAFETY: the map is read-only and private, and lives as long as its borrowers. What the
        // compiler cannot know is that nobody else changes the file underneath: a writer would
        // change bytes that are borrowed here, and a truncation would end the process with
        // SIGBUS. Model files are replaced by renaming, never rewritten (so `pull` does), and
        // everything that must stay valid once checked (texts, lengths, offsets) is copied out of
        // the map; what is read from it later is numbers, for which every bit pattern is valid.
        let map = unsafe { Mmap::map(&file) }.map_err(failed)?;
        Ok(Self::Mapped(map))
    }

    pub(super) const fn owned(bytes: Vec<u8>) -> Self {
        Self::Owned(bytes)
    }
}

impl Deref for FileBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Owned(bytes) => bytes,
        }
    }
}
