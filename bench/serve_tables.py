#!/usr/bin/env python3
"""kpd serve beside llama-server, one after the other on the same file: concurrent requests, start to first token, peak memory.

    bench/serve_tables.py MODEL.gguf... --llama FOLDER [--clients 8] [--threads 2] [--requests 4] [--rounds 3]

FOLDER holds llama-server (see llm_tables.py). Both get as many slots as there are clients and the same context a slot. A client sends its requests
one after the other: prompts of its own (nothing to reuse but the first words), temperature 0, ignore_eos, so that both compute the same
number of tokens. Tokens a second is what all answers have together, divided by the time from the first request to the last reply. Start to
first token: from starting the program to the reply to a request for one token, the file being in the page cache. Memory: VmHWM after that, and after the load.
Medians of --rounds; the two programs take turns.
"""
import argparse
import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORDS = "river stone window garden letter morning engine paper silver market winter bridge music forest candle harbor".split()
CONTEXT = 1024


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def command(args, name, model, port):
    if name == "kpd":
        return [args.kpd, "serve", model, "--port", str(port), "--ctx", str(CONTEXT), "--parallel", str(args.clients), "--threads", str(args.threads)]
    return [os.path.join(args.llama, "llama-server"), "-m", model, "--port", str(port), "-c", str(CONTEXT * args.clients), "-np", str(args.clients),
            "-t", str(args.threads), "-tb", str(args.threads), "--no-webui"]


def complete(port, prompt, max_tokens):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    text = reply.read()
    connection.close()
    if reply.status != 200:
        raise RuntimeError(f"{reply.status}: {text[:200]}")
    return json.loads(text)["usage"]


def peak_mib(process):
    return int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path(f"/proc/{process.pid}/status").read_text()).group(1)) / 1024


@contextlib.contextmanager
def serving(args, name, model):
    """Yields the process, its port and the seconds to its first token."""
    port, start = free_port(), time.monotonic()
    process = subprocess.Popen(command(args, name, model, port), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            try:
                complete(port, "Once", 1)
                break
            except (OSError, http.client.HTTPException, RuntimeError):
                if process.poll() is not None:
                    raise SystemExit(f"{name} has ended with {process.returncode}: {' '.join(process.args)}")
                time.sleep(0.002)
        yield process, port, time.monotonic() - start
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def prompt_of(client, request, n_words):
    number = 7919 * client + 104729 * request + 1
    words = []
    for _ in range(n_words):
        number = (number * 48271) % 2147483647
        words.append(WORDS[number % len(WORDS)])
    return "A list of words: " + " ".join(words)


def load(args, port):
    """Tokens of all answers, of all prompts, and the seconds."""

    def client(number):
        return [complete(port, prompt_of(number, i, args.words), args.tokens) for i in range(args.requests)]

    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(args.clients) as pool:
        usages = [u for list_ in pool.map(client, range(args.clients)) for u in list_]
    seconds = time.monotonic() - start
    return sum(u["completion_tokens"] for u in usages), sum(u["prompt_tokens"] for u in usages), seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--llama", required=True)
    parser.add_argument("--kpd", default=str(ROOT / "build/release/bin/kpd"))
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--requests", type=int, default=4, help="of each client")
    parser.add_argument("--words", type=int, default=60, help="of each prompt")
    parser.add_argument("--tokens", type=int, default=64, help="of each answer")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    figures = {}
    for _ in range(args.rounds):
        for model in args.models:
            for name in ("llama.cpp", "kpd"):
                with serving(args, name, model) as (process, port, first):
                    begun = peak_mib(process)
                    tokens, prompts, seconds = load(args, port)
                    row = {"tokens": tokens, "prompts": prompts, "speed": tokens / seconds, "first": first, "begun": begun, "peak": peak_mib(process)}
                for key, value in row.items():
                    figures.setdefault((model, name, key), []).append(value)
    print("| | file | llama.cpp | kpd | ratio |\n|---|---|---|---|---|")
    rows = (("speed", f"{args.clients} clients, tokens/s of answers", "{:.1f}"), ("prompts", "prompt tokens read", "{:.0f}"), ("first", "start to first token, s", "{:.3f}"),
            ("begun", "peak memory then, MiB", "{:.0f}"), ("peak", "peak memory after the load, MiB", "{:.0f}"))
    for model in args.models:
        for key, label, form in rows:
            theirs, ours = (statistics.median(figures[(model, name, key)]) for name in ("llama.cpp", "kpd"))
            print(f"| {label} | {pathlib.Path(model).stem} | {form.format(theirs)} | {form.format(ours)} | {ours / theirs:.2f} |")


main()
