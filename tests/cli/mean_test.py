#!/usr/bin/env python3
"""kpd mean: figures on files and synthetic vectors, weights, correlation, threads, JSON."""
import json
import re
import struct

from inputs import numbers, read_npy, read_safetensors, write_npy, write_safetensors

KEYS = ["codec", "spec", "bits", "dim", "clients", "trials", "vnmse", "vnmse_stderr", "nmse", "nmse_stderr", "ratio", "ratio_stderr",
        "limit_vnmse", "wire_bits_per_coordinate", "encode_gb_per_s", "decode_gb_per_s", "memcpy_gb_per_s", "threads", "isa"]
from run_cli_tests import run_cases


def mean_json(t, *args):
    done = t.run("mean", *args, "--json", "--seed", "1")
    return [json.loads(line) for line in done.stdout.splitlines()]


def near(value, expected, relative):
    return abs(value - expected) <= relative * abs(expected)


def case_json_has_every_key_one_line_a_codec(t):
    codecs = ["eden:bits=1", "eden:bits=4", "float32"]
    rows = mean_json(t, "--synthetic", "lognormal", "--dim", "2^14", "--clients", "4", "--trials", "3", "--speed",
                     *(x for c in codecs for x in ("--codec", c)))
    assert [row["codec"] for row in rows] == codecs
    for row in rows:
        assert list(row)[:len(KEYS)] == KEYS, list(row)
        assert row["dim"] == 2 ** 14 and row["clients"] == 4 and row["trials"] == 3, row
        assert min(row[k] for k in ("encode_gb_per_s", "decode_gb_per_s", "memcpy_gb_per_s")) > 0, row
    assert rows[0]["bits"] == 1 and near(rows[0]["limit_vnmse"], .5707963, 1e-3), rows[0]
    assert near(rows[0]["vnmse"], rows[0]["limit_vnmse"], .03), rows[0]
    assert rows[0]["spec"] == "eden:bits=1,code=fixed,scale=unbiased,rounds=by size,block=4096,dither=none,allocate=none,join=1", rows[0]
    assert rows[2]["vnmse"] == 0 and rows[2]["nmse"] == 0 and rows[2]["ratio"] is None and rows[2]["wire_bits_per_coordinate"] < 32.1, rows[2]


def case_table_has_one_line_a_codec(t):
    done = t.run("mean", "--synthetic", "normal", "--dim", "4096", "--clients", "2", "--trials", "2", "--codec", "eden:bits=1",
                 "--codec", "eden:bits=2", "--seed", "1", "--link", "1Gbit", out=r"(?m)^codec +bits +vnmse +limit")
    # What is wider than a terminal stands below: errors, then speeds.
    assert [line.split()[0] for line in done.stdout.splitlines() if line.startswith("eden")] == 2 * ["eden:bits=1", "eden:bits=2"], done.stdout
    assert re.search(r"(?m)^codec .* gain .*\n.* 1 Gbit/s", done.stdout) and done.stderr == "", done.stdout + done.stderr


def case_clients_average_out(t):
    for source in (["lognormal"], ["lognormal", "--correlation", "1"], ["normal", "--correlation", ".9"], ["exponential"]):
        row, = mean_json(t, "--synthetic", *source, "--dim", "8192", "--clients", "50", "--trials", "4", "--codec", "eden:bits=1")
        assert near(row["nmse"] * 50, row["vnmse"], .06) and near(row["ratio"], 1, .06), (source, row)
        # With equal norms and weights that is the same statistic, up to how trials are averaged.
        assert near(row["ratio"], row["nmse"] * 50 / row["vnmse"], .01) and 0 < row["ratio_stderr"] < .03, (source, row)
        assert row["nmse_stderr"] > 0 and row["vnmse_stderr"] > 0, row
        assert row["encode_gb_per_s"] is None, row


def case_sparse_clients_average_out_with_three_rounds(t):
    row, = mean_json(t, "--synthetic", "sparse:2", "--dim", "4096", "--clients", "100", "--trials", "4", "--codec",
                     "eden:bits=1,rounds=3")
    assert near(row["nmse"] * 100, row["vnmse"], .1), row


def case_one_trial_has_no_standard_error(t):
    row, = mean_json(t, "--synthetic", "normal", "--dim", "4096", "--clients", "2", "--trials", "1", "--codec", "eden:bits=1")
    assert row["vnmse_stderr"] is None and row["nmse_stderr"] is None, row


def case_trials_have_their_own_rotations(t):
    rows = [mean_json(t, "--synthetic", "sparse:3", "--dim", "4096", "--clients", "1", "--trials", str(n), "--codec",
                      "eden:bits=1")[0] for n in (1, 2)]
    assert rows[1]["vnmse_stderr"] > 0, rows[1]


def case_threads_do_not_change_figures(t):
    base = ["--synthetic", "lognormal", "--correlation", ".5", "--dim", "100000", "--clients", "3", "--codec", "eden:bits=1",
            "--codec", "eden:bits=2"]
    for trials in ("2", "9"):
        rows = [mean_json(t, *base, "--trials", trials, "--threads", str(n)) for n in (1, 2, 3)]
        for other in rows[1:]:
            for a, b in zip(rows[0], other):
                assert {**a, "threads": 0} == {**b, "threads": 0}, (a, b)


def case_codecs_do_not_change_each_other(t):
    base = ["--synthetic", "lognormal", "--dim", "5000", "--clients", "3", "--trials", "2"]
    alone = mean_json(t, *base, "--codec", "eden:bits=2")
    both = mean_json(t, *base, "--codec", "eden:bits=1", "--codec", "eden:bits=2")
    assert alone[0] == both[1], (alone, both)


def case_files_and_their_mean(t):
    values = [numbers(5000, seed) for seed in (1, 2, 3)]
    for name, v in zip("abc", values):
        write_npy(t.path(f"{name}.npy"), v)
    row, = mean_json(t, "a.npy", "b.npy", "c.npy", "--codec", "float32", "--out", "m.npy")
    assert list(row)[:len(KEYS)] == KEYS and row["dim"] == 5000 and row["clients"] == 3 and row["trials"] == 1, row
    assert row["encode_gb_per_s"] is None, "speed is measured where --speed asks for it"
    expected = [sum(v) / 3 for v in zip(*values)]
    assert max(abs(a - b) for a, b in zip(read_npy(t.path("m.npy")), expected)) < 1e-6
    row, = mean_json(t, "a.npy", "b.npy", "c.npy", "--codec", "eden:bits=4", "--trials", "5")
    assert near(row["vnmse"], .0095, .1) and row["trials"] == 5 and row["vnmse_stderr"] > 0, row


def case_weights(t):
    values = [numbers(300, seed) for seed in (1, 2)]
    for name, v in zip("ab", values):
        write_npy(t.path(f"{name}.npy"), v)
    mean_json(t, "a.npy", "b.npy", "--codec", "float32", "--weights", "3,1", "--out", "m.npy")
    expected = [(3 * a + b) / 4 for a, b in zip(*values)]
    assert max(abs(a - b) for a, b in zip(read_npy(t.path("m.npy")), expected)) < 1e-6


def case_the_ratio_is_1_whatever_norms_and_weights(t):
    names = []
    for i in range(4):
        write_npy(t.path(f"{i}.npy"), [10.0 ** i * v for v in numbers(4096, i)])
        names.append(f"{i}.npy")
    row, = mean_json(t, *names, "--codec", "eden:bits=1", "--weights", "900,70,30,1", "--trials", "20")
    assert near(row["ratio"], 1, .03), row
    assert not near(row["nmse"] * 4 / row["vnmse"], 1, .5), row
    # Without independence it shows: a biased scale shrinks every vector alike.
    row, = mean_json(t, *names[:1] * 4, "--codec", "eden:bits=1,scale=biased", "--trials", "5")
    assert row["ratio"] > 1.5, row


def case_the_table_says_the_ratio_and_the_whole_spec(t):
    done = t.run("mean", "--synthetic", "normal", "--dim", "4096", "--clients", "2", "--trials", "2", "--codec", "eden:bits=2", "--seed", "1",
                 out=r"(?m)^in full: eden:bits=2,code=fixed,scale=unbiased")
    assert "GB/s" not in done.stdout and re.search(r"(?m)^codec .* ratio", done.stdout), done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100, done.stdout


def case_safetensors_clients(t):
    for name, seed in (("a", 1), ("b", 2)):
        write_safetensors(t.path(f"{name}.safetensors"), {"w": numbers(5000, seed), "bias": numbers(10, seed + 5)})
    row, = mean_json(t, "a.safetensors", "b.safetensors", "--codec", "eden:bits=8", "--out", "m.safetensors")
    assert row["dim"] == 5010, row
    dtype, shape, payload = read_safetensors(t.path("m.safetensors"))["w"]
    mean = struct.unpack("<5000f", payload)
    expected = [(a + b) / 2 for a, b in zip(numbers(5000, 1), numbers(5000, 2))]
    assert dtype == "F32" and shape == [5000] and max(abs(a - b) for a, b in zip(mean, expected)) < .2
    # Several tensors do not fit into .npy: nothing is written.
    t.run("mean", "a.safetensors", "b.safetensors", "--codec", "eden:bits=8", "--seed", "1", "--out", "m.npy", exit=2,
          err=r"\.npy holds one tensor")
    assert "m.npy" not in t.names()


def case_all_zero_clients(t):
    write_npy(t.path("z.npy"), [0.0] * 5000)
    row, = mean_json(t, "z.npy", "z.npy", "--codec", "eden:bits=1")
    assert row["vnmse"] == 0 and row["nmse"] == 0, row


def case_link_rule(t):
    row, = mean_json(t, "--synthetic", "normal", "--dim", "2^16", "--clients", "1", "--trials", "1", "--codec", "eden:bits=1",
                     "--link", "100Mbit")
    n, e, d = .0125, row["encode_gb_per_s"], row["decode_gb_per_s"]
    expected = 1 / n / (1 / e + row["wire_bits_per_coordinate"] / 32 / n + 1 / d)
    assert near(row["link_gain"], expected, 1e-6) and row["link_pays"] is (expected > 1), row


def case_loss(t):
    for loss, burst in ((".2", False), (".2,burst", True)):
        row, = mean_json(t, "--synthetic", "lognormal", "--dim", "2^20", "--clients", "2", "--trials", "2", "--codec",
                         "eden:bits=1", "--loss", loss)
        realised = row["packets_lost"] / row["packets"]
        assert row["packets"] == 4 * 110 and near(realised, .2, .2) and row["burst"] is burst, row
        assert near(row["limit_vnmse"], 1.5707963 / (1 - realised) - 1, 1e-2), row
        assert near(row["vnmse"], row["limit_vnmse"], .01), row
        assert 0 < row["packet_overhead_bits_per_coordinate"] < .02, row
        assert row["messages"] == 4 and row["messages_lost"] == 0, row


def case_loss_of_small_vectors(t):
    # One packet a message: it is lost or it is not, and the mean is over those that came.
    row, = mean_json(t, "--synthetic", "lognormal", "--dim", "1000", "--clients", "50", "--trials", "20", "--codec",
                     "eden:bits=1", "--loss", ".2")
    assert row["packets"] == row["messages"] == 1000 and row["packets_lost"] == row["messages_lost"], row
    assert abs(row["messages_lost"] - 200) < 4 * 12.7 and near(row["vnmse"], row["limit_vnmse"], .03), row
    assert near(row["nmse"] * 50 * (1 - row["messages_lost"] / 1000) / row["vnmse"], 1, .1), row
    # 125 bytes of codes make one packet of 12 more; header, record, scale and number of packets come on top.
    assert row["wire_bits_per_coordinate"] > 1.1, row
    text = t.run("mean", "--synthetic", "normal", "--dim", "9600", "--clients", "3", "--trials", "2", "--codec", "eden:bits=1",
                 "--loss", ".05,burst", "--seed", "1").stdout
    assert "bits on the wire" in text and "bound" in text and "of 96" in text, text
    row, = mean_json(t, "--synthetic", "normal", "--dim", "64", "--clients", "1", "--trials", "1", "--codec", "eden:bits=1",
                     "--loss", "1")
    assert row["vnmse"] is None and row["messages_lost"] == 1, row


if __name__ == "__main__":
    run_cases(globals())
