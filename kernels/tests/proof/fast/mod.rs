//! The `fast` profile: its rules as plain Rust, in the order in which the interpreter's tensor cores
//! add; its kernels against them bit for bit, and against exact arithmetic within a derived bound.

mod bound;
pub(crate) mod cases;
pub(crate) mod device;
mod invariance;
mod parts;
mod rules;
