"""Random blocks of every quantised format, and what the gguf package decodes them to.

    decode.py OUT

Into the folder OUT go NAME.bin (rows of 512 elements) and NAME.f32 (their values, little-endian).
"""

import pathlib
import sys

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

# Where a block keeps f16 numbers: those must not be infinite or NaN.
SCALES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "IQ4_NL": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
    "IQ4_XS": [0], "MXFP4": [],
}


def main(out):
    random = np.random.default_rng(20)
    for name, scales in SCALES.items():
        kind = GGMLQuantizationType[name]
        elements, size = GGML_QUANT_SIZES[kind]
        blocks = random.integers(0, 256, (64 * 512 // elements, size), dtype=np.uint8)
        for offset in scales:
            numbers = random.normal(0, 0.05, len(blocks)).astype("<f2")
            numbers[:4] = [0.0, -0.0, 6e-8, 65504.0]
            blocks[:, offset:offset + 2] = numbers.view(np.uint8).reshape(-1, 2)
        if name == "MXFP4":
            # 255 is no number in the standard; the package gives it a value.
            blocks[:, 0] = random.integers(0, 200, len(blocks))
        rows = blocks.reshape(64, -1)
        rows.tofile(pathlib.Path(out) / f"{name}.bin")
        dequantize(rows, kind).astype("<f4").tofile(pathlib.Path(out) / f"{name}.f32")


if __name__ == "__main__":
    main(*sys.argv[1:])
