"""Reference logits for the parity tests.

    parity.py MODEL TOKENS OUT NAME...

MODEL is a GGUF file of a Llama model, TOKENS a JSON array of token ids. Into the folder OUT goes for
every NAME of a format the model with its matrices in that format (`NAME.gguf`) and the logits of
every position (`NAME.f32`, little-endian) that its dequantised weights give. Those of F32 are MODEL's
own. The embedding of quantised ones is Q8_0, and so is whatever has rows that are no multiple of the
format's block; Q2_K is in a few layers only. The perplexities go to standard output as JSON, by NAME.
"""

import json
import pathlib
import sys

import gguf
import numpy as np
from gguf import GGML_QUANT_SIZES
from gguf import GGMLQuantizationType as Kind
from gguf.quants import dequantize, quantize

from encode import ENCODERS, encode
from llama import Llama, perplexity

DENSE = (Kind.F32, Kind.F16, Kind.BF16)
# The layers that Q2_K is used in: some of all thirty.
TWO_BIT_LAYERS = tuple(f"blk.{layer}." for layer in range(2, 30, 6))


def in_format(values, name, kind):
    """A tensor's own format in a model whose matrices are `kind`."""
    if values.ndim == 1:
        return Kind.F32
    if kind in DENSE:
        return kind
    whole = values.shape[-1] % GGML_QUANT_SIZES[kind][0] == 0
    # Two bits for a fifth of all weights would leave nothing of the model to compare.
    spared = kind == Kind.Q2_K and not name.startswith(TWO_BIT_LAYERS)
    return kind if whole and not spared and name != "token_embd.weight" else Kind.Q8_0


def packed(values, kind):
    """A tensor in a format, and what it decodes to."""
    data = encode(values, kind) if kind in ENCODERS else quantize(values, kind)
    decoded = dequantize(data, kind).astype(np.float32).reshape(values.shape)
    error = np.linalg.norm(decoded - values) / np.linalg.norm(values)
    assert error < 0.4, f"{kind.name} is {error} off: its encoder is wrong"
    return data, decoded


def rewrite(source, target, tensors, kind, cache):
    """Writes the model with its matrices as `kind`; returns its weights as they then decode.

    `cache` keeps what several models have in common.
    """
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "llama")
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        value_type = field.types[0]
        element = field.types[-1] if value_type == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), value_type, element)
    decoded = {}
    for name, values in tensors.items():
        own = in_format(values, name, kind)
        if own != Kind.Q8_0:
            data, decoded[name] = packed(values, own)
        else:
            if name not in cache:
                cache[name] = packed(values, own)
            data, decoded[name] = cache[name]
        writer.add_tensor(name, data, raw_dtype=own)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return decoded


def main(model, tokens, out, *names):
    tokens = json.loads(pathlib.Path(tokens).read_text())
    out = pathlib.Path(out)
    llama = Llama(model)
    original = llama.tensors
    values, cache = {}, {}
    for kind in map(Kind.__getitem__, names):
        llama.tensors = rewrite(model, out / f"{kind.name}.gguf", original, kind, cache)
        logits = llama.logits(tokens)
        logits.astype("<f4").tofile(out / f"{kind.name}.f32")
        values[kind.name] = perplexity(logits, tokens)
    print(json.dumps(values))


if __name__ == "__main__":
    main(*sys.argv[1:])
