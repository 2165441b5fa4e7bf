//! The one harness of the whole-product tests.

mod chat;
mod determinism;
mod eviction;
mod http;
mod parity;
mod scenarios;
mod simulation;
mod tokenizer;
