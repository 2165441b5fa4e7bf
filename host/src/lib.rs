//! Lockstep: an LLM serving engine whose every answer and every decision can be reproduced.
//!
//! The outside world is put in order at one door ([`intake`]) and written down ([`journal`]);
//! everything behind that door is a function. `ARCHITECTURE.md` says where things live.

pub mod backend;
pub mod batch;
pub mod chat;
pub mod cli;
pub mod clock;
pub mod config;
pub mod engine;
pub mod gguf;
pub mod http;
pub mod hub;
pub mod intake;
pub mod journal;
pub mod kv;
pub mod metrics;
pub mod model;
pub mod profile;
pub mod request;
pub mod sampler;
pub mod scheduler;
pub mod simulation;
pub mod start;
pub mod structured;
pub mod tokenizer;
