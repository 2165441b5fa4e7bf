"""A Llama model in numpy: an independent implementation that Lockstep's logits are compared with.

Weights are dequantised by the gguf package; everything after that is plain f32 (sums by BLAS), with
no quantised activations, no cache and no batching. It is slow and short on purpose.
"""

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize


class Llama:
    """The weights of a GGUF file, as f32, and the forward pass over them."""

    def __init__(self, path):
        reader = GGUFReader(path)
        self.tensors = {
            t.name: dequantize(t.data, t.tensor_type).astype(np.float32).reshape(
                [int(d) for d in reversed(t.shape)]
            )
            for t in reader.tensors
        }

        def key(name, default=None):
            field = reader.fields.get("llama." + name)
            return default if field is None else field.contents()

        self.layers = key("block_count")
        self.heads = key("attention.head_count")
        self.kv_heads = key("attention.head_count_kv", self.heads)
        self.epsilon = np.float32(key("attention.layer_norm_rms_epsilon"))
        self.head_dim = key("attention.key_length", key("embedding_length") // self.heads)
        self.rope_base = key("rope.freq_base", 10000.0)

    def norm(self, x, name):
        mean_square = np.mean(np.square(x), axis=-1, keepdims=True, dtype=np.float32)
        return x / np.sqrt(mean_square + self.epsilon) * self.tensors[name]

    def rotate(self, x):
        """Turns the adjacent pairs of every head of (positions, heads, head_dim)."""
        pairs = np.arange(self.head_dim // 2, dtype=np.float64)
        frequencies = self.rope_base ** (-2.0 * pairs / self.head_dim)
        angles = np.arange(x.shape[0], dtype=np.float64)[:, None] * frequencies
        turn = np.exp(1j * angles).astype(np.complex64)[:, None, :]
        turned = (x[..., 0::2] + 1j * x[..., 1::2]) * turn
        return np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape).astype(np.float32)

    def attention(self, x, layer):
        positions = x.shape[0]

        def heads(name, count):
            weight = self.tensors[f"blk.{layer}.{name}.weight"]
            return (x @ weight.T).reshape(positions, count, self.head_dim)

        query = self.rotate(heads("attn_q", self.heads))
        key = self.rotate(heads("attn_k", self.kv_heads))
        value = heads("attn_v", self.kv_heads)
        masked = np.triu(np.ones((positions, positions), dtype=bool), 1)
        out = np.empty_like(query)
        for head in range(self.heads):
            shared = head * self.kv_heads // self.heads
            scores = query[:, head] @ key[:, shared].T / np.sqrt(np.float32(self.head_dim))
            scores = np.where(masked, -np.inf, scores)
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            weights /= weights.sum(axis=-1, keepdims=True)
            out[:, head] = weights @ value[:, shared]
        return out.reshape(positions, -1) @ self.tensors[f"blk.{layer}.attn_output.weight"].T

    def feed_forward(self, x, layer):
        gate, up, down = (
            self.tensors[f"blk.{layer}.ffn_{part}.weight"] for part in ("gate", "up", "down")
        )
        gated = x @ gate.T
        return (gated / (1.0 + np.exp(-gated)) * (x @ up.T)) @ down.T

    def logits(self, tokens):
        """The logits after every one of the tokens: (positions, vocabulary)."""
        x = self.tensors["token_embd.weight"][np.asarray(tokens)]
        for layer in range(self.layers):
            x = x + self.attention(self.norm(x, f"blk.{layer}.attn_norm.weight"), layer)
            x = x + self.feed_forward(self.norm(x, f"blk.{layer}.ffn_norm.weight"), layer)
        output = self.tensors.get("output.weight", self.tensors["token_embd.weight"])
        return self.norm(x, "output_norm.weight") @ output.T


def perplexity(logits, tokens):
    """exp of the mean negative log-likelihood of tokens 1.. given those before."""
    logits = logits[:-1].astype(np.float64)
    logits -= logits.max(axis=-1, keepdims=True)
    chosen = logits[np.arange(len(tokens) - 1), np.asarray(tokens[1:])]
    return float(np.exp(np.mean(np.log(np.exp(logits).sum(axis=-1)) - chosen)))
