#!/usr/bin/env python3
"""encode, decode, inspect and codecs on good inputs."""
import json
import struct

from inputs import npy_bytes, numbers, read_npy, read_safetensors, vnmse, write_npy, write_safetensors
from run_cli_tests import run_cases


def case_codecs_table_and_json(t):
    t.run("codecs", out=r"(?m)^codec +bits")
    rows = [json.loads(line) for line in t.run("codecs", "--json").stdout.splitlines()]
    names = [row["codec"] for row in rows]
    assert "eden" in names and "float32" in names, names
    assert all(set(row) >= {"codec", "bits", "unbiased", "limit", "paper"} for row in rows), rows


def case_float32_round_trip_is_exact(t):
    values = numbers(5000)
    write_npy(t.path("in.npy"), values)
    t.run("encode", "--force", "in.npy", "x.kpdg", "--codec", "float32", "--seed", "1")
    t.run("decode", "--force", "x.kpdg", "out.npy")
    assert read_npy(t.path("out.npy")) == values
    assert t.names() == ["in.npy", "out.npy", "x.kpdg"], t.names()


def case_eden_round_trip_reports_the_exact_error(t):
    values = numbers(70001)
    write_npy(t.path("in.npy"), values)
    report = json.loads(t.run("encode", "--force", "in.npy", "x.kpdg", "--codec", "eden:bits=2", "--seed", "1", "--json").stdout)
    t.run("decode", "--force", "x.kpdg", "out.npy")
    error = vnmse(read_npy(t.path("out.npy")), values)
    assert abs(error / report["vnmse"] - 1) < 1e-4, (error, report)
    assert .12 < error < .14, error
    size = t.path("x.kpdg").stat().st_size
    assert report["bytes"] == size and abs(report["wire_bits_per_coordinate"] - 8 * size / 70001) < 1e-9, report
    assert report["elements"] == 70001 and report["seed"] == 1, report
    assert report["seconds"] > 0, report


def case_encode_text_names_the_figures(t):
    write_npy(t.path("in.npy"), numbers(5000))
    t.run("encode", "--force", "in.npy", "x.kpdg", "--codec", "eden:bits=1", "--seed", "1",
          out=r"5000 numbers.*bits per number \(all bytes\), vnmse .*seed 1")


def case_seed_from_the_system_is_printed_and_repeats(t):
    write_npy(t.path("in.npy"), numbers(5000))
    done = t.run("encode", "--force", "in.npy", "a.kpdg", "--codec", "eden:bits=1", err=r"^seed \d+ ")
    seed = done.stderr.split()[1]
    t.run("encode", "--force", "in.npy", "b.kpdg", "--codec", "eden:bits=1", "--seed", seed)
    t.run("encode", "--force", "in.npy", "c.kpdg", "--codec", "eden:bits=1")
    assert t.path("a.kpdg").read_bytes() == t.path("b.kpdg").read_bytes()
    assert t.path("a.kpdg").read_bytes() != t.path("c.kpdg").read_bytes()


def case_threads_do_not_change_bytes(t):
    write_npy(t.path("in.npy"), numbers(600000))
    for threads in (1, 2, 3):
        t.run("encode", "--force", "in.npy", f"{threads}.kpdg", "--codec", "eden:bits=1", "--seed", "1", "--threads", threads)
        t.run("decode", "--force", f"{threads}.kpdg", f"{threads}.npy", "--threads", threads)
    for threads in (2, 3):
        assert t.path("1.kpdg").read_bytes() == t.path(f"{threads}.kpdg").read_bytes()
        assert t.path("1.npy").read_bytes() == t.path(f"{threads}.npy").read_bytes()


def case_raw_f32(t):
    values = numbers(777)
    t.path("in.f32").write_bytes(struct.pack("<777f", *values))
    t.run("encode", "--force", "in.f32", "x.kpdg", "--codec", "float32", "--seed", "1")
    t.run("decode", "--force", "x.kpdg", "out.f32")
    assert t.path("out.f32").read_bytes() == t.path("in.f32").read_bytes()


def case_shape_survives(t):
    values = numbers(60)
    t.path("in.npy").write_bytes(npy_bytes(struct.pack("<60f", *values), shape=(3, 4, 5)))
    t.run("encode", "--force", "in.npy", "x.kpdg", "--codec", "float32", "--seed", "1")
    t.run("decode", "--force", "x.kpdg", "out.npy")
    assert b"(3, 4, 5)" in t.path("out.npy").read_bytes()[:128]
    info = json.loads(t.run("inspect", "x.kpdg", "--json").stdout)
    assert info["tensors"][0]["shape"] == [3, 4, 5], info


def case_safetensors_keep_names_types_and_shapes(t):
    values = numbers(6000)
    bf16 = b"".join(struct.pack("<f", v)[2:] for v in values[:200])
    fp16 = struct.pack("<100e", *[round(v, 2) for v in values[:100]])
    from inputs import safetensors_bytes
    t.path("in.safetensors").write_bytes(safetensors_bytes({
        "layer.weight": ("F32", (60, 100), struct.pack("<6000f", *values)),
        "layer.bias": ("BF16", (200,), bf16),
        "scale": ("F16", (4, 25), fp16),
        "tiny": ("F32", (), struct.pack("<f", 1.5)),
    }))
    t.run("encode", "--force", "in.safetensors", "x.kpdg", "--codec", "float32", "--seed", "1", out=r"6301 numbers in 4 tensors")
    t.run("decode", "--force", "x.kpdg", "out.safetensors")
    before, after = read_safetensors(t.path("in.safetensors")), read_safetensors(t.path("out.safetensors"))
    assert before == after, {k: (before[k][:2], after.get(k, ())[:2]) for k in before}
    t.run("decode", "--force", "x.kpdg", "out.npy", exit=2, err=r"\.npy holds one tensor")
    info = json.loads(t.run("inspect", "x.kpdg", "--json").stdout)
    assert {x["name"] for x in info["tensors"]} == set(before), info


def case_bfloat16_input_decodes_near(t):
    from inputs import safetensors_bytes
    values = numbers(5000)
    bf16 = b"".join(struct.pack("<f", v)[2:] for v in values)
    t.path("in.safetensors").write_bytes(safetensors_bytes({"w": ("BF16", (5000,), bf16)}))
    t.run("encode", "--force", "in.safetensors", "x.kpdg", "--codec", "eden:bits=4", "--seed", "1")
    t.run("decode", "--force", "x.kpdg", "out.safetensors")
    dtype, shape, payload = read_safetensors(t.path("out.safetensors"))["w"]
    decoded = [struct.unpack("<f", b"\0\0" + payload[2 * i:2 * i + 2])[0] for i in range(5000)]
    assert dtype == "BF16" and shape == [5000] and vnmse(decoded, values) < .012, vnmse(decoded, values)


def case_values_beyond_half_precision_are_clamped_and_counted(t):
    signs = [1 if v > 0 else -1 for v in numbers(1000)]
    data = struct.pack("<1000e", *(65504.0 * s * (i / 1000) for i, s in enumerate(signs)))
    t.path("in.npy").write_bytes(npy_bytes(data, descr="<f2", n=1000))
    t.run("encode", "--force", "in.npy", "x.kpdg", "--codec", "eden:bits=1", "--seed", "1")
    report = json.loads(t.run("decode", "--force", "x.kpdg", "out.safetensors", "--json").stdout)
    dtype, _, payload = next(iter(read_safetensors(t.path("out.safetensors")).values()))
    values = struct.unpack("<1000e", payload)
    assert dtype == "F16" and max(map(abs, values)) == 65504.0, values[:5]
    assert report["saturated"] == sum(abs(v) == 65504.0 for v in values) > 0, report
    t.run("mean", "in.npy", "in.npy", "--codec", "eden:bits=1", "--seed", "1", "--out", "mean.safetensors",
          err="beyond the range of their type")


def case_inputs_are_not_overwritten(t):
    write_npy(t.path("a.npy"), numbers(100))
    write_npy(t.path("b.npy"), numbers(100))
    t.path("link.kpdg").symlink_to("a.npy")
    before = t.path("a.npy").read_bytes()
    run = ["--codec", "float32", "--seed", "1"]
    t.run("encode", "--force", "a.npy", "a.npy", *run, exit=2, err="same file")
    t.run("encode", "--force", "a.npy", "link.kpdg", *run, exit=2, err="same file")
    t.run("encode", "--force", "a.npy", "b.npy", *run, exit=2, err="expected another name")
    t.run("mean", "a.npy", "b.npy", *run, "--out", "a.npy", exit=2, err="same file")
    t.run("mean", "a.npy", "b.npy", *run, "--comm", "inprocess", "--ranks", "2", "--out", "a.npy", exit=2, err="same file")
    assert t.path("a.npy").read_bytes() == before == t.path("b.npy").read_bytes()


def case_inspect(t):
    write_npy(t.path("in.npy"), numbers(10000))
    t.run("encode", "--force", "in.npy", "x.kpdg", "--codec", "eden:bits=3,rounds=3,block=1024", "--seed", "42")
    info = json.loads(t.run("inspect", "x.kpdg", "--json").stdout)
    assert info["form"] == "file" and info["seed"] == 42 and info["elements"] == 10000, info
    assert info["total_bytes"] == t.path("x.kpdg").stat().st_size, info
    assert abs(info["bits_per_number"] - 8 * info["total_bytes"] / 10000) < 1e-9, info
    spec = info["tensors"][0]["codec"]
    assert spec.startswith("eden:bits=3,") and "rounds=3" in spec and "block=1024" in spec, spec
    # The spec that inspect prints is one that encode takes, and it gives the same bytes.
    t.run("encode", "--force", "in.npy", "y.kpdg", "--codec", spec, "--seed", "42")
    assert t.path("x.kpdg").read_bytes() == t.path("y.kpdg").read_bytes()
    t.run("inspect", "x.kpdg", out=r"(?s)checksum ok.*seed 42.*eden:bits=3")


def case_every_codec_encodes_and_decodes(t):
    values = numbers(9000)
    write_npy(t.path("in.npy"), values)
    for line in t.run("codecs", "--json").stdout.splitlines():
        row = json.loads(line)
        report = json.loads(t.run("encode", "--force", "in.npy", "x.kpdg", "--codec", row["codec"], "--seed", "1", "--json").stdout)
        t.run("decode", "--force", "x.kpdg", "out.npy")
        error = vnmse(read_npy(t.path("out.npy")), values)
        assert abs(error - report["vnmse"]) <= 1e-4 * error + 1e-12, (row["codec"], error, report)
        spec = json.loads(t.run("inspect", "x.kpdg", "--json").stdout)["tensors"][0]["codec"]
        t.run("encode", "--force", "in.npy", "y.kpdg", "--codec", spec, "--seed", "1")
        assert t.path("x.kpdg").read_bytes() == t.path("y.kpdg").read_bytes(), (row["codec"], spec)


SPECS = ["eden:bits=0.3", "eden:bits=0.1,code=entropy", "eden:bits=2.5,scale=norm", "eden:bits=1,allocate=energy",
         "eden:bits=2,code=entropy,dither=shared", "eden:bits=1,rounds=3,block=1024,scale=biased", "drive:scale=biased",
         "kashin-sq:bits=2,iterations=3", "terngrad:clip=2.5", "qsgd:bits=4,block=512", "qsgd:bits=4,norm=max,code=fixed,block=512", "randk:bits=0.7", "sq:bits=3"]


def case_inspect_names_a_spec_that_encodes_the_same(t):
    write_npy(t.path("in.npy"), numbers(9000))
    for spec in SPECS:
        t.run("encode", "--force", "in.npy", "x.kpdg", "--codec", spec, "--seed", "1")
        shown = json.loads(t.run("inspect", "x.kpdg", "--json").stdout)["tensors"][0]["codec"]
        t.run("encode", "--force", "in.npy", "y.kpdg", "--codec", shown, "--seed", "1")
        assert t.path("x.kpdg").read_bytes() == t.path("y.kpdg").read_bytes(), (spec, shown)
        bits = [item for item in spec.partition(":")[2].split(",") if item.startswith("bits=")]
        assert all(item in shown for item in bits), (spec, shown)


def case_nonfinite_policies(t):
    values = numbers(9000)
    values[4500] = float("nan")
    write_npy(t.path("in.npy"), values)
    t.run("encode", "--force", "in.npy", "x.kpdg", "--codec", "eden:bits=4", "--seed", "1", exit=3, err=r"in\.npy.*4500")
    t.run("encode", "--force", "in.npy", "x.kpdg", "--codec", "eden:bits=4", "--seed", "1", "--nonfinite", "zero", out=r"NaN or Inf: 1")
    t.run("decode", "--force", "x.kpdg", "out.npy")
    assert all(v == v for v in read_npy(t.path("out.npy")))
    t.run("encode", "--force", "in.npy", "x.kpdg", "--codec", "eden:bits=4", "--seed", "1", "--nonfinite", "pass", out=r"NaN or Inf: 1")
    t.run("decode", "--force", "x.kpdg", "out.npy")
    decoded = read_npy(t.path("out.npy"))
    assert decoded[4500] != decoded[4500] and sum(v != v for v in decoded) == 1


def case_safetensors_many_tensors_mean_bits(t):
    write_safetensors(t.path("in.safetensors"), {f"t{i}": numbers(100 + i, i) for i in range(40)})
    info = json.loads(t.run("encode", "--force", "in.safetensors", "x.kpdg", "--codec", "eden:bits=1", "--seed", "1", "--json").stdout)
    assert info["elements"] == sum(100 + i for i in range(40)), info
    t.run("decode", "--force", "x.kpdg", "out.safetensors")
    assert len(read_safetensors(t.path("out.safetensors"))) == 40


if __name__ == "__main__":
    run_cases(globals())
