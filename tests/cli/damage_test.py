#!/usr/bin/env python3
"""Inputs whose content is wrong: exit 3, one line that names the file, nothing written, memory bounded by the input."""
import json
import random
import resource
import struct
import subprocess
import zlib

from inputs import npy_bytes, numbers, safetensors_bytes, write_npy, write_safetensors
from run_cli_tests import run_cases


def refuse(t, name, expected=None, verbs=("decode", "inspect")):
    """Every verb must refuse the file `name`, name it, and write nothing."""
    before = t.names()
    for verb in verbs:
        args = {"decode": ["decode", name, "out.safetensors"], "inspect": ["inspect", name],
                "encode": ["encode", name, "out.kpdg", "--codec", "eden:bits=1", "--seed", "1"],
                "mean": ["mean", name, "--codec", "eden:bits=1", "--seed", "1", "--out", "out.npy"]}[verb]
        done = t.run(*args, exit=3, err=expected)
        assert name in done.stderr, f"{verb}: the file is not named: {done.stderr}"
        assert done.stdout == "", done.stdout
    assert t.names() == before, t.names()


def make_stream(t, codec="eden:bits=1"):
    write_safetensors(t.path("in.safetensors"), {"a": numbers(5000), "b": numbers(70, 2), "c": numbers(10, 3)})
    t.run("encode", "--force", "in.safetensors", "good.kpdg", "--codec", codec, "--seed", "1")
    return t.path("good.kpdg").read_bytes()


def case_truncated_streams(t):
    data = make_stream(t)
    for size in sorted({0, 1, 3, 4, 7, 8, 16, 31, 64, 100, len(data) // 2, len(data) - 5, len(data) - 4, len(data) - 1}):
        t.path("bad.kpdg").write_bytes(data[:size])
        refuse(t, "bad.kpdg", r"bad\.kpdg")


def case_extended_streams(t):
    data = make_stream(t)
    for tail in (b"\0", b"x" * 100, data):
        t.path("bad.kpdg").write_bytes(data + tail)
        refuse(t, "bad.kpdg")


def case_flipped_bits(t):
    data = make_stream(t)
    rng = random.Random(1)
    for position in [*range(0, 32, 3), *(rng.randrange(len(data)) for _ in range(20)), len(data) - 1]:
        bad = bytearray(data)
        bad[position] ^= 1 << rng.randrange(8)
        t.path("bad.kpdg").write_bytes(bad)
        refuse(t, "bad.kpdg", r"byte \d+|offset \d+", verbs=("inspect",))
    refuse(t, "bad.kpdg")


def reseal(data):
    return bytes(data[:-4]) + zlib.crc32(bytes(data[:-4])).to_bytes(4, "little")


def case_resealed_streams_never_crash(t):
    """A valid checksum over hostile bytes: refused, or decoded where any value is a legal one; never anything else."""
    data = make_stream(t, "eden:bits=1")
    assert reseal(data) == data, "the last four bytes are the CRC-32 of all before"
    rng = random.Random(2)
    refused = 0
    positions = [*range(0, min(len(data) - 4, 260), 3), *(rng.randrange(len(data) - 4) for _ in range(20))]
    for position in positions:
        bad = bytearray(data)
        bad[position] = rng.choice([0xff, 0x00, 0x7f, bad[position] ^ 0x80])
        if bytes(bad) == data:
            continue
        t.path("bad.kpdg").write_bytes(reseal(bad))
        t.path("out.safetensors").unlink(missing_ok=True)
        done = subprocess.run([t.program, "decode", "bad.kpdg", "out.safetensors"], cwd=t.folder, capture_output=True, text=True,
                              errors="replace", timeout=60)
        assert done.returncode in (0, 3), (position, done.returncode, done.stderr)
        if done.returncode == 3:
            refused += 1
            assert "bad.kpdg" in done.stderr, done.stderr
            assert not t.path("out.safetensors").exists()
    assert refused > 20, refused


def case_huge_declared_sizes_are_refused_without_memory(t):
    data = bytearray(make_stream(t))
    # Every u64 at a multiple of four bytes in the header and manifest becomes 2^60, one at a time.
    for position in range(8, 160, 4):
        bad = bytearray(data)
        bad[position:position + 8] = (1 << 60).to_bytes(8, "little")
        t.path("bad.kpdg").write_bytes(reseal(bad))
        done = subprocess.run([t.program, "inspect", "bad.kpdg"], cwd=t.folder, capture_output=True, timeout=60)
        assert done.returncode in (0, 3), (position, done.returncode, done.stderr)
    used_kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert used_kib < 1 << 20, f"{used_kib} KiB"


def case_not_a_stream(t):
    t.path("text.kpdg").write_text("hello, this is no stream\n" * 10)
    refuse(t, "text.kpdg")
    t.path("zeros.kpdg").write_bytes(bytes(1000))
    refuse(t, "zeros.kpdg")
    t.path("empty.kpdg").write_bytes(b"")
    refuse(t, "empty.kpdg")
    write_npy(t.path("array.kpdg"), numbers(100))
    refuse(t, "array.kpdg")


def case_directories(t):
    t.path("folder.npy").mkdir()
    t.path("folder.kpdg").mkdir()
    refuse(t, "folder.npy", r"directory", verbs=("encode", "mean"))
    refuse(t, "folder.kpdg", r"directory")


BAD_NPY = {
    "empty": b"",
    "magic only": b"\x93NUMPY",
    "wrong magic": b"\x93NUMPX\x01\x00" + bytes(100),
    "version 9": npy_bytes(bytes(40), n=10).replace(b"NUMPY\x01", b"NUMPY\x09"),
    "header beyond the file": b"\x93NUMPY\x01\x00\xff\xff{'descr'",
    "complex": npy_bytes(bytes(80), descr="<c8", n=10),
    "pickled objects": npy_bytes(bytes(40), descr="|O", n=10),
    "truncated": npy_bytes(bytes(39), n=10),
    "extended": npy_bytes(bytes(44), n=10),
    "huge shape": npy_bytes(bytes(40), shape=(1 << 60,)),
    "overflowing shape": npy_bytes(bytes(40), shape=(1 << 40, 1 << 40)),
    "negative shape": npy_bytes(bytes(40), shape=(-10,)),
    "no dictionary": b"\x93NUMPY\x01\x00\x10\x00" + b"hello world    \n" + bytes(40),
    "shape missing": b"\x93NUMPY\x01\x00\x30\x00" + b"{'descr': '<f4', 'fortran_order': False}       \n" + bytes(40),
    "infinite": npy_bytes(struct.pack("<3f", 1, float("inf"), 2), n=3),
}


def case_damaged_npy(t):
    for what, data in BAD_NPY.items():
        t.path("bad.npy").write_bytes(data)
        try:
            refuse(t, "bad.npy", verbs=("encode", "mean"))
        except AssertionError as error:
            raise AssertionError(f"{what}: {error}") from error


def raw_safetensors(header, payload=b"", size=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if size is None else size).to_bytes(8, "little") + text + payload


def entry(dtype="F32", shape=(10,), begin=0, end=40):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


BAD_SAFETENSORS = {
    "empty": b"",
    "short": b"\x10\0\0",
    "header 2^60": raw_safetensors({"a": entry()}, bytes(40), size=1 << 60),
    "header beyond the file": raw_safetensors({"a": entry()}, b"", size=1000),
    "not JSON": raw_safetensors(b"{'a': 1}", bytes(40)),
    "JSON array": raw_safetensors(b"[]"),
    "deep JSON": raw_safetensors(b"[" * 100000),
    "offsets beyond": raw_safetensors({"a": entry(end=80, shape=(20,))}, bytes(40)),
    "offsets reversed": raw_safetensors({"a": entry(begin=40, end=0)}, bytes(40)),
    "offsets negative": raw_safetensors({"a": entry(begin=-40, end=0)}, bytes(40)),
    "shape and size differ": raw_safetensors({"a": entry(shape=(11,))}, bytes(40)),
    "overflowing shape": raw_safetensors({"a": entry(shape=(1 << 40, 1 << 40))}, bytes(40)),
    "complex": raw_safetensors({"a": entry(dtype="C64", shape=(5,))}, bytes(40)),
    "unknown type": raw_safetensors({"a": entry(dtype="Q7")}, bytes(40)),
    "overlap": raw_safetensors({"a": entry(), "b": entry(begin=20, end=60)}, bytes(60)),
    "shape is text": raw_safetensors({"a": {"dtype": "F32", "shape": "10", "data_offsets": [0, 40]}}, bytes(40)),
    "truncated": safetensors_bytes({"a": ("F32", (10,), bytes(40))})[:-1],
    "extended": safetensors_bytes({"a": ("F32", (10,), bytes(40))}) + b"x",
}


def case_damaged_safetensors(t):
    for what, data in BAD_SAFETENSORS.items():
        t.path("bad.safetensors").write_bytes(data)
        try:
            refuse(t, "bad.safetensors", verbs=("encode",))
        except AssertionError as error:
            raise AssertionError(f"{what}: {error}") from error


def case_damaged_f32(t):
    t.path("bad.f32").write_bytes(bytes(41))
    refuse(t, "bad.f32", verbs=("encode", "mean"))


def case_clients_that_do_not_match(t):
    def refused(*names, expected):
        t.run("mean", *names, "--codec", "eden:bits=1", "--seed", "1", "--out", "m.safetensors", exit=3, err=expected)
        assert "m.safetensors" not in t.names()

    write_npy(t.path("a.npy"), numbers(100))
    write_npy(t.path("b.npy"), numbers(101))
    refused("a.npy", "b.npy", expected=r"b\.npy.*101.*100.*a\.npy")
    write_safetensors(t.path("a.safetensors"), {"w": numbers(100), "b": numbers(10)})
    write_safetensors(t.path("b.safetensors"), {"w": numbers(100), "c": numbers(10)})
    refused("a.safetensors", "b.safetensors", expected=r"b\.safetensors.*\"c\".*\"b\"")
    write_safetensors(t.path("c.safetensors"), {"w": numbers(100)})
    refused("a.safetensors", "c.safetensors", expected=r"c\.safetensors.*1 tensor.*2")
    t.path("d.safetensors").write_bytes(safetensors_bytes({
        "w": ("BF16", (100,), bytes(200)), "b": ("F32", (10,), bytes(40))}))
    refused("a.safetensors", "d.safetensors", expected=r"d\.safetensors.*bfloat16.*float32")


def case_bad_input_leaves_the_old_output(t):
    t.path("bad.npy").write_bytes(npy_bytes(bytes(39), n=10))
    t.path("out.kpdg").write_bytes(b"old")
    t.run("encode", "--force", "bad.npy", "out.kpdg", "--codec", "eden:bits=1", "--seed", "1", exit=3)
    assert t.path("out.kpdg").read_bytes() == b"old"
    t.path("out.npy").write_bytes(b"old")
    t.run("decode", "--force", "out.kpdg", "out.npy", exit=3)
    assert t.path("out.npy").read_bytes() == b"old"


def case_names_with_control_characters_are_refused(t):
    t.path("in.safetensors").write_bytes(safetensors_bytes({"a\x1b[31mred": ("F32", (10,), bytes(40))}))
    done = t.run("encode", "--force", "in.safetensors", "x.kpdg", "--codec", "float32", "--seed", "1", exit=3, err=r"in\.safetensors")
    assert "\x1b" not in done.stderr and t.names() == ["in.safetensors"], (done.stderr, t.names())


def case_names_in_any_script(t):
    t.path("in.safetensors").write_bytes(safetensors_bytes({"вес/重み": ("F32", (10,), bytes(40))}))
    t.run("encode", "--force", "in.safetensors", "x.kpdg", "--codec", "float32", "--seed", "1")
    assert json.loads(t.run("inspect", "x.kpdg", "--json").stdout)["tensors"][0]["name"] == "вес/重み"
    t.run("inspect", "x.kpdg", out="вес/重み")


if __name__ == "__main__":
    run_cases(globals())
