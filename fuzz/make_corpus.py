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
    descr = descr if descr.startswith("[") else "'%s'" % descr
    head = "{'descr': %s, 'fortran_order': %s, 'shape': %s, }" % (descr, order, shape)
    prefix = 10 if version[0] == 1 else 12
    head += " " * (-(prefix + len(head) + 1) % 64) + "\n"
    length = struct.pack("<H" if version[0] == 1 else "<I", len(head))
    return b"\x93NUMPY" + bytes(version) + length + head.encode() + data


def safetensors(header, data, pad=0):
    text = header if isinstance(header, str) else json.dumps(header, separators=(",", ":"))
    text += " " * (-len(text) % 8 + pad)
    return struct.pack("<Q", len(text)) + text.encode() + data


def gguf_text(v):
    return struct.pack("<Q", len(v)) + v.encode()


def gguf_value(key, kind, data):
    return gguf_text(key) + struct.pack("<I", kind) + data


def gguf_array(key, kind, n, data):
    return gguf_value(key, 9, struct.pack("<IQ", kind, n) + data)


def gguf_tensor(name, dims, kind, offset):
    return gguf_text(name) + struct.pack("<I%dQIQ" % len(dims), len(dims), *dims, kind, offset)


def gguf(values, tensors, data, alignment=32, version=3):
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(values)) + b"".join(values) + b"".join(tensors)
    return head + bytes(-len(head) % alignment) + data


def gguf_seeds():
    scalars = [(0, "B", 200), (1, "b", -3), (2, "H", 60000), (3, "h", -300), (4, "I", 1 << 31), (5, "i", -7), (6, "f", 0.5), (7, "B", 1),
               (10, "Q", 1 << 60), (11, "q", -1), (12, "d", 0.1)]
    every = [gguf_value("k%d" % kind, kind, struct.pack("<" + code, v)) for kind, code, v in scalars]
    every.append(gguf_value("text", 8, gguf_text("llama")))
    yield "values", gguf(every, [], b"")
    arrays = [gguf_array("k%d" % kind, kind, 2, struct.pack("<2" + code, v, v)) for kind, code, v in scalars]
    arrays += [gguf_array("texts", 8, 3, gguf_text("a") + gguf_text("") + gguf_text("bc")), gguf_array("none", 4, 0, b"")]
    yield "arrays", gguf(arrays, [], b"")
    yield "v2", gguf(every[:2], [gguf_tensor("v", [4], 0, 0)], bytes(range(16)), version=2)
    # Every type, two blocks or four values each.
    kinds = [(0, 1, 4), (1, 1, 2), (2, 32, 18), (3, 32, 20), (6, 32, 22), (7, 32, 24), (8, 32, 34), (10, 256, 84), (11, 256, 110), (12, 256, 144),
             (13, 256, 176), (14, 256, 210), (20, 32, 18), (23, 256, 136), (30, 1, 2)]
    for kind, values, size in kinds:
        yield "type_%d" % kind, gguf([], [gguf_tensor("w", [values, 2], kind, 0)], bytes(i * 7 & 255 for i in range(2 * size)))
    many = [gguf_tensor("a", [2, 3], 0, 0), gguf_tensor("b", [4], 1, 64), gguf_tensor("s", [], 30, 128), gguf_tensor("none", [0, 9], 0, 0)]
    yield "tensors", gguf([gguf_value("general.alignment", 4, struct.pack("<I", 64))], many, bytes(130), alignment=64)
    yield "overlap", gguf([], [gguf_tensor("a", [16], 0, 0), gguf_tensor("b", [16], 0, 32)], bytes(128))
    yield "nested", gguf([gguf_array("k", 9, 1, struct.pack("<IQ", 0, 1) + b"a")], [], b"")
    yield "twice", gguf(every[:1] * 2, [], b"")
    yield "huge_array", gguf([gguf_array("k", 8, 1 << 61, b"")], [], b"")
    yield "huge_dims", gguf([], [gguf_tensor("a", [1 << 62, 1 << 62], 0, 0)], b"")
    yield "big_endian", b"GGUF" + struct.pack(">IQQ", 3, 0, 0)


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
    for descr in (">f4", ">f2", "<i4", "|u1", "|b1", "<V2", "bfloat16"):
        count = 24 // {"4": 4, "2": 2, "6": 2, "1": 1}[descr[-1]]
        yield "npy", "type_" + descr.replace("<", "le_").replace(">", "be_").replace("|", "_"), npy(descr, "(%d,)" % count, floats)
    yield "npy", "be_fortran", npy(">f8", "(3, 1)", floats, order="True")
    yield "npy", "be_fortran_3d", npy(">i2", "(2, 3, 2)", floats, order="True")
    yield "npy", "fortran_none", npy("<u8", "(0, 1099511627776, 3)", b"", order="True")
    yield "npy", "structured", npy("[('a', '<f4'), ('b', '<f4')]", "(3,)", floats)
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

    types = [("F32", 4), ("BF16", 2), ("F16", 2), ("F64", 8), ("I8", 1), ("I16", 2), ("I32", 4), ("I64", 8), ("U8", 1), ("U16", 2), ("U32", 4),
             ("U64", 8), ("BOOL", 1), ("F8_E4M3", 1), ("F8_E5M2", 1)]
    every, at = {"__metadata__": {"k\u00e9": "two\nlines", "": ""}}, 0
    for name, size in types:
        every[name.lower()] = {"dtype": name, "shape": [3], "data_offsets": [at, at + 3 * size]}
        at += 3 * size
    yield "safetensors", "types", safetensors(every, bytes(i * 37 & 255 for i in range(at)))
    yield "safetensors", "unaligned", safetensors(dict(reversed(every.items())), bytes(at), pad=3)
    yield "safetensors", "metadata_number", safetensors({"__metadata__": {"a": 1}}, b"")
    yield "safetensors", "metadata_twice", safetensors('{"__metadata__":{"a":"1","a":"2"},"__metadata__":{}}', b"")

    for name, data in gguf_seeds():
        yield "gguf", name, data

    shards = '"weight_map":{"a":"m-1.safetensors","b\\u00e9":"m-2.safetensors"}'
    for name, text in [("good", '{"metadata":{"total_size":12,"x":[[1.5,null]]},%s}' % shards), ("empty", '{"weight_map":{}}'),
                       ("up", '{"weight_map":{"a":"../m.safetensors"}}'), ("nul", '{"weight_map":{"a":"a\\u0000.safetensors"}}'),
                       ("twice", '{"weight_map":{"a":"m.safetensors","a":"m.safetensors"}}'), ("inner", '{"metadata":{%s}}' % shards)]:
        yield "index", name, text.encode()

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

    for name, text in [("specs", "*norm*=float32\na?c=eden:bits=1\neden:code=entropy,bits=.3"), ("empty_pattern", "=eden"),
                       ("two", "drive\nsq:bits=2"), ("baselines", "a=qsgd:bits=4,norm=max,code=fixed\nb=kashin-sq:bits=1\nc=randk:bits=1\nterngrad"),
                       ("glob", "\1l*.?e*\nlayer.0.weight"), ("glob_stars", "\1*a*b*a\nabababb"), ("glob_empty", "\1*\n")]:
        yield "policy", name, text.encode()


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent / "corpus"
    for target, name, data in seeds():
        path = folder / target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


if __name__ == "__main__":
    main()
