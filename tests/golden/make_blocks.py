#!/usr/bin/env python3
"""Records tests/golden/blocks/ with the PyPI package gguf (its gguf.quants is bit-exact with ggml): what tests/quant/blocks_test.cc compares.

Usage: tests/golden/make_blocks.py [libggml-base.so]   (needs gguf and numpy; blocks/versions.txt says which ones wrote the files)

The library of ggml itself (llama.cpp, or the PyPI package llama-cpp-python) writes IQ4_NL.quantized, which gguf cannot; without it that file stays as it is.

TYPE.blocks     random blocks of TYPE with finite scales
TYPE.floats     their values, float32
input.floats    values to quantize: several scales, and blocks that are zero, constant, tied, denormal, beyond float16
TYPE.quantized  input.floats as TYPE
"""
import ctypes
import importlib.metadata
import pathlib
import sys

import gguf
import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parent / "blocks"
# Where 16-bit floats lie in a block.
HALVES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2],
    "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0]
}
QUANTIZED = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]


def finite_halves(rng, n):
    bits = rng.integers(0, 1 << 16, n, dtype=np.uint16)
    bits[(bits & 0x7c00) == 0x7c00] ^= 0x4000
    return bits


def record_decoding(rng, name):
    kind = gguf.GGMLQuantizationType[name]
    values, size = gguf.GGML_QUANT_SIZES[kind]
    n = 1024 // values
    if name == "F32":
        blocks = rng.standard_normal(n).astype(np.float32).view(np.uint8).reshape(n, 4)
    elif name in ("F16", "BF16"):
        halves = finite_halves(rng, n)
        blocks = halves.view(np.uint8).reshape(n, 2)
    else:
        blocks = rng.integers(0, 256, (n, size), dtype=np.uint8)
        for at in HALVES[name]:
            blocks[:, at:at + 2] = finite_halves(rng, n).view(np.uint8).reshape(n, 2)
    floats = gguf.quants.dequantize(blocks.reshape(1, -1).copy(), kind)
    assert floats.dtype == np.float32 and floats.size == 1024
    (FOLDER / f"{name}.blocks").write_bytes(blocks.tobytes())
    (FOLDER / f"{name}.floats").write_bytes(floats.tobytes())


def inputs(rng):
    def normal(scale, n=4):
        return (rng.standard_normal((n, 32)) * scale).astype(np.float32)

    # Blocks of -0.0 are left out: gguf gives d the other sign than ggml.
    tied = np.tile(np.array([0.5, -0.5, 0.25, -0.25], np.float32), 8).reshape(1, 32)
    grid = (np.arange(32, dtype=np.float32) - 15.5).reshape(1, 32) / 4
    special = [np.zeros((1, 32), np.float32), np.full((1, 32), 1.5, np.float32),
               np.full((1, 32), -3.0, np.float32), tied, -tied, grid, -grid, np.abs(normal(1, 1)), -np.abs(normal(1, 1))]
    edges = [normal(1e-7), normal(1e-4), normal(1e3), normal(65504, 2), normal(1e6, 1), normal(1e-30, 1), normal(3e37, 1)]
    return np.concatenate([normal(1, 8), normal(0.02, 8), *special, *edges]).reshape(1, -1)


def iq4_nl_of_ggml(library, values):
    """By the reference quantizer: quantize_row_iq4_nl_ref."""
    blocks = np.zeros((values.size // 32, 18), np.uint8)
    function = ctypes.CDLL(library).quantize_row_iq4_nl_ref
    function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64), None
    function(values.ctypes.data, blocks.ctypes.data, values.size)
    blocks[np.abs(values.reshape(-1, 32)).max(axis=1) < 1e-15, 2:] = 0  # there ggml leaves the codes of the block before
    return blocks


def main():
    FOLDER.mkdir(exist_ok=True)
    rng = np.random.default_rng(1)
    for name in ["F32", "F16", "BF16", *HALVES]:
        record_decoding(rng, name)
    values = inputs(rng)
    (FOLDER / "input.floats").write_bytes(values.tobytes())
    for name in QUANTIZED:
        with np.errstate(over="ignore"):
            blocks = gguf.quants.quantize(values, gguf.GGMLQuantizationType[name])
        (FOLDER / f"{name}.quantized").write_bytes(blocks.tobytes())
    if len(sys.argv) > 1:
        (FOLDER / "IQ4_NL.quantized").write_bytes(iq4_nl_of_ggml(sys.argv[1], values).tobytes())
    versions = [f"{p} {importlib.metadata.version(p)}" for p in ("gguf", "numpy")]
    (FOLDER / "versions.txt").write_text("\n".join(versions) + "\n")


if __name__ == "__main__":
    main()
