//! The one harness of the whole-product tests.

mod chat;
mod simulation;
mod tokenizer;
