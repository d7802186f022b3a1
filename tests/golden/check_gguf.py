#!/usr/bin/env python3
"""Reads tests/golden/gguf/written.gguf, which kpd's save_gguf wrote, with the PyPI package gguf and compares types and values.

Exit code 0: equal, 1: not, 77: gguf or numpy is not installed.
"""
import pathlib
import sys

sys.path.pop(0)  # this folder has a gguf/ of its own

try:
    import gguf
    import numpy as np
except ImportError:
    print("SKIPPED: this check needs the Python packages gguf and numpy", file=sys.stderr)
    sys.exit(77)

FILE = pathlib.Path(__file__).resolve().parent / "gguf" / "written.gguf"
INF = float("inf")
EXPECTED = {
    "general.architecture": ("STRING", "llama"),
    "u32": ("UINT32", 2**32 - 1),
    "u64": ("UINT64", 2**32),
    "i32": ("INT32", -2**31),
    "i64": ("INT64", -2**31 - 1),
    "f32": ("FLOAT32", 0.5),
    "f64": ("FLOAT64", 0.1),
    "large": ("FLOAT64", 1e300),
    "inf": ("FLOAT32", -INF),
    "yes": ("BOOL", True),
    "text": ("STRING", "a\0b"),
    "u32s": ("UINT32", [1, 2]),
    "u64s": ("UINT64", [1, 2**64 - 1]),
    "i32s": ("INT32", [-1, 2]),
    "i64s": ("INT64", [-2**63, 2]),
    "f32s": ("FLOAT32", [1, -0.25, INF]),
    "f64s": ("FLOAT64", [1, 0.1]),
    "bools": ("BOOL", [True, False]),
    "texts": ("STRING", ["", "b"]),
    "none": ("STRING", []),
}


def main():
    reader = gguf.GGUFReader(FILE)
    wrong = []

    def check(what, found, expected):
        if found != expected:
            wrong.append(f"{what}: {found!r}, expected {expected!r}")

    check("version", int(reader.fields["GGUF.version"].contents()), 3)
    check("keys", [k for k in reader.fields if not k.startswith("GGUF.")], list(EXPECTED))
    for key, (kind, value) in EXPECTED.items():
        if value == []:
            continue  # the package gives no value for an empty array
        field = reader.fields[key]
        check(f"type of {key}", field.types[-1].name, kind)
        check(key, field.contents(), value)
    values = (np.arange(192, dtype=np.float32) - 96) / 64
    tensors = {
        "f16": ("F16", [3], values[:3]),
        "f32": ("F32", [2, 3, 32], values),
        "q8_0": ("Q8_0", [3, 64], gguf.quants.dequantize(gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0), gguf.GGMLQuantizationType.Q8_0)),
    }
    check("tensors", [t.name for t in reader.tensors], list(tensors))
    for t in reader.tensors:
        kind, shape, expected = tensors[t.name]
        check(f"type of tensor {t.name}", t.tensor_type.name, kind)
        check(f"shape of tensor {t.name}", [int(d) for d in t.shape], shape[::-1])
        found = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32).ravel()
        check(f"values of tensor {t.name}", found.tobytes(), expected.tobytes())
    print("\n".join(wrong) or f"{FILE.name}: {len(EXPECTED)} keys and {len(tensors)} tensors as expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
