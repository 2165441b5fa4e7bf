"""Reference logits for the parity tests.

    parity.py MODEL TOKENS OUT

MODEL is a GGUF file of a Llama model, TOKENS a JSON array of token ids. Into the folder OUT go
`original.f32` (the logits of every position, little-endian f32, of the weights as MODEL has them),
`f32.gguf` (the same weights as F32), and `f16.gguf` with `f16.f32` (the weights rounded to F16, and
their logits). The perplexities of the two go to standard output as JSON.
"""

import json
import pathlib
import sys

import gguf
import numpy as np

from llama import Llama, perplexity


def rewrite(source, target, tensors, dtype):
    """Writes the model's metadata with its weights as `dtype`; vectors stay f32."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "llama")
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        kind = field.types[0]
        element = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, element)
    for name, values in tensors.items():
        writer.add_tensor(name, values.astype(dtype if values.ndim > 1 else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main(model, tokens, out):
    tokens = json.loads(pathlib.Path(tokens).read_text())
    out = pathlib.Path(out)
    llama = Llama(model)
    rewrite(model, out / "f32.gguf", llama.tensors, np.float32)
    rewrite(model, out / "f16.gguf", llama.tensors, np.float16)
    values = {}
    for name in ("original", "f16"):
        if name == "f16":
            llama.tensors = {
                name: t.astype(np.float16).astype(np.float32) if t.ndim > 1 else t
                for name, t in llama.tensors.items()
            }
        logits = llama.logits(tokens)
        logits.astype("<f4").tofile(out / f"{name}.f32")
        values[name] = perplexity(logits, tokens)
    print(json.dumps(values))


if __name__ == "__main__":
    main(*sys.argv[1:])
