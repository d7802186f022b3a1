#!/usr/bin/env python3
"""Tables that people, pages and programs read; defaults of --codec and --seed; codecs by the names of tensors; progress on a terminal."""
import csv
import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

from inputs import numbers, write_npy, write_safetensors
from run_cli_tests import run_cases
from terminal import open_pty

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LONG = "eden:bits=0.5,code=entropy,scale=norm,rounds=3,block=4096,allocate=none"


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def widest(text):
    return max(map(len, text.splitlines()))


def case_codecs_lists_the_keys_of_one(t):
    text = t.run("codecs", "eden").stdout
    for key, values, default in (("bits", r"0\.05\.\.8", "1"), ("code", r"fixed\|entropy", "fixed"), ("scale", r"unbiased\|biased\|norm", "unbiased"),
                                 ("rounds", r"1\.\.\d", "by size"), ("block", r"64\.\.16384, a power of two", r"\d+"), ("join", r"0\|1", "[01]")):
        assert re.search(rf"(?m)^{key} +{values} +{default}$", text), (key, text)
    # What the last line says the name means is the same codec.
    spec = re.search(r"(?m)^eden is (\S+)$", text).group(1)
    write_npy(t.path("in.npy"), numbers(1000))
    for name, codec in (("short", "eden"), ("full", spec)):
        t.run("encode", "in.npy", name + ".kpdg", "--codec", codec, "--seed", 1)
    assert t.path("short.kpdg").read_bytes() == t.path("full.kpdg").read_bytes(), spec
    row, = [json.loads(line) for line in t.run("codecs", "qsgd", "--json").stdout.splitlines()]
    assert row["codec"] == "qsgd" and row["keys"][0] == {"key": "bits", "values": "1..8", "default": "4"}, row
    assert [r["key"] for r in rows_of(t.run("codecs", "eden", "--format", "csv").stdout)][:2] == ["bits", "code"]
    t.run("codecs", "float32", out="takes no keys")


def case_tables_are_a_terminal_wide_and_have_a_legend(t):
    texts = [t.run("codecs").stdout] + [t.run("codecs", name).stdout for name in ("eden", "terngrad", "kashin-sq")]
    mean = ["mean", "--synthetic", "normal", "--dim", 1000, "--clients", 2, "--trials", 2, "--seed", 1, "--codec", LONG, "--codec", "eden:bits=2"]
    texts.append(t.run(*mean).stdout)
    texts.append(t.run(*mean, "--link", "1Gbit").stdout)
    texts.append(t.run("mean", "--comm", "inprocess", "--ranks", 2, "--synthetic", "normal", "--dim", 1000, "--codec", LONG, "--trials", 2).stdout)
    for text in texts:
        assert widest(text) <= 100, (widest(text), text)
    for text in texts[4:]:
        assert re.search(r"(?m)^(bits|nmse): ", text), text
    # Wider than a terminal: below, under the first column again.
    assert len(re.findall(r"(?m)^codec ", texts[5])) > 1 and re.search(r"(?m)^codec .*overlapped", texts[5]), texts[5]


def case_mean_as_csv_and_markdown(t):
    mean = ["mean", "--synthetic", "normal", "--dim", 1000, "--clients", 3, "--trials", 2, "--seed", 1, "--codec", "eden:bits=0.5,code=entropy",
            "--codec", "float32"]
    exact = [json.loads(line) for line in t.run(*mean, "--json").stdout.splitlines()]
    rows = rows_of(t.run(*mean, "--format", "csv").stdout)
    assert [r["codec"] for r in rows] == ["eden:bits=0.5,code=entropy", "float32"], rows
    for row, want in zip(rows, exact):
        for key in ("vnmse", "vnmse_stderr", "nmse", "nmse_stderr", "limit_vnmse", "wire_bits_per_coordinate", "dim", "clients", "trials", "seed"):
            assert float(row[key]) == want[key], (key, row, want)
    lines = t.run(*mean, "--format", "markdown").stdout.splitlines()
    at = lines.index(next(line for line in lines if line.startswith("| codec ")))
    assert re.fullmatch(r"\|(---:?\|)+", lines[at + 1]) and lines[at - 1] == "" and lines[at + 3].startswith("| float32 | "), lines
    assert lines[at].count("|") == lines[at + 1].count("|") == lines[at + 2].count("|"), lines
    ranks = rows_of(t.run("mean", "--comm", "inprocess", "--ranks", 3, "--synthetic", "normal", "--dim", 1000, "--format", "csv").stdout)
    assert [r["rank"] for r in ranks] == ["0", "1", "2"] and len({r["replica_hash"] for r in ranks}) == 1, ranks


def case_codec_has_a_default(t):
    write_npy(t.path("in.npy"), numbers(1000))
    t.run("encode", "in.npy", "a.kpdg", "--seed", 1)
    t.run("encode", "in.npy", "b.kpdg", "--seed", 1, "--codec", "eden:bits=1")
    assert t.path("a.kpdg").read_bytes() == t.path("b.kpdg").read_bytes()
    row = json.loads(t.run("mean", "in.npy", "--seed", 1, "--json").stdout)
    assert row["codec"] == "eden:bits=1" and 1 < row["wire_bits_per_coordinate"] < 2, row


def case_default_seeds_survive_a_double(t):
    write_npy(t.path("in.npy"), numbers(100))
    seeds = [json.loads(t.run("encode", "in.npy", f"out{i}.kpdg", "--json").stdout)["seed"] for i in range(4)]
    seeds.append(json.loads(t.run("mean", "in.npy", "--json").stdout)["seed"])
    assert len(set(seeds)) == 5 and all(0 <= s < 2**53 and float(s) == s for s in seeds), seeds


def case_codecs_by_the_names_of_tensors(t):
    write_safetensors(t.path("in.safetensors"), {"a.weight": numbers(1000), "norm.weight": numbers(200), "b.norm.bias": numbers(200)})

    def codecs_of(name):
        tensors = json.loads(t.run("inspect", name, "--json").stdout)["tensors"]
        return {x["name"]: x["codec"].split(":")[0] for x in tensors}

    t.run("encode", "in.safetensors", "out.kpdg", "--codec", "*norm*=float32", "--codec", "eden:bits=2", "--codec", "*.bias=bf16", "--seed", 1)
    codecs = codecs_of("out.kpdg")
    assert codecs == {"a.weight": "eden", "norm.weight": "float32", "b.norm.bias": "float32"}, codecs
    t.run("encode", "in.safetensors", "bias.kpdg", "--codec", "*.bias=bf16", "--codec", "*norm*=float32", "--seed", 1)
    codecs = codecs_of("bias.kpdg")
    assert codecs == {"a.weight": "eden", "norm.weight": "float32", "b.norm.bias": "bf16"}, codecs
    # Several plain codecs mean several rows; the patterns are for each.
    mean = ["mean", "in.safetensors", "--codec", "eden:bits=2", "--codec", "eden:bits=4", "--seed", 1, "--json"]
    plain = [json.loads(line) for line in t.run(*mean).stdout.splitlines()]
    named = [json.loads(line) for line in t.run(*mean, "--codec", "*norm*=float32").stdout.splitlines()]
    assert [r["codec"] for r in named] == ["*norm*=float32 eden:bits=2", "*norm*=float32 eden:bits=4"], named
    for a, b in zip(plain, named):
        # 400 of 1400 numbers travel exactly.
        assert b["vnmse"] < .9 * a["vnmse"] and b["limit_vnmse"] is None, (a, b)
        assert abs(b["wire_bits_per_coordinate"] - a["wire_bits_per_coordinate"] - (32 - a["bits"]) * 400 / 1400) < .7, (a, b)


def on_terminal(t, end, *args):
    """What the program writes to stderr if that is a terminal; its first line of progress seen, end(process) lets it end."""
    reader, writer = open_pty()
    process = subprocess.Popen([t.program, *map(str, args)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=writer, cwd=t.folder)
    os.close(writer)
    text = b""
    while True:
        try:
            part = os.read(reader, 4096)
        except OSError:
            break
        if not part:
            break
        text += part
        if b"\x1b[K" in text and end:
            end(process)
            end = None
    os.close(reader)
    process.wait(timeout=60)
    process.stdin.close()
    return text.decode(), process.returncode


def case_progress_on_a_terminal_only(t):
    work = ["mean", "--synthetic", "lognormal", "--dim", "2^17", "--clients", 10, "--trials", 100000, "--codec", "eden:bits=4", "--seed", 1, "--threads", 1]
    text, code = on_terminal(t, lambda process: process.send_signal(signal.SIGINT), *work)
    assert code == 130 and re.search(r"\r\x1b\[Kmean: \d+/1000 k vectors, [\d.]+ a second, [\d:]+( s)? left", text), text
    # What waits for a pipe shows that it lives, and clears the line at its end.
    text, code = on_terminal(t, lambda process: process.stdin.close(), "encode", "-", "x.kpdg", "--as", "f32", "--seed", 1)
    assert code == 0 and re.fullmatch(r"(\r\x1b\[Kencode: \d+ s)+\r\x1b\[K", text), text
    work[work.index("--trials") + 1] = 1
    assert t.run(*work).stderr == ""


def case_tables_of_federated_runs(t):
    t.path("runs").mkdir()
    for codec, seeds, less in (("float32", (1, 2), 0), ("eden:bits=1", (1, 2), .00001), ("hadamard-sq:bits=1", (1,), .02)):
        for seed in seeds:
            lines = [{"codec": codec, "seed": seed, "round": r, "accuracy": .8 + .01 * r - less + .001 * seed, "uplink_bytes": 1000000 * r} for r in (1, 2, 3)]
            lines.append({"codec": codec, "seed": seed, "rounds": 3, "final_accuracy": .82 - less, "uplink_bytes": 3000000, "ratio": 1, "update_vnmse": 0})
            t.path(f"runs/{codec.split(':')[0]}-{seed}.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    t.path("runs/killed-1.jsonl").write_text('{"codec": "eden:bits=2", "seed": 1, "rou')
    plot = ["curves.png"] if shutil.which("gnuplot") else []
    done = subprocess.run([sys.executable, ROOT / "bench/federate_tables.py", "runs", *plot], cwd=t.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "mean of the last 3 rounds" in done.stdout and "-0.0000" not in done.stdout and "| 0.0000 ± 0.0000 |" in done.stdout, done.stdout
    assert "| `hadamard-sq:bits=1` | 1 | 0.8000 | -0.0200 |" in done.stdout and "eden:bits=2" not in done.stdout, done.stdout
    if plot:
        assert t.path("curves.png").read_bytes().startswith(b"\x89PNG")


def case_citation(t):
    text = (ROOT / "CITATION.cff").read_text()
    version = t.run("--version").stdout.split()[1]
    assert "cff-version: 1.2.0" in text and f"\nversion: {version}\n" in text and "EDEN" in text, text


def case_a_rank_without_a_mean_has_no_hash_in_csv(t):
    work = ["mean", "--comm", "inprocess", "--ranks", "2", "--pattern", "gather", "--synthetic", "normal", "--dim", "1000"]
    rows = rows_of(t.run(*work, "--format", "csv").stdout)
    assert len(rows[0]["replica_hash"]) == 16 and rows[1]["replica_hash"] == "" and rows[1]["nmse"] == "", rows


def case_specs_stay_whole(t):
    for args in (["codecs"], ["codecs", "eden"], ["mean", "--synthetic", "normal", "--dim", "64", "--trials", "1", "--seed", "1"]):
        text = t.run(*args).stdout
        assert not re.search(r"(?m)\beden:$", text), text


if __name__ == "__main__":
    run_cases(globals())
