#!/usr/bin/env python3
"""The figures of docs/results/serve.md: many clients on one `kpd serve`, with cancellations, garbage and disconnects.

    bench/serve_load.py MODEL [--program build/release/bin/kpd] [--clients 64] [--seconds 60] [--parallel 8]

Every client repeats: an answer whole, one streamed, a scored prompt, a wrong request, bytes that are no HTTP, or leaving within two
seconds. Each reply is checked for being whole. Prints the server's memory over time and what the clients saw.
"""
import argparse
import http.client
import json
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time


class Load:
    def __init__(self, port, seconds):
        self.port, self.end = port, time.monotonic() + seconds
        self.counts, self.lock, self.slowest = {}, threading.Lock(), 0.0

    def note(self, what, seconds=0.0):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1
            self.slowest = max(self.slowest, seconds)

    def client(self, seed):
        rng = random.Random(seed)
        while time.monotonic() < self.end:
            kind = rng.choices(["whole", "stream", "leaves", "no HTTP", "scored", "wrong"], [4, 3, 2, 1, 1, 1])[0]
            start = time.monotonic()
            try:
                status = self.ask(kind, rng)
                self.note(f"{kind}: {status}", time.monotonic() - start)
            except (OSError, http.client.HTTPException, AssertionError) as error:
                self.note(f"{kind}: {type(error).__name__} {error}")

    def ask(self, kind, rng):
        if kind == "no HTTP":
            with socket.create_connection(("127.0.0.1", self.port), timeout=60) as raw:
                raw.sendall(rng.randbytes(rng.randrange(1, 3000)))
            return "sent"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        body = {"prompt": "word " * rng.randrange(1, 60), "max_tokens": rng.randrange(1, 24), "temperature": rng.choice([0, 1])}
        if kind == "stream":
            body["stream"] = True
        elif kind == "scored":
            body.update(echo=True, logprobs=1, max_tokens=1)
        elif kind == "wrong":
            body["temperature"] = "hot"
        connection.request("POST", "/v1/completions", json.dumps(body))
        if kind == "leaves":
            time.sleep(2 * rng.random())
            connection.close()
            return "left"
        reply = connection.getresponse()
        text = reply.read()
        connection.close()
        if kind == "stream" and reply.status == 200:
            assert text.endswith(b"data: [DONE]\n\n"), "a stream without its end"
        else:
            assert ("choices" if reply.status == 200 else "error") in json.loads(text), "neither answer nor error"
        return reply.status


def memory_mib(process):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1024


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--program", default=root / "build/release/bin/kpd")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--parallel", type=int, default=8)
    args = parser.parse_args()
    process = subprocess.Popen([args.program, "serve", args.model, "--port", "0", "--ctx", "2048", "--parallel", str(args.parallel)],
                               stderr=subprocess.PIPE, text=True)
    port = next((int(m.group(1)) for m in (re.search(r"http://[\d.]+:(\d+)/", line) for line in process.stderr) if m), None)
    if port is None:
        sys.exit("the server did not start")
    load = Load(port, args.seconds)
    threads = [threading.Thread(target=load.client, args=(i,)) for i in range(args.clients)]
    for thread in threads:
        thread.start()
    memory = []
    while time.monotonic() < load.end:
        time.sleep(args.seconds / 12)
        memory.append(round(memory_mib(process)))
    for thread in threads:
        thread.join()
    alive = process.poll() is None
    print(f"{args.clients} clients, {args.seconds:.0f} s, {args.parallel} at once; the server is {'up' if alive else 'DOWN'}")
    print("memory, MiB:", *memory)
    print(f"slowest reply: {load.slowest:.1f} s")
    for what, n in sorted(load.counts.items()):
        print(f"{n:6} {what}")
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/metrics")
    print(*(line for line in connection.getresponse().read().decode().splitlines() if line.startswith("kpd_")), sep="\n")
    process.send_signal(signal.SIGINT)
    print("exit", process.wait(30))


if __name__ == "__main__":
    main()
