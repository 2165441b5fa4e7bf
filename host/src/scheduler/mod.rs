//! The pure state machine that plans each step.
