//! Lockstep's PTX kernels and the table that says how each is launched.
