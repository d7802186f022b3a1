#!/usr/bin/env python3
"""Files of many clients: keys of their own, refused where they are equal, averaged without being encoded again."""
import csv
import io
import json

from inputs import numbers, read_npy, vnmse, write_npy
from run_cli_tests import run_cases

CODEC = ["--codec", "eden:bits=1"]


def encode(t, n, name, *more, codec=CODEC, dim=5000):
    write_npy(t.path("x.npy"), numbers(dim))
    names = []
    for i in range(n):
        options = [str(m).replace("{i}", str(i)) for m in more]
        t.run("encode", "x.npy", f"{name}{i}.kpdg", *codec, *options)
        names.append(f"{name}{i}.kpdg")
    return names


def error_of_mean(t, names, *more):
    t.run("mean", *names, "--out", "m.npy", "--force", *more)
    return vnmse(read_npy(t.path("m.npy")), read_npy(t.path("x.npy")))


def case_clients_of_one_seed_average_out(t):
    """Ten files of one vector at one bit: error .57 each, .057 of their mean."""
    for more in (("--seed", 1, "--client", "{i}"), ("--seed", 1, "--round", "{i}"), ("--seed", "{i}")):
        names = encode(t, 10, "c" if more[2:3] == ("--client",) else "r" if more[2:3] == ("--round",) else "s", *more)
        assert .050 < error_of_mean(t, names) < .065, more


def case_files_of_one_key_are_refused(t):
    names = encode(t, 3, "c", "--seed", 1, "--client", 7)
    t.run("mean", *names, "--out", "m.npy", exit=3, err=r"c1\.kpdg: has seed 1, round 0 and client 7 as c0\.kpdg.*--client")
    t.run("mean", names[0], names[0], exit=3, err=r"--client")
    assert "m.npy" not in t.names()
    # Codecs that draw no random numbers have no keys.
    for codec in ("float32", "bf16"):
        names = encode(t, 3, codec, "--seed", 1, codec=["--codec", codec])
        assert error_of_mean(t, names) < 1e-5
    # Nor have tensors that are too short to be coded.
    names = encode(t, 3, "short", "--seed", 1, dim=63)
    assert error_of_mean(t, names) == 0


def case_round_and_client_are_part_of_the_file(t):
    encode(t, 2, "c", "--seed", 5, "--client", "{i}", "--round", 3)
    info = json.loads(t.run("inspect", "c1.kpdg", "--json").stdout)
    assert (info["seed"], info["round"], info["client"]) == (5, 3, 1), info
    t.run("inspect", "c1.kpdg", out="seed 5, round 3, client 1")
    assert t.path("c0.kpdg").read_bytes()[100:] != t.path("c1.kpdg").read_bytes()[100:]


def case_weights_and_figures(t):
    for i in range(3):
        write_npy(t.path(f"x{i}.npy"), numbers(5000, i))
        t.run("encode", f"x{i}.npy", f"c{i}.kpdg", "--codec", "eden:bits=2", "--seed", "1", "--client", i)
        t.run("decode", f"c{i}.kpdg", f"d{i}.npy")
    names = [f"c{i}.kpdg" for i in range(3)]
    report = json.loads(t.run("mean", *names, "--weights", "1,2,5", "--out", "m.npy", "--json").stdout)
    decoded = [read_npy(t.path(f"d{i}.npy")) for i in range(3)]
    expected = [(a + 2 * b + 5 * c) / 8 for a, b, c in zip(*decoded)]
    assert max(abs(a - b) for a, b in zip(read_npy(t.path("m.npy")), expected)) < 1e-6
    assert "vnmse" not in report and report["dim"] == 5000 and report["clients"] == 3, report
    size = sum(t.path(name).stat().st_size for name in names)
    assert abs(report["wire_bits_per_coordinate"] - 8 * size / 15000) < 1e-9, report
    assert "vnmse" not in t.run("mean", *names, out="numbers").stdout
    originals = [x for i in range(3) for x in ("--original", f"x{i}.npy")]
    report = json.loads(t.run("mean", *names, *originals, "--json").stdout)
    true = [read_npy(t.path(f"x{i}.npy")) for i in range(3)]
    error = sum((a - b) ** 2 for d, x in zip(decoded, true) for a, b in zip(d, x))
    norm = sum(b * b for x in true for b in x)
    mean_error = sum((sum(a - b for a, b in zip(d, x)) / 3) ** 2 for d, x in zip(zip(*decoded), zip(*true)))
    assert abs(report["vnmse"] / (error / norm) - 1) < 1e-6, report
    assert abs(report["ratio"] / (9 * mean_error / error) - 1) < 1e-6 and .9 < report["ratio"] < 1.1, report
    t.run("mean", *names, *originals, out="ratio")
    t.run("mean", *names, "--original", "x0.npy", exit=2, err="1 files for 3 compressed ones")


def case_what_does_not_belong_to_compressed_files(t):
    names = encode(t, 2, "c", "--seed", 1, "--client", "{i}")
    for more in (["--codec", "float32"], ["--trials", "2"], ["--speed"]):
        t.run("mean", *names, *more, exit=2, err="compressed already")
    t.run("mean", names[0], "x.npy", exit=2, err=r"x\.npy: is not compressed and c0\.kpdg is")
    t.path("broken.kpdg").write_bytes(b"hello")
    t.run("mean", "broken.kpdg", exit=3, err=r"broken\.kpdg")
    encode(t, 1, "other", "--seed", 2, dim=5001)
    t.run("mean", names[0], "other0.kpdg", exit=3, err=r"other0\.kpdg.*5001.*5000")


def case_csv_names_the_codecs(t):
    names = encode(t, 1, "a", "--seed", 1) + encode(t, 1, "b", "--seed", 2, codec=["--codec", "float32"])
    row, = csv.DictReader(io.StringIO(t.run("mean", *names, "--format", "csv").stdout))
    assert row["codecs"] == " and ".join(json.loads(t.run("mean", *names, "--json").stdout)["codecs"]) and row["codecs"].startswith("eden:"), row
    assert "codecs" not in t.run("mean", *names, "--format", "markdown").stdout.splitlines()[0]


if __name__ == "__main__":
    run_cases(globals())
