#!/usr/bin/env python3
"""Measures the gradient codecs against their limits and rivals and prints docs/results/gradient.md's tables as Markdown.

    bench/gradient_tables.py [--kpd build/release/bin/kpd] [--python PYTHON_WITH_RIVALS] [--only accuracy,clients,loss,speed]

Everything is measured on decoded bytes by `kpd mean`. The rivals need faiss-cpu and torch + hadamard-transform from PyPI in the Python named by
--python; without it their rows say so. Speed rows are taken in turn with the rivals' in one run, so that a machine whose pace drifts
does not favour one of them.
"""
import argparse
import json
import os
import subprocess
import sys

LIMITS_FIXED = [1, 2, 3, 4, 5, 6, 7, 8]
FRACTIONAL = [1.25, 1.5, 2.5, 3.5, 0.75, 0.5, 0.25, 0.1]
ENTROPY = {0.1: 9.931, 0.25: 3.749, 0.5: 1.6133, 1: 0.53454, 1.5: 0.21611, 2: 0.097624, 3: 0.022745, 4: 0.0055908, 8: 2.1718e-5}


def kpd_mean(kpd, codecs, *options):
    command = [kpd, "mean", "--json", "--seed", "1", *options]
    for codec in codecs:
        command += ["--codec", codec]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def table(title, heads, rows):
    print(f"\n### {title}\n")
    print("| " + " | ".join(heads) + " |")
    print("|" + "---|" * len(heads))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")
    sys.stdout.flush()


def accuracy(kpd):
    fixed(kpd)
    entropy(kpd)


def fixed(kpd):
    for name, dim in [("lognormal", 65536), ("normal", 65537), ("lognormal", 1000003), ("normal", 1 << 20)]:
        rows = []
        codecs = [f"eden:bits={b}" for b in LIMITS_FIXED]
        if dim == 1 << 20:
            codecs += [f"eden:bits={b}" for b in FRACTIONAL]
        for r in kpd_mean(kpd, codecs, "--synthetic", name, "--dim", str(dim), "--clients", "1", "--trials", "8"):
            rows.append([f"`{r['codec']}`", f"{r['vnmse']:.6g} ± {r['vnmse_stderr']:.2g}", f"{r['limit_vnmse']:.6g}",
                         f"{r['vnmse'] / r['limit_vnmse']:.4f}", f"{r['wire_bits_per_coordinate']:.4f}"])
        table(f"Fixed codes, {name}, d = {dim}, 8 trials", ["codec", "vnmse", "limit", "ratio", "bits on the wire"], rows)


def entropy(kpd):
    rows = []
    for r in kpd_mean(kpd, [f"eden:code=entropy,bits={b}" for b in ENTROPY], "--synthetic", "normal", "--dim", str(1 << 20), "--clients", "1",
                      "--trials", "8"):
        ideal = ENTROPY[round(r["bits"], 2)]
        rows.append([f"`{r['codec']}`", f"{r['vnmse']:.6g} ± {r['vnmse_stderr']:.2g}", f"{ideal:.6g}", f"{r['vnmse'] / ideal:.4f}",
                     f"{r['wire_bits_per_coordinate'] - r['bits']:+.4f}"])
    table("Entropy codes, normal, d = 2^20, 8 trials, against the ideal entropy-coded uniform quantizer at the nominal rate",
          ["codec", "vnmse", "ideal", "ratio", "wire bits - nominal"], rows)


def clients(kpd):
    rows = []
    cases = [("lognormal", ["--correlation", "1"]), ("lognormal", ["--correlation", ".9"]), ("normal", []),
             ("sparse:2", ["--correlation", "1"]), ("sparse:4", ["--correlation", "1"])]
    for name, more in cases:
        for n in (10, 100, 1000):
            for bits in ("bits=1", "bits=4"):
                dim = 16384 if n < 1000 else 4096 * 2
                r = kpd_mean(kpd, [f"eden:{bits}"], "--synthetic", name, "--dim", str(dim), "--clients", str(n), "--trials", "4", *more)[0]
                rows.append([name + " " + " ".join(more), f"`{r['codec']}`", n, f"{r['ratio']:.3f} ± {r['ratio_stderr']:.3f}"])
    table("Averaging: |Σ (x̂ - x)|² / Σ |x̂ - x|² (1 = errors of n clients are independent)", ["input", "codec", "clients", "ratio ± stderr"], rows)


def loss(kpd):
    rows = []
    for codec in ("eden:bits=1", "eden:bits=4", "eden:code=entropy,bits=2"):
        for p in ("0.01", "0.05", "0.2", "0.01,burst", "0.05,burst", "0.2,burst"):
            r = kpd_mean(kpd, [codec], "--synthetic", "normal", "--dim", str(1 << 20), "--clients", "1", "--trials", "8", "--loss", p)[0]
            rows.append([f"`{codec}`", p, f"{r['vnmse']:.5g} ± {r['vnmse_stderr']:.2g}", f"{r['limit_vnmse']:.5g}", f"{r['vnmse'] / r['limit_vnmse']:.4f}"])
    table("Packet loss, normal, d = 2^20, 8 trials; bound (1 + v) E[packets sent / arrived] - 1", ["codec", "loss", "vnmse", "bound", "ratio"], rows)
    rows = []
    for codec in ("eden:bits=1", "eden:bits=0.1"):
        for dim, trials in ((64, 200), (300, 100), (1000, 50), (9600, 10)):
            options = ["--synthetic", "lognormal", "--dim", str(dim), "--clients", "100", "--trials", str(trials)]
            whole = kpd_mean(kpd, [codec], *options)[0]
            for p in ("0.05", "0.2", "0.05,burst", "0.2,burst"):
                r = kpd_mean(kpd, [codec], *options, "--loss", p)[0]
                # v as measured without loss: the limit is that of large dimensions.
                bound = (1 + whole["vnmse"]) * (1 + r["limit_vnmse"]) / (1 + whole["limit_vnmse"]) - 1
                rows.append([f"`{codec}`", dim, p, f"{r['packets'] / r['messages']:.0f}", f"{r['wire_bits_per_coordinate']:.3f}",
                             f"{100 * r['messages_lost'] / r['messages']:.1f} %", f"{r['vnmse']:.5g} ± {r['vnmse_stderr']:.2g}", f"{bound:.5g}", f"{r['vnmse'] / bound:.4f}"])
    table("Packet loss, small vectors, lognormal, 100 clients; bound as above with v measured without loss; a lost message is in no mean",
          ["codec", "numbers", "loss", "packets", "bits on the wire", "messages lost", "vnmse", "bound", "ratio"], rows)


RIVALS = r'''
import json, sys, time
import numpy as np
d, n = 4096, 2048
x = np.random.default_rng(1).standard_normal((n, d)).astype(np.float32)
def gbs(fn):
    fn()
    times = []
    for _ in range(3):
        t = time.perf_counter(); fn(); times.append(time.perf_counter() - t)
    return 4 * d * n / sorted(times)[1] / 1e9
out = {}
try:
    import faiss
    faiss.omp_set_num_threads(1)
    for name in ("EDEN1", "EDEN4"):
        index = faiss.index_factory(d, "HR," + name)
        index.train(x[:256])
        codes = index.sa_encode(x)
        out["faiss HR," + name] = (gbs(lambda: index.sa_encode(x)), gbs(lambda: index.sa_decode(codes)))
except ImportError as e:
    out["faiss"] = str(e)
try:
    import torch, hadamard_transform
    torch.set_num_threads(1)
    v = torch.randn(1 << 22, generator=torch.Generator().manual_seed(1))
    bounds = torch.tensor([0.0]); levels = torch.tensor([-.7978845608, .7978845608])
    def encode():
        y = hadamard_transform.randomized_hadamard_transform(v, prng=torch.Generator().manual_seed(1))
        z = y * (v.numel() ** .5 / torch.linalg.vector_norm(v))
        code = torch.bucketize(z, bounds)
        q = torch.take(levels, code)
        return code, torch.linalg.vector_norm(v) ** 2 / torch.dot(y, q)
    encode()
    times = []
    for _ in range(3):
        t = time.perf_counter(); encode(); times.append(time.perf_counter() - t)
    out["torch pipeline, 1 bit"] = (4 * v.numel() / sorted(times)[1] / 1e9, None)
except ImportError as e:
    out["torch"] = str(e)
a, b = np.ones(1 << 24, np.float32), np.ones(1 << 24, np.float32)
out["memcpy"] = (gbs(lambda: np.copyto(b, a)) * a.nbytes / (4 * d * n), None)
print(json.dumps(out))
'''


def speed(kpd, python):
    names = ["eden:bits=1", "eden:bits=2", "eden:bits=3", "eden:bits=4", "eden:bits=8", "eden:bits=0.1", "eden:bits=1,rounds=1", "eden:code=entropy,bits=0.5",
             "eden:code=entropy,bits=1", "eden:code=entropy,bits=2", "eden:code=entropy,bits=4", "eden:code=entropy,dither=shared,bits=2",
             "drive", "drive+", "hadamard-sq:bits=1", "sq:bits=1", "qsgd:bits=4", "terngrad", "randk:bits=1", "bf16", "float32"]
    for threads in ("1", "2"):
        rows = []
        for name in names:
            r = kpd_mean(kpd, [name], "--synthetic", "normal", "--dim", str(1 << 24), "--clients", "1", "--trials", "1", "--threads", threads, "--speed")[0]
            m = r["memcpy_gb_per_s"]
            rows.append([f"`{name}`", f"{r['encode_gb_per_s']:.2f}", f"{r['encode_gb_per_s'] / m:.3f}", f"{r['decode_gb_per_s']:.2f}",
                         f"{r['decode_gb_per_s'] / m:.3f}", f"{m:.1f}", r["isa"]])
        table(f"Speed, d = 2^24, {threads} thread(s), GB/s of float32 payload", ["codec", "encode", "/ memcpy", "decode", "/ memcpy", "memcpy", "ISA"], rows)
    if not python:
        print("\nRivals: not measured (--python names none).")
        return
    done = subprocess.run([python, "-c", RIVALS], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode != 0:
        print("\nRivals: " + done.stderr.strip().splitlines()[-1])
        return
    rows = []
    for name, value in json.loads(done.stdout).items():
        rows.append([name, value, "", ""] if isinstance(value, str) else [name, f"{value[0]:.3f}", "" if value[1] is None else f"{value[1]:.3f}"])
    table("Rivals, one thread, same run", ["rival", "encode GB/s", "decode GB/s"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kpd", default="build/release/bin/kpd")
    parser.add_argument("--python", default="")
    parser.add_argument("--only", default="accuracy,clients,loss,speed")
    args = parser.parse_args()
    for part in args.only.split(","):
        if part == "speed":
            speed(args.kpd, args.python)
        else:
            {"accuracy": accuracy, "fixed": fixed, "entropy": entropy, "clients": clients, "loss": loss}[part](args.kpd)


if __name__ == "__main__":
    main()
