//! Where a template writes: a text with a longest length.

use std::io;

/// A writer that fails as soon as more than its limit is written.
#[derive(Debug)]
pub(super) struct Bounded {
    bytes: Vec<u8>,
    limit: usize,
    over: bool,
}

impl Bounded {
    pub(super) const fn new(limit: usize) -> Self {
        Self {
            bytes: Vec::new(),
            limit,
            over: false,
        }
    }

    /// Whether more was written than fits.
    pub(super) const fn is_over(&self) -> bool {
        self.over
    }

    /// What was written, if it is UTF-8.
    pub(super) fn into_text(self) -> Option<String> {
        String::from_utf8(self.bytes).ok()
    }
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.limit - self.bytes.len() {
            self.over = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
