//! The one harness of the whole-product tests.

mod chat;
mod tokenizer;
