//! The one harness of the whole-product tests.

mod chat;
mod http;
mod simulation;
mod tokenizer;
