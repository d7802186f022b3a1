#!/usr/bin/env python3
"""Big inputs: what the program holds of its own (anonymous memory, not the page cache) does not grow with them."""
import os
import random
import resource
import struct
import subprocess

from run_cli_tests import run_cases

MIB = 1 << 20
SIZE = int(os.environ.get("KPD_TEST_MIB", "1024")) * MIB
LIMIT = 256 * MIB


def make_input(t, name, seed, size=SIZE):
    """Random numbers, repeated: what is in them does not matter to memory."""
    rng = random.Random(seed)
    piece = struct.pack(f"<{MIB // 4}f", *(rng.gauss(0, 1) for _ in range(MIB // 4)))
    with open(t.path(name), "wb") as file:
        for _ in range(size // MIB):
            file.write(piece)


def within(t, *args, extra=0):
    """Runs under a limit on private writable memory, which stacks and libraries count to and mapped files do not."""
    def limit():
        resource.setrlimit(resource.RLIMIT_DATA, (LIMIT + extra, LIMIT + extra))
    done = subprocess.run([t.program, *map(str, args), "--threads", "2"], cwd=t.folder, capture_output=True, text=True, timeout=1200,
                          preexec_fn=limit)
    assert done.returncode == 0, (args, done.stderr)


def case_encode_and_decode_hold_256_mib(t):
    make_input(t, "a.f32", 1)
    for codec in ("eden:bits=1", "eden:bits=2,code=entropy", "float32"):
        within(t, "encode", "a.f32", "a.kpdg", "--codec", codec, "--seed", "1", "--force")
        within(t, "decode", "a.kpdg", "b.f32", "--force")
    with open(t.path("a.f32"), "rb") as a, open(t.path("b.f32"), "rb") as b:
        while piece := a.read(64 * MIB):
            assert piece == b.read(64 * MIB)


def case_mean_holds_a_vector_and_256_mib(t):
    size = SIZE // 2
    for i in range(3):
        make_input(t, f"{i}.f32", i, size)
    within(t, "mean", "0.f32", "1.f32", "2.f32", "--codec", "eden:bits=1", "--seed", "1", "--out", "m.f32", extra=size)
    for i in range(2):
        within(t, "encode", f"{i}.f32", f"{i}.kpdg", "--seed", "1", "--client", i)
    within(t, "mean", "0.kpdg", "1.kpdg", "--out", "n.f32", extra=size)


if __name__ == "__main__":
    run_cases(globals())
