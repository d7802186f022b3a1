#!/usr/bin/env python3
"""What real files of tensors hold beside float32: integers, bools, 8-bit and 64-bit floats, metadata, other byte orders and layouts."""
import json
import struct

from inputs import npy_bytes, numbers, read_safetensors, safetensors_bytes, vnmse, write_npy
from run_cli_tests import run_cases

EXACT = {
    "bn.num_batches_tracked": ("I64", (), struct.pack("<q", 2**53 + 1)),
    "position_ids": ("I64", (1, 8), struct.pack("<8q", *range(8))),
    "i8": ("I8", (3,), struct.pack("<3b", -128, 0, 127)),
    "i16": ("I16", (2,), struct.pack("<2h", -32768, 32767)),
    "i32": ("I32", (2,), struct.pack("<2i", -2**31, 2**31 - 1)),
    "u8": ("U8", (100,), bytes(range(100))),
    "u16": ("U16", (2,), struct.pack("<2H", 0, 65535)),
    "u32": ("U32", (1,), struct.pack("<I", 2**32 - 1)),
    "u64": ("U64", (1,), struct.pack("<Q", 2**64 - 1)),
    "mask": ("BOOL", (2, 2), bytes([1, 0, 1, 1])),
    "e4m3": ("F8_E4M3", (4,), bytes([0x7f, 0x80, 1, 0x38])),
    "e5m2": ("F8_E5M2", (4,), bytes([0x7c, 0x80, 1, 0x3c])),
}
ENCODE = ["--codec", "eden:bits=4", "--seed", "1"]


def f32(values):
    return struct.pack(f"<{len(values)}f", *values)


def with_metadata(data, metadata):
    size = int.from_bytes(data[:8], "little")
    header = {"__metadata__": metadata, **json.loads(data[8:8 + size])}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data[8 + size:]


def case_exact_types_travel_as_they_are(t):
    weights = numbers(5000)
    t.path("in.safetensors").write_bytes(safetensors_bytes({"w": ("F32", (50, 100), f32(weights)), **EXACT}))
    report = json.loads(t.run("encode", "in.safetensors", "x.kpdg", *ENCODE, "--json").stdout)
    exact = 1 + 8 + 3 + 2 + 2 + 100 + 2 + 1 + 1 + 4 + 4 + 4
    assert report["exact_elements"] == exact and report["elements"] == 5000 + exact, report
    t.run("encode", "in.safetensors", "y.kpdg", *ENCODE, out=rf"no floating point: {exact} numbers")
    report = json.loads(t.run("decode", "x.kpdg", "out.safetensors", "--json").stdout)
    assert report["exact_elements"] == exact, report
    before, after = read_safetensors(t.path("in.safetensors")), read_safetensors(t.path("out.safetensors"))
    assert {k: before[k] for k in EXACT} == {k: after[k] for k in EXACT}
    assert 0 < vnmse(struct.unpack("<5000f", after["w"][2]), weights) < .011
    rows = {row["name"]: row for row in json.loads(t.run("inspect", "x.kpdg", "--json").stdout)["tensors"]}
    assert rows["position_ids"]["dtype"] == "int64" and rows["position_ids"]["codec"].startswith("exact"), rows["position_ids"]


def case_inspect_lists_tensors_of_any_type(t):
    tensors = {"w": ("F32", (50, 100), f32(numbers(5000))), **EXACT, "f64": ("F64", (3,), struct.pack("<3d", 1, -2, 1e300)), "odd": ("C64", (2,), bytes(16)), "scale": ("F8_E8M0", (4,), bytes(4)),
               "late": ("F32", (1,), f32([7]))}  # behind bytes, not aligned
    t.path("in.safetensors").write_bytes(safetensors_bytes(tensors))
    shown = json.loads(t.run("inspect", "in.safetensors", "--json").stdout)
    assert {r["name"]: (r["type"], tuple(r["shape"]), r["bytes"]) for r in shown["tensors"]} == {k: (v[0], v[1], len(v[2])) for k, v in tensors.items()}, shown
    assert {r["type"]: r["tensors"] for r in shown["types"]}["I64"] == 2 and shown["bytes"] == sum(len(v[2]) for v in tensors.values()), shown["types"]
    text = t.run("inspect", "in.safetensors", out=r"(?m)^  position_ids +I64 +\[1, 8\]$").stdout
    assert "tokenizer" not in text, text
    for name, least, most in (("bn.num_batches_tracked", 2.0**53 + 1, 2.0**53 + 1), ("i8", -128, 127), ("u64", 2.0**64, 2.0**64), ("f64", -2, 1e300), ("late", 7, 7), ("mask", 0, 1), ("odd", None, None)):
        figures = json.loads(t.run("inspect", "in.safetensors", "--tensor", name, "--json").stdout)
        assert figures["min"] == least and figures["max"] == most, figures
    t.run("inspect", "in.safetensors", "--tensor", "odd", out="no statistics of this type")
    t.run("inspect", "in.safetensors", "--tensor", "position_idss", exit=2, err="did you mean 'position_ids'")
    # A model needs types that it can compute with.
    t.path("folder").mkdir()
    t.path("in.safetensors").rename(t.path("folder/model.safetensors"))
    t.run("inspect", "folder", out=r"(?m)^  mask +BOOL")


def case_a_pattern_that_names_no_tensor_is_noted(t):
    t.path("in.safetensors").write_bytes(safetensors_bytes({"norm.w": ("F32", (100,), f32(numbers(100)))}))
    for command in (["encode", "in.safetensors", "x.kpdg", "--force"], ["mean", "in.safetensors"]):
        t.run(*command, "--seed", "1", "--codec", "*nrom*=bf16", "--codec", "*norm*=float32", "--codec", "norm*=bf16", err=r"(?s)\Anote: --codec \*nrom\*=bf16 is of no tensor[^\n]*\nnote: --codec norm\*=bf16 is of no tensor[^\n]*\n\Z")


def case_float64_is_coded_as_float32_and_restored(t):
    values = [v * 1.0000000001 for v in numbers(3000)]
    data = struct.pack("<3000d", *values)
    t.path("in.safetensors").write_bytes(safetensors_bytes({"w": ("F64", (3000,), data)}))
    t.path("in.npy").write_bytes(npy_bytes(data, descr="<f8", n=3000))
    for name in ("in.safetensors", "in.npy"):
        out = "out." + name.split(".")[1]
        t.run("encode", name, name + ".kpdg", "--codec", "float32", "--seed", "1")
        t.run("decode", name + ".kpdg", out)
        got = t.path(out).read_bytes()[-24000:]
        rounded = [struct.unpack("<f", struct.pack("<f", v))[0] for v in values]
        assert list(struct.unpack("<3000d", got)) == rounded, name
    assert read_safetensors(t.path("out.safetensors"))["w"][0] == "F64" and b"'<f8'" in t.path("out.npy").read_bytes()[:128]
    t.path("huge.npy").write_bytes(npy_bytes(struct.pack("<100d", *[1e300] * 100), descr="<f8", n=100))
    t.run("encode", "huge.npy", "huge.kpdg", *ENCODE, exit=3, err=r"huge\.npy.*float")


def case_npy_of_other_orders_are_read_with_a_note(t):
    values = numbers(6000)
    write_npy(t.path("plain.npy"), values)
    columns = [values[r * 30 + c] for c in range(30) for r in range(200)]
    t.path("shaped.npy").write_bytes(npy_bytes(f32(values), shape=(200, 30)))
    t.path("big.npy").write_bytes(npy_bytes(struct.pack(">6000f", *values), descr=">f4", shape=(200, 30)))
    t.path("fortran.npy").write_bytes(npy_bytes(f32(columns), shape=(200, 30), fortran=True))
    t.path("both.npy").write_bytes(npy_bytes(struct.pack(">6000f", *columns), descr=">f4", shape=(200, 30), fortran=True))
    t.run("encode", "shaped.npy", "shaped.kpdg", *ENCODE)
    for name, note in (("big", "big-endian"), ("fortran", "Fortran order"), ("both", "big-endian.*Fortran order")):
        done = t.run("encode", f"{name}.npy", f"{name}.kpdg", *ENCODE, err=rf"^note: {name}\.npy: .*{note}")
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert t.path(f"{name}.kpdg").read_bytes() == t.path("shaped.kpdg").read_bytes(), name
    bf16 = b"".join(struct.pack("<f", v)[2:] for v in values)
    t.path("in.safetensors").write_bytes(safetensors_bytes({"": ("BF16", (6000,), bf16)}))
    t.run("encode", "in.safetensors", "expected.kpdg", *ENCODE)
    for descr in ("<V2", "|V2", "bfloat16"):
        t.path("bf16.npy").write_bytes(npy_bytes(bf16, descr=descr, n=6000))
        t.run("encode", "bf16.npy", "bf16.kpdg", *ENCODE, "--force", err=r"^note: bf16\.npy: .*bfloat16")
        assert t.path("bf16.kpdg").read_bytes() == t.path("expected.kpdg").read_bytes(), descr


def case_unaligned_tensors_are_read(t):
    values = numbers(1000)
    t.path("in.safetensors").write_bytes(safetensors_bytes({"odd": ("U8", (3,), b"abc"), "w": ("F32", (1000,), f32(values))}))
    t.run("encode", "in.safetensors", "x.kpdg", "--codec", "float32", "--seed", "1")
    t.run("decode", "x.kpdg", "out.safetensors")
    assert read_safetensors(t.path("out.safetensors")) == read_safetensors(t.path("in.safetensors"))


def case_metadata_is_kept(t):
    metadata = {"format": "pt", "note": "вес\n\"quoted\"", "empty": ""}
    t.path("in.safetensors").write_bytes(with_metadata(safetensors_bytes({"w": ("F32", (100,), f32(numbers(100)))}), metadata))
    t.run("encode", "in.safetensors", "x.kpdg", *ENCODE)
    assert json.loads(t.run("inspect", "x.kpdg", "--json").stdout)["metadata"] == metadata
    t.run("decode", "x.kpdg", "out.safetensors")
    t.run("mean", "in.safetensors", "in.safetensors", "--codec", "float32", "--seed", "1", "--out", "mean.safetensors")
    for name in ("out.safetensors", "mean.safetensors"):
        data = t.path(name).read_bytes()
        assert json.loads(data[8:8 + int.from_bytes(data[:8], "little")])["__metadata__"] == metadata, name


def case_mean_of_state_dicts_in_any_order(t):
    a, b = numbers(500, 1), numbers(500, 2)
    def write(name, w, n, steps, reverse):
        tensors = {"w": ("F32", (500,), f32(w)), "n": ("I64", (2,), struct.pack("<2q", *n)), "u": ("U8", (1,), bytes([steps])),
                   "m": ("BOOL", (1,), bytes([steps % 2])), "bias": ("F32", (2,), f32(w[:2]))}
        t.path(name).write_bytes(safetensors_bytes(dict(reversed(tensors.items())) if reverse else tensors))
    write("a.safetensors", a, (10, -3), 7, False)
    write("b.safetensors", b, (21, -4), 8, True)
    run = ["mean", "a.safetensors", "b.safetensors", "--codec", "float32", "--seed", "1", "--json", "--force", "--out", "m.safetensors"]
    expected = [(x + y) / 2 for x, y in zip(a, b)]

    def mean(*more, err=None):
        row = json.loads(t.run(*run, *more, err=err).stdout)
        assert row["dim"] == 502 and row["exact_elements"] == 4, row
        got = read_safetensors(t.path("m.safetensors"))
        assert max(abs(x - y) for x, y in zip(struct.unpack("<500f", got["w"][2]), expected)) < 1e-6
        return struct.unpack("<2q", got["n"][2]) + (got["u"][2][0], got["m"][2][0])

    assert mean(err="4 numbers are no floating point: a.safetensors's are kept") == (10, -3, 7, 1)
    assert mean("--integers", "first") == (10, -3, 7, 1)
    # Halves go to the even neighbour, as everywhere.
    assert mean("--integers", "mean") == (16, -4, 8, 0)
    write("b.safetensors", b, (2**53 + 1, 0), 8, False)
    t.run(*run, "--integers", "mean", exit=3, err=r"'n'.*beyond 2\^53")
    assert mean("--integers", "first") == (10, -3, 7, 1)
    # The same from compressed files.
    for i, name in enumerate("ab"):
        t.run("encode", f"{name}.safetensors", f"{name}.kpdg", "--codec", "float32", "--seed", "1", "--client", i)
    t.run("mean", "a.kpdg", "b.kpdg", "--out", "c.safetensors")
    assert read_safetensors(t.path("c.safetensors")) == read_safetensors(t.path("m.safetensors"))
    t.run("mean", "a.kpdg", "b.kpdg", "--integers", "mean", "--out", "d.safetensors", exit=3, err=r"'n'.*beyond 2\^53")


def case_formats_that_cannot_hold_a_type_say_so(t):
    t.path("in.npy").write_bytes(npy_bytes(struct.pack("<5q", *range(5)), descr="<i8", n=5))
    t.run("encode", "in.npy", "x.kpdg", *ENCODE)
    t.run("decode", "x.kpdg", "out.npy")
    assert t.path("out.npy").read_bytes() == t.path("in.npy").read_bytes()
    t.run("decode", "x.kpdg", "out.f32", exit=2, err=r"\.f32 has no int64")
    t.run("mean", "in.npy", "--seed", "1", exit=3, err=r"in\.npy: holds no floating-point numbers")


if __name__ == "__main__":
    run_cases(globals())
