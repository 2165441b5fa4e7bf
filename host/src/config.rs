//! The configuration, parsed and checked in one step.
