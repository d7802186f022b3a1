#!/usr/bin/env python3
"""Records tests/golden/gguf/small.gguf with the PyPI package gguf, for tests/io/gguf_test.cc.

Usage: tests/golden/make_gguf.py   (needs gguf and numpy; gguf/versions.txt says which ones wrote the file)
"""
import importlib.metadata
import pathlib

import gguf
import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parent / "gguf"


def main():
    FOLDER.mkdir(exist_ok=True)
    w = gguf.GGUFWriter(FOLDER / "small.gguf", "llama")
    w.add_block_count(2)
    w.add_rope_freq_base(10000.0)
    w.add_token_list(["<s>", "a", "\u00e9", ""])
    w.add_token_scores([0.0, -1.0, -2.5, -3.0])
    w.add_token_types([3, 1, 1, 1])
    w.add_add_bos_token(True)
    w.add_int8("kpd.i8", -8)
    w.add_uint64("kpd.u64", 1 << 40)
    w.add_float64("kpd.f64", 0.1)
    values = (np.arange(192, dtype=np.float32) - 96) / 64
    matrix = values.reshape(3, 64)
    w.add_tensor("norm", values[:64])
    w.add_tensor("f32", matrix)
    w.add_tensor("f16", matrix.astype(np.float16))
    for kind in ("BF16", "Q8_0", "Q4_0"):
        kind = gguf.GGMLQuantizationType[kind]
        w.add_tensor(kind.name.lower(), gguf.quants.quantize(matrix, kind), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    versions = [f"{p} {importlib.metadata.version(p)}" for p in ("gguf", "numpy")]
    (FOLDER / "versions.txt").write_text("\n".join(versions) + "\n")


if __name__ == "__main__":
    main()
