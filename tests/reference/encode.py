"""Encoders for the formats that the gguf package decodes only: nearest codes, nothing searched.

The block layouts are those of ggml's `ggml-common.h`. Each function takes rows of numbers, (rows,
elements) in f32, and gives the rows' bytes.
"""

import numpy as np
from gguf import GGMLQuantizationType as Kind

IQ4_VALUES = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], dtype=np.float32
)


def encode(values, kind):
    """Rows in the format `kind`; their length is a multiple of its block's."""
    block, encoder = ENCODERS[kind]
    rows = np.ascontiguousarray(values, dtype=np.float32)
    blocks = encoder(rows.reshape(-1, block))
    return blocks.reshape(rows.shape[0], -1)


def half(x):
    """Numbers rounded to f16: as bytes, and as the f32 that a decoder sees."""
    stored = np.asarray(x, dtype="<f2").reshape(-1, 1)
    return stored.view(np.uint8), stored.astype(np.float32)


def divided(x, by):
    """`x / by`, and 0 where `by` is 0."""
    return np.divide(x, by, out=np.zeros(np.broadcast(x, by).shape, np.float32), where=by != 0)


def nearest(x, least, greatest):
    return np.clip(np.rint(x), least, greatest).astype(np.int32)


def extreme(subs):
    """The number of greatest magnitude of each sub-block, with its sign."""
    place = np.abs(subs).argmax(axis=-1)[..., None]
    return np.take_along_axis(subs, place, axis=-1)[..., 0]


def with_minimum(blocks, sub, bits, scale_bits):
    """Codes of `bits` bits with scales and minimums of `scale_bits` for every `sub` elements."""
    subs = blocks.reshape(len(blocks), -1, sub)
    least = np.minimum(subs.min(axis=-1), 0)
    scales = (subs.max(axis=-1).clip(min=0) - least) / (2**bits - 1)
    top = 2**scale_bits - 1
    d_bytes, d = half(scales.max(axis=-1) / top)
    min_bytes, dmin = half(-least.min(axis=-1) / top)
    scale, minimum = nearest(divided(scales, d), 0, top), nearest(divided(-least, dmin), 0, top)
    raised = subs + (dmin * minimum)[..., None]
    codes = nearest(divided(raised, (d * scale)[..., None]), 0, 2**bits - 1)
    return codes.reshape(blocks.shape), scale, minimum, np.hstack([d_bytes, min_bytes])


def signed(blocks, sub, lowest, scale_limit):
    """Codes from `lowest` to `-lowest - 1` with signed scales for every `sub` elements."""
    subs = blocks.reshape(len(blocks), -1, sub)
    scales = extreme(subs) / lowest
    d_bytes, d = half(np.abs(scales).max(axis=-1) / scale_limit)
    scale = nearest(divided(scales, d), -scale_limit, scale_limit)
    codes = nearest(divided(subs, (d * scale)[..., None]), lowest, -lowest - 1) - lowest
    return codes.reshape(blocks.shape), scale, d_bytes


def planes(codes, bits):
    """The lower `bits` of codes: in each run of 32 x 8 / bits elements, groups of 32 one above another."""
    groups = codes.reshape(len(codes), -1, 8 // bits, 32) & (2**bits - 1)
    shifts = np.arange(8 // bits)[:, None] * bits
    return (groups << shifts).sum(axis=2).reshape(len(codes), -1).astype(np.uint8)


def nibbles(codes):
    """Blocks of 32: the first half of the codes in low nibbles, the second in high ones."""
    halves = codes.reshape(len(codes), -1, 2, 16)
    return (halves[:, :, 0] | halves[:, :, 1] << 4).reshape(len(codes), -1).astype(np.uint8)


def q2_k(blocks):
    codes, scale, minimum, d = with_minimum(blocks, 16, 2, 4)
    return np.hstack([(scale | minimum << 4).astype(np.uint8), planes(codes, 2), d])


def q3_k(blocks):
    codes, scale, d = signed(blocks, 16, -4, 31)
    raw = (scale + 32).reshape(-1, 4, 4)
    low = raw.reshape(-1, 2, 8) & 15
    high = ((raw >> 4) << (np.arange(4)[:, None] * 2)).sum(axis=1)
    scales = np.hstack([low[:, 0] | low[:, 1] << 4, high]).astype(np.uint8)
    return np.hstack([planes(codes >> 2, 1), planes(codes, 2), scales, d])


def six_bit_pairs(scale, minimum):
    first, second = (scale[:, :4], minimum[:, :4]), (scale[:, 4:], minimum[:, 4:])
    upper = [low | high >> 4 << 6 for low, high in zip(first, second)]
    return np.hstack([*upper, second[0] & 15 | (second[1] & 15) << 4]).astype(np.uint8)


def q4_k(blocks):
    codes, scale, minimum, d = with_minimum(blocks, 32, 4, 6)
    return np.hstack([d, six_bit_pairs(scale, minimum), planes(codes, 4)])


def q5_k(blocks):
    codes, scale, minimum, d = with_minimum(blocks, 32, 5, 6)
    fifth = planes(codes >> 4, 1)
    return np.hstack([d, six_bit_pairs(scale, minimum), fifth, planes(codes, 4)])


def q6_k(blocks):
    codes, scale, d = signed(blocks, 16, -32, 127)
    halves = codes.reshape(-1, 2, 2, 64) & 15
    low = (halves[:, :, 0] | halves[:, :, 1] << 4).reshape(-1, 128).astype(np.uint8)
    return np.hstack([low, planes(codes >> 4, 2), scale.astype(np.int8).view(np.uint8), d])


def iq4_codes(subs, scales):
    """The nearest of the table's values, for subs that `scales` have brought into its range."""
    between = (IQ4_VALUES[1:] + IQ4_VALUES[:-1]) / 2
    return np.searchsorted(between, divided(subs, scales[..., None])).astype(np.int32)


def iq4_nl(blocks):
    d_bytes, d = half(extreme(blocks) / -127)
    return np.hstack([d_bytes, nibbles(iq4_codes(blocks, d[:, 0]))])


def iq4_xs(blocks):
    subs = blocks.reshape(-1, 8, 32)
    scales = extreme(subs) / -127
    d_bytes, d = half(np.abs(scales).max(axis=-1) / 31)
    scale = nearest(divided(scales, d), -32, 31)
    codes = iq4_codes(subs, d * scale).reshape(blocks.shape)
    raw = (scale + 32).astype(np.uint16)
    high = ((raw >> 4) << (2 * np.arange(8, dtype=np.uint16))).sum(axis=1).astype("<u2")
    low = (raw[:, 0::2] & 15 | (raw[:, 1::2] & 15) << 4).astype(np.uint8)
    return np.hstack([d_bytes, high.reshape(-1, 1).view(np.uint8), low, nibbles(codes)])


ENCODERS = {
    Kind.Q2_K: (256, q2_k),
    Kind.Q3_K: (256, q3_k),
    Kind.Q4_K: (256, q4_k),
    Kind.Q5_K: (256, q5_k),
    Kind.Q6_K: (256, q6_k),
    Kind.IQ4_NL: (32, iq4_nl),
    Kind.IQ4_XS: (256, iq4_xs),
}
