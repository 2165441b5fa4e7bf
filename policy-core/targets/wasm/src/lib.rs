//! Prints every decision into the module's own memory, where the page reads it.
#![no_std]

use core::fmt;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicU8, Ordering};

#[path = "../../decisions.rs"]
mod decisions;

const ROOM: usize = 8192;

/// Atomics, so that the module needs no unsafe code to have a global buffer.
static TEXT: [AtomicU8; ROOM] = [const { AtomicU8::new(0) }; ROOM];

/// Makes every decision and returns how many bytes of text there are, or -1 where it failed.
#[unsafe(no_mangle)]
pub extern "C" fn decide() -> i32 {
    let mut out = Text { written: 0 };
    match decisions::decide(&mut out) {
        Ok(()) => i32::try_from(out.written).unwrap_or(-1),
        Err(_) => -1,
    }
}

/// Where the text begins.
#[unsafe(no_mangle)]
pub extern "C" fn text() -> *const u8 {
    TEXT.as_ptr().cast()
}

struct Text {
    written: usize,
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            let place = TEXT.get(self.written).ok_or(fmt::Error)?;
            place.store(byte, Ordering::Relaxed);
            self.written += 1;
        }
        Ok(())
    }
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    core::arch::wasm32::unreachable()
}
