//! The one harness of the whole-product tests.

mod chat;
mod simulation;
mod http;
mod tokenizer;
