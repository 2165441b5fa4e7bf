//! The log of inputs and plans.
