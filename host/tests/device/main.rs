//! The program with `--device`, where the driver is a stand-in over the PTX interpreter, broken, or
//! absent: never a GPU.

mod faults;
mod journals;
mod prepared;
mod program;
mod ranks;
mod same_bits;
mod starts;
