//! The backends: memory and arithmetic.
