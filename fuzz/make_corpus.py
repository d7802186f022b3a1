#!/usr/bin/env python3
"""Writes the seed inputs of the fuzzers for base and io into fuzz/corpus/<target>/ (needs only the standard library).

Usage: fuzz/make_corpus.py [FOLDER]   (default: the folder corpus beside this script)
"""

import gzip
import json
import pathlib
import struct
import sys


def npy(descr, shape, data, order="False", version=(1, 0)):
    head = "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }" % (descr, order, shape)
    prefix = 10 if version[0] == 1 else 12
    head += " " * (-(prefix + len(head) + 1) % 64) + "\n"
    length = struct.pack("<H" if version[0] == 1 else "<I", len(head))
    return b"\x93NUMPY" + bytes(version) + length + head.encode() + data


def safetensors(header, data):
    text = header if isinstance(header, str) else json.dumps(header, separators=(",", ":"))
    text += " " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text.encode() + data


def idx(dims, data, kind=8):
    return bytes([0, 0, kind, len(dims)]) + b"".join(struct.pack(">I", d) for d in dims) + data


def seeds():
    floats = struct.pack("<6f", 0, 1, -1.5, 1e-40, 3e38, float("nan"))
    yield "npy", "f4_2x3", npy("<f4", "(2, 3)", floats)
    yield "npy", "f2_12", npy("<f2", "(12,)", floats)
    yield "npy", "scalar", npy("<f4", "()", floats[:4])
    yield "npy", "empty", npy("<f4", "(0, 5)", b"")
    yield "npy", "v2", npy("<f4", "(6,)", floats, version=(2, 0))
    yield "npy", "v3", npy("<f4", "(6,)", floats, version=(3, 0))
    yield "npy", "fortran", npy("<f4", "(2, 3)", floats, order="True")
    yield "npy", "f8", npy("<f8", "(3,)", floats)
    yield "npy", "huge", npy("<f4", "(1152921504606846976, 1024)", floats)
    yield "npy", "cut", npy("<f4", "(6,)", floats)[:40]

    one = {"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}
    yield "safetensors", "one", safetensors(one, floats)
    many = {
        "__metadata__": {"format": "pt", "step": "7"},
        "layer.0.weight": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
        "layer.0.bias": {"dtype": "F16", "shape": [4], "data_offsets": [8, 16]},
        "scale": {"dtype": "BF16", "shape": [], "data_offsets": [16, 18]},
        "none": {"dtype": "F32", "shape": [0, 3], "data_offsets": [18, 18]},
    }
    many["none"]["data_offsets"] = [16, 16]
    yield "safetensors", "many", safetensors(many, floats[:18])
    yield "safetensors", "empty", safetensors({}, b"")
    yield "safetensors", "overlap", safetensors(
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}},
        floats[:12])
    yield "safetensors", "duplicate", safetensors('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32"}}', floats[:4])
    yield "safetensors", "nested", safetensors('{"a":' * 40 + "1" + "}" * 40, b"")
    yield "safetensors", "nan", safetensors('{"a":{"dtype":"F32","shape":[NaN],"data_offsets":[0,4]}}', floats[:4])
    yield "safetensors", "i64", safetensors({"a": {"dtype": "I64", "shape": [3], "data_offsets": [0, 24]}}, floats)

    images = idx([2, 3, 4], bytes(range(24)))
    for flag, kind in ((b"\0", "plain"), (b"\1", "zipped")):
        yield "idx", "images_" + kind, flag + images
        yield "idx", "labels_" + kind, flag + idx([9], bytes(range(9)))
        yield "idx", "huge_" + kind, flag + idx([1 << 31, 1 << 31], b"")
        yield "idx", "floats_" + kind, flag + idx([2], bytes(8), kind=13)
    yield "idx", "gz", b"\0" + gzip.compress(images, mtime=0)
    yield "idx", "gz_bomb", b"\0" + gzip.compress(idx([1000, 1000], bytes(100000)), mtime=0)
    yield "idx", "gz_cut", b"\0" + gzip.compress(images, mtime=0)[:30]

    for i, text in enumerate([
            "eden", "eden:bits=1", "eden:bits=.05,code=entropy,block=4096", "qsgd:bits=4,block=512", "drive+:rounds=3",
            "eden:blok=1", "eden:1", "eden:bits=1,bits=2", "eden:code=entropi,scale=norm", "hadamard-sq:bits=1e-1"
    ]):
        yield "spec", "spec_%d" % i, text.encode()


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent / "corpus"
    for target, name, data in seeds():
        path = folder / target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


if __name__ == "__main__":
    main()
