//! Prints every digest on every path of a 64-bit Arm under Linux: without a standard library, since
//! none is there for the target.
#![no_std]
#![no_main]

extern crate alloc;

use core::arch::{asm, global_asm};
use core::fmt::{self, Write};
use core::panic::PanicInfo;

use lockstep_simd::Isa;

mod memory;
#[path = "../../vectors/mod.rs"]
mod vectors;

/// The kernel's numbers of the two calls that are needed.
const WRITE: u64 = 64;
const EXIT: u64 = 93;
/// The auxiliary vector's entry with the processor's features, and the bit of the dot product.
const AT_HWCAP: u64 = 16;
const HWCAP_ASIMDDP: u64 = 1 << 20;

global_asm!(
    ".globl _start",
    "_start:",
    "mov x0, sp",
    "bl {main}",
    main = sym main
);

/// The program, with the stack as the kernel gives it.
///
/// # Safety
/// Only the kernel calls it.
unsafe extern "C" fn main(stack: *const u64) -> ! {
    // SAFETY: as the kernel lays the stack out.
    let dotprod = unsafe { features(stack) } & HWCAP_ASIMDDP != 0;
    let kernels = [Isa::Scalar, Isa::Neon, Isa::NeonDotprod];
    let kernels = &kernels[..if dotprod { 3 } else { 2 }];
    let printed = vectors::run(kernels.iter().copied(), &mut Output);
    exit(u64::from(printed.is_err()))
}

/// The processor's features: behind the arguments and the environment, each ended by a null.
///
/// # Safety
/// The stack is as the kernel lays it out.
unsafe fn features(stack: *const u64) -> u64 {
    // SAFETY: as the kernel lays the stack out.
    unsafe {
        let arguments = *stack as usize;
        let mut at = stack.add(1 + arguments + 1);
        while *at != 0 {
            at = at.add(1);
        }
        at = at.add(1);
        while *at != 0 {
            if *at == AT_HWCAP {
                return *at.add(1);
            }
            at = at.add(2);
        }
        0
    }
}

fn exit(code: u64) -> ! {
    // SAFETY: the call does not return.
    unsafe { asm!("svc 0", in("x8") EXIT, in("x0") code, options(noreturn)) }
}

/// Standard output.
struct Output;

impl Write for Output {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut text = text;
        while !text.is_empty() {
            let written: isize;
            // SAFETY: the bytes are there; the kernel changes nothing else.
            unsafe {
                asm!(
                    "svc 0",
                    in("x8") WRITE,
                    inlateout("x0") 1_isize => written,
                    in("x1") text.as_ptr(),
                    in("x2") text.len()
                );
            }
            let written = usize::try_from(written).map_err(|_| fmt::Error)?;
            text = text.get(written..).ok_or(fmt::Error)?;
        }
        Ok(())
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let _ = writeln!(Output, "{info}");
    exit(101)
}
