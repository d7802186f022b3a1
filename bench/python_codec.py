#!/usr/bin/env python3
"""Calls of kpd.gradient beside the same calls in C++, in turns, one thread: medians and their ratios, as a table in Markdown.

    build/python-venv/bin/python bench/python_codec.py build/release/bin/bench_python_calls

Both sides encode and decode 2^24 normal numbers into memory that they touched before, as one tensor and as 1,000; torch's rows
where torch is installed. Each ratio is C++'s time over Python's: 1 is the same speed. "new memory" is a new array beside C++'s old
one. --cpu-time counts the processor's time instead of the clock's, for a machine that does other things too.
"""

import argparse
import statistics
import subprocess
import time

import numpy as np

from kpd import gradient

SECRET = bytes(32)


class Cpp:
    """A process of bench/python_calls.cc."""

    def __init__(self, program, spec, numbers, tensors, cpu_time):
        self.column = 1 if cpu_time else 0
        command = [program, spec, str(numbers), str(tensors)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def seconds(self, what):
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline().split()[self.column])

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Python:
    """The same work through kpd.gradient; `wrap` makes its tensors of arrays."""

    def __init__(self, spec, numbers, tensors, wrap, cpu_time):
        self.clock = time.process_time if cpu_time else time.perf_counter
        counts = [numbers // tensors + (i < numbers % tensors) for i in range(tensors)]
        self.manifest = gradient.Manifest([(f"t{i}", "float32", (n,)) for i, n in enumerate(counts)])
        self.input = [wrap(gradient.synthetic("normal", n, seed=i)[0]) for i, n in enumerate(counts)]
        self.output = [wrap(np.ones(n, np.float32)) for n in counts]
        self.encoder = gradient.Encoder(self.manifest, spec, SECRET)
        self.decoder = gradient.Decoder(self.manifest, SECRET)
        self.server = gradient.Aggregator(self.manifest, SECRET)
        self.room = bytearray(self.encoder.max_bytes)
        self.message = self.encoder.encode(self.input, round=0, client=0, out=self.room)

    def seconds(self, what):
        if what == "add":
            self.server.begin_round(round=0, out=self.output)
        start = self.clock()
        if what == "encode":
            self.encoder.encode(self.input, round=0, client=0, out=self.room)
        elif what == "decode":
            self.decoder.decode(self.message, round=0, client=0, out=self.output)
        elif what == "add":
            assert self.server.add(0, self.message)
        elif what == "encode new":
            self.encoder.encode(self.input, round=0, client=0)
        else:
            self.decoder.decode(self.message, round=0, client=0)
        taken = self.clock() - start
        if what == "add":
            self.server.finish_round()
        return taken


def pairs(python, cpp, what, n):
    """Medians of n calls of each side, in turns."""
    ours, theirs = [], []
    for _ in range(n):
        theirs.append(cpp.seconds(what.removesuffix(" new")))
        ours.append(python.seconds(what))
    return statistics.median(ours), statistics.median(theirs), statistics.median(t / o for o, t in zip(ours, theirs))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="python_calls")
    parser.add_argument("--numbers", type=int, default=1 << 24)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--codec", action="append")
    parser.add_argument("--tensors", action="append", type=int)
    parser.add_argument("--cpu-time", action="store_true")
    arguments = parser.parse_args()
    wraps = {"numpy": lambda x: x}
    try:
        import torch

        wraps["torch"] = torch.from_numpy
    except ImportError:
        print("torch is missing: its rows are left out\n")
    print("| codec | tensors | arrays | call | Python, ms | C++, ms | C++ / Python |\n|---|---|---|---|---|---|---|")
    for spec in arguments.codec or ["eden:bits=1", "eden:bits=4"]:
        for tensors in arguments.tensors or (1, 1000):
            cpp = Cpp(arguments.program, spec, arguments.numbers, tensors, arguments.cpu_time)
            for name, wrap in wraps.items():
                python = Python(spec, arguments.numbers, tensors, wrap, arguments.cpu_time)
                for what in ("encode", "decode", "add", "encode new", "decode new"):
                    ours, theirs, ratio = pairs(python, cpp, what, arguments.pairs)
                    label = {"add": "Aggregator.add"}.get(what, what).replace(" new", ", new memory")
                    print(f"| {spec} | {tensors} | {name} | {label} | {1e3 * ours:.1f} | {1e3 * theirs:.1f} | {ratio:.3f} |", flush=True)
            cpp.close()


if __name__ == "__main__":
    main()
