"""Byte-level BPE from a GGUF file's vocabulary and merges, written from the algorithm alone.

The independent implementation that Lockstep's token ids are compared with. It needs the PyPI
packages `gguf` and `regex`, and covers the `smollm` pre-tokenizer. To make the golden ids anew:

    python3 tests/reference/tokenize_gguf.py MODEL.gguf tests/data/hard-text.json \
        > tests/data/hard-text.smollm2.json

Each golden case holds `plain`, the ids where the texts of control tokens are text, and `special`,
the ids where they are the tokens.
"""

import json
import sys

import regex
from gguf import GGUFReader

GPT2 = regex.compile(
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
)
DIGIT = regex.compile(r"\p{N}")
CONTROL, USER_DEFINED = 3, 4


def byte_symbols():
    """GPT-2's printable stand-in for each byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    symbols = {byte: chr(byte) for byte in printable}
    symbols.update({byte: chr(256 + rank) for rank, byte in enumerate(others)})
    return symbols


class Reference:
    """The tokenizer of one file."""

    def __init__(self, path):
        fields = GGUFReader(path).fields
        contents = lambda key: fields[key].contents()
        if contents("tokenizer.ggml.model") != "gpt2":
            raise SystemExit("only byte-level BPE is covered")
        if contents("tokenizer.ggml.pre") != "smollm":
            raise SystemExit("only the smollm pre-tokenizer is covered")
        tokens = contents("tokenizer.ggml.tokens")
        kinds = contents("tokenizer.ggml.token_type")
        self.ids = {text: number for number, text in enumerate(tokens)}
        merges = contents("tokenizer.ggml.merges")
        self.ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(merges)}
        whole = [text for text, kind in zip(tokens, kinds) if kind in (CONTROL, USER_DEFINED)]
        whole.sort(key=len, reverse=True)
        self.whole = regex.compile("(" + "|".join(map(regex.escape, whole)) + ")")
        self.symbols = byte_symbols()

    def encode(self, text, special):
        """Ids of `text`; with `special`, the texts of control tokens are the tokens."""
        if not special:
            return self.encode_text(text)
        ids = []
        for i, piece in enumerate(self.whole.split(text)):
            ids += [self.ids[piece]] if i % 2 else self.encode_text(piece)
        return ids

    def encode_text(self, text):
        return [number for word in words(text) for number in self.encode_word(word)]

    def encode_word(self, word):
        """Merges the neighbours of least rank, leftmost first, until none is left to merge."""
        parts = [self.symbols[byte] for byte in word.encode("utf-8")]
        # A byte that the vocabulary lacks is left out, as the models' own tokenizers do.
        parts = [part for part in parts if part in self.ids]
        while True:
            ranked = [
                (self.ranks[pair], at)
                for at, pair in enumerate(zip(parts, parts[1:]))
                if pair in self.ranks
            ]
            if not ranked:
                return [self.ids[part] for part in parts]
            _, at = min(ranked)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]


def words(text):
    """Every digit apart, then GPT-2's pattern on what is between."""
    start = 0
    for digit in DIGIT.finditer(text):
        yield from GPT2.findall(text[start : digit.start()])
        yield digit.group()
        start = digit.end()
    yield from GPT2.findall(text[start:])


def main():
    _, model, cases = sys.argv
    reference = Reference(model)
    with open(cases, encoding="utf-8") as file:
        cases = json.load(file)
    lines = []
    for case in cases:
        plain = reference.encode(case["text"], special=False)
        special = reference.encode(case["text"], special=True)
        lines.append(json.dumps({"name": case["name"], "plain": plain, "special": special}))
    print("[\n" + ",\n".join(lines) + "\n]")


if __name__ == "__main__":
    main()
