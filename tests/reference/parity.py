"""Reference logits for the parity tests.

    parity.py MODEL TOKENS OUT

MODEL is a GGUF file of a Llama model, TOKENS a JSON array of token ids. Into the folder OUT goes for
every NAME of F32, F16, BF16, Q4_0, Q5_0, Q5_1 and Q8_0 the model with its matrices in that format
(`NAME.gguf`; the embedding of quantised ones is Q8_0) and the logits of every position
(`NAME.f32`, little-endian) that its dequantised weights give. Those of F32 are MODEL's own. The
perplexities go to standard output as JSON, by NAME.
"""

import json
import pathlib
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind
from gguf.quants import dequantize, quantize

from llama import Llama, perplexity

DENSE = (Kind.F32, Kind.F16, Kind.BF16)


def rewrite(source, target, tensors, kind):
    """Writes the model with its matrices as `kind`; returns its weights as they then decode."""
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
        own = kind
        if values.ndim == 1:
            own = Kind.F32
        elif name == "token_embd.weight" and kind not in DENSE:
            own = Kind.Q8_0
        data = quantize(values, own)
        decoded[name] = dequantize(data, own).astype(np.float32).reshape(values.shape)
        writer.add_tensor(name, data, raw_dtype=own)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return decoded


def main(model, tokens, out):
    tokens = json.loads(pathlib.Path(tokens).read_text())
    out = pathlib.Path(out)
    llama = Llama(model)
    original = llama.tensors
    values = {}
    for kind in (*DENSE, Kind.Q4_0, Kind.Q5_0, Kind.Q5_1, Kind.Q8_0):
        llama.tensors = rewrite(model, out / f"{kind.name}.gguf", original, kind)
        logits = llama.logits(tokens)
        logits.astype("<f4").tofile(out / f"{kind.name}.f32")
        values[kind.name] = perplexity(logits, tokens)
    print(json.dumps(values))


if __name__ == "__main__":
    main(*sys.argv[1:])
