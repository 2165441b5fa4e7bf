//! The one harness of the whole-product tests.

mod chat;
mod determinism;
mod eviction;
mod failures;
mod http;
mod parity;
mod scenarios;
mod simulation;
mod structured;
mod tokenizer;
