//! The one harness of the whole-product tests.

mod chat;
mod scenarios;
mod simulation;
mod tokenizer;
