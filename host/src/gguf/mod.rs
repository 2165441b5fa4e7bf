//! Model files in the GGUF format.
