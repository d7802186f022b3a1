#!/usr/bin/env python3
"""kpd bench beside llama-bench, one after the other on the same files: tokens per second and ratios, as Markdown.

    bench/llm_tables.py MODEL.gguf... --llama FOLDER [--threads 1,2] [--depth 4096] [--repetitions 5] [--rounds 3]

FOLDER holds llama-bench (llama.cpp as PyPI's llama-cpp-python carries it: cmake -S vendor/llama.cpp, target llama-bench). Each figure is
the median of --rounds runs of --repetitions; the two programs take turns, so that a machine whose speed drifts hurts both. The first
column of ratios is kpd to llama.cpp on the same file, the last kpd's to llama.cpp's best file.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent


def lines_of(command):
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def kpd(args, model, threads, depth):
    command = [args.kpd, "bench", model, "--threads", str(threads), "--repetitions", str(args.repetitions), "--depth", str(depth), "--json"]
    return lines_of(command + (["--prompt", "0"] if depth else []))


def llama(args, model, threads, depth):
    command = [os.path.join(args.llama, "llama-bench"), "-m", model, "-t", str(threads), "-r", str(args.repetitions), "-d", str(depth), "-o", "jsonl"]
    return lines_of(command + ["-n", "64", "-p", "0" if depth else "512"])


def key(row):
    return (row["n_prompt"], row["n_gen"], row["n_depth"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--llama", required=True)
    parser.add_argument("--kpd", default=str(ROOT / "build/release/bin/kpd"))
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--depth", type=int, default=0, help="also decoding behind so many tokens, with the most threads")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    threads = [int(t) for t in args.threads.split(",")]
    cases = [(t, 0) for t in threads] + ([(threads[-1], args.depth)] if args.depth else [])
    speeds = {}
    for _ in range(args.rounds):
        for t, depth in cases:
            for model in args.models:
                for name, run in (("kpd", kpd), ("llama.cpp", llama)):
                    for row in run(args, model, t, depth):
                        speeds.setdefault((t, key(row), model, name), []).append(row["avg_ts"])
    print("| | threads | file | llama.cpp | kpd | ratio | to llama.cpp's best file |\n|---|---|---|---|---|---|---|")
    for t, what in sorted({k[:2] for k in speeds}, key=lambda k: (k[1][0] > 0, k[1][2], k[0])):
        label = f"prefill {what[0]}" if what[0] else f"decode {what[1]}" + (f" at depth {what[2]}" if what[2] else "")
        middle = {k: statistics.median(v) for k, v in speeds.items() if k[:2] == (t, what)}
        best = max(v for k, v in middle.items() if k[3] == "llama.cpp")
        for model in args.models:
            ours, theirs = middle[(t, what, model, "kpd")], middle[(t, what, model, "llama.cpp")]
            print(f"| {label} | {t} | {pathlib.Path(model).stem} | {theirs:.1f} | {ours:.1f} | {ours / theirs:.2f} | {ours / best:.2f} |")


main()
