//! Prints every decision through the debugger's channel and exits with its outcome.
#![no_std]
#![no_main]

use core::panic::PanicInfo;

use cortex_m_rt::entry;
use cortex_m_semihosting::{debug, hio, hprintln};

#[path = "../../decisions.rs"]
mod decisions;

#[entry]
fn main() -> ! {
    let outcome = hio::hstdout().map(|mut out| decisions::decide(&mut out));
    match outcome {
        Ok(Ok(())) => debug::exit(debug::EXIT_SUCCESS),
        other => {
            hprintln!("the decisions could not be printed: {:?}", other);
            debug::exit(debug::EXIT_FAILURE);
        }
    }
    loop {}
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    hprintln!("{}", info);
    debug::exit(debug::EXIT_FAILURE);
    loop {}
}
