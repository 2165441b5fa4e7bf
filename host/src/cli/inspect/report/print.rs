//! The report for people: one line a fact, names to the left.

use std::fmt;

use super::{MemoryPart, ModelPart, Part, Report, TokenizerPart, TypeCount};

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unknown = || "unknown".to_owned();
        line(
            f,
            "file",
            format!("{} ({})", self.path, Bytes(self.file_bytes)),
        )?;
        line(
            f,
            "format",
            format!("GGUF {}, BLAKE3 {}", self.gguf_version, self.blake3),
        )?;
        line(
            f,
            "name",
            format!("{:?}", self.name.clone().unwrap_or_else(unknown)),
        )?;
        line(
            f,
            "architecture",
            self.architecture
                .clone()
                .unwrap_or_else(unknown)
                .escape_debug(),
        )?;
        line(
            f,
            "parameters",
            format!("{:.1} million", self.parameters as f64 / 1e6),
        )?;
        for (name, count) in &self.tensors {
            let TypeCount { tensors, bytes, .. } = count;
            line(
                f,
                "tensors",
                format!("{tensors} of {name}, {}", Bytes(*bytes)),
            )?;
        }
        part(f, "model", &self.model)?;
        part(f, "tokenizer", &self.tokenizer)?;
        let why = self
            .chat_template_error
            .as_ref()
            .map(|why| format!(": {why}"));
        let template = self.chat_template;
        line(
            f,
            "chat template",
            format!("{template}{}", why.unwrap_or_default()),
        )?;
        part(f, "memory", &self.memory)?;
        match &self.device {
            Part::Read(device) => line(f, "device", device)?,
            Part::Unread { error } => line(f, "device", format!("not usable: {error}"))?,
        }
        match &self.refusal {
            Some(refusal) => line(f, "serving", format!("refused: {refusal}")),
            None => Ok(()),
        }
    }
}

fn line(f: &mut fmt::Formatter<'_>, name: &str, value: impl fmt::Display) -> fmt::Result {
    writeln!(f, "{name:<15}{value}")
}

fn part<T: fmt::Display>(f: &mut fmt::Formatter<'_>, name: &str, part: &Part<T>) -> fmt::Result {
    match part {
        Part::Read(part) => write!(f, "{part}"),
        Part::Unread { error } => line(f, name, format!("not usable: {error}")),
    }
}

impl fmt::Display for ModelPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            layers,
            embedding_length,
            feed_forward_length,
            ..
        } = self;
        let Self {
            heads,
            kv_heads,
            head_dim,
            ..
        } = self;
        line(f, "context", format!("{} tokens", self.context_length))?;
        line(
            f,
            "layers",
            format!("{layers} of {embedding_length} x {feed_forward_length}"),
        )?;
        line(
            f,
            "heads",
            format!("{heads} of {head_dim}, {kv_heads} for keys and values"),
        )
    }
}

impl fmt::Display for TokenizerPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            model,
            pre_tokenizer,
            tokens,
            end_of_generation,
            ..
        } = self;
        line(
            f,
            "tokenizer",
            format!("{model}, {pre_tokenizer}, {tokens} tokens"),
        )?;
        line(f, "ends at", format!("tokens {end_of_generation:?}"))
    }
}

impl fmt::Display for MemoryPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            num_blocks,
            block_size,
            kv_cache_dtype,
            kv_tokens,
            ..
        } = self;
        let Self {
            max_num_seqs,
            max_model_len,
            ..
        } = self;
        let pool = format!("{num_blocks} blocks of {block_size} = {kv_tokens} tokens");
        line(
            f,
            "KV cache",
            format!(
                "{kv_cache_dtype}, {} a token, {pool}",
                Bytes(self.kv_bytes_per_token)
            ),
        )?;
        let limits = format!("for {max_num_seqs} sequences of up to {max_model_len} tokens");
        line(f, "memory", format!("{} {limits}", Bytes(self.total_bytes)))?;
        for (name, bytes) in &self.items {
            line(f, "", format!("{:>10}  {name}", Bytes(*bytes).to_string()))?;
        }
        Ok(())
    }
}

/// A size for people.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        match self.0 {
            0..1_024 => write!(f, "{} B", self.0),
            1_024..1_048_576 => write!(f, "{:.1} KiB", bytes / 1_024.0),
            1_048_576..1_073_741_824 => write!(f, "{:.1} MiB", bytes / 1_048_576.0),
            _ => write!(f, "{:.2} GiB", bytes / 1_073_741_824.0),
        }
    }
}
