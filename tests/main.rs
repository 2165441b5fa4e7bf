//! The one harness of the whole-product tests.

mod chat;
mod http;
mod scenarios;
mod simulation;
mod tokenizer;
