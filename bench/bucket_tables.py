#!/usr/bin/env python3
"""Baselines as practice has them: stochastic quantization in buckets. Prints docs/results/gradient.md's tables as Markdown.

    bench/bucket_tables.py [--kpd build/release/bin/kpd] [--updates FILE.safetensors ...] [--dim 2^20] [--trials 4]

First table: `sq` with codes of 1, 2 and 4 bits for every block size. As larger blocks cost less, each error is also given times 4^(bits on the
wire - bits of the codes): what a code of whole bits would have if one more bit always quartered the error. Second: `sq` at exactly 1, 2 and 4
bits, the floats of its blocks counted (the codes get b - 64/block bits, some of them one bit less than others). Third: `qsgd` with norm=max and
code=fixed for every bucket; fourth: with Elias codes. Fifth: the baselines and eden side by side. All errors are of decoded bytes, by
`kpd mean`, all bits those of the message. With --updates also for real updates, one client's file each, the mean of their errors.
"""
import argparse
import sys

from gradient_tables import kpd_mean, table

BLOCKS = [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384]
BUCKETS = BLOCKS[:7]


def inputs(args):
    """[(name, options of kpd mean)]"""
    synthetic = ["--clients", "1", "--dim", args.dim, "--trials", str(args.trials)]
    out = [(name, ["--synthetic", name, *synthetic]) for name in ("normal", "lognormal")]
    if args.updates:
        out.append((f"{len(args.updates)} updates", [*args.updates, "--trials", "2"]))
    return out


def measure(args, codecs, options):
    rows = kpd_mean(args.kpd, codecs, *options)
    return [(r["vnmse"], r["wire_bits_per_coordinate"]) for r in rows]


def sq_at(bits, block):
    """sq whose codes and floats together take `bits` a number, None where there is no such rate."""
    rate = bits - 64 / block
    return f"sq:bits={rate:.6g},block={block}" if rate >= 0.05 else None


def sweep_whole_sq(args, named):
    """The block of least error times 4^bits, for each input and number of bits."""
    best, rows = {}, []
    for bits in (1, 2, 4):
        codecs = [f"sq:bits={bits},block={block}" for block in BLOCKS]
        results = [measure(args, codecs, options) for _, options in named]
        wires = [wire for _, wire in results[0]]
        cost = [[error * 4 ** (wire - bits) for error, wire in column] for column in results]
        for (name, _), column in zip(named, cost):
            best[name, bits] = BLOCKS[column.index(min(column))]
        for i, codec in enumerate(codecs):
            cells = []
            for column, costs in zip(results, cost):
                mark = "**" if costs[i] == min(costs) else ""
                cells += [f"{column[i][0]:.4g}", f"{mark}{costs[i]:.4g}{mark}"]
            rows.append([f"`{codec}`", f"{wires[i]:.3f}", *cells])
    heads = ["codec", "bits on the wire"]
    for name, _ in named:
        heads += [name, "times 4^(more bits)"]
    table("vnmse of `sq` by block size; the least of each column and rate in bold", heads, rows)
    return best


def sweep_sq(args, named):
    best = {}
    rows = []
    results = {}
    for name, options in named:
        for bits in (1, 2, 4):
            blocks = [b for b in BLOCKS if sq_at(bits, b)]
            for block, (error, wire) in zip(blocks, measure(args, [sq_at(bits, b) for b in blocks], options)):
                results[name, bits, block] = error
                if (name, bits) not in best or error < results[name, bits, best[name, bits]]:
                    best[name, bits] = block
    for block in BLOCKS:
        cells = []
        for bits in (1, 2, 4):
            for name, _ in named:
                error = results.get((name, bits, block))
                mark = "**" if best[name, bits] == block else ""
                cells.append("" if error is None else f"{mark}{error:.4g}{mark}")
        rows.append([block, *cells])
    heads = ["block"] + [f"{bits} bit{'s' if bits > 1 else ''}, {name}" for bits in (1, 2, 4) for name, _ in named]
    table("vnmse of `sq` at exactly 1, 2, 4 bits, its blocks' floats counted, by block size; the least of a column in bold", heads, rows)


def sweep_qsgd(args, named):
    rows = []
    results = {}
    cases = [(b, block) for b in (2, 3, 4, 8) for block in BUCKETS]
    for name, options in named:
        codecs = [f"qsgd:bits={b},norm=max,code=fixed,block={block}" for b, block in cases]
        for case, result in zip(cases, measure(args, codecs, options)):
            results[name, case] = result
    for b, block in cases:
        rows.append([f"`bits={b},block={block}`", f"{results[named[0][0], (b, block)][1]:.3f}",
                     *[f"{results[name, (b, block)][0]:.4g}" for name, _ in named]])
    table("vnmse of `qsgd:norm=max,code=fixed` by bits and bucket", ["", "bits on the wire", *[name for name, _ in named]], rows)


def elias(args, named):
    rows = []
    codecs = [f"qsgd:bits={b},norm={norm}" for norm in ("max", "l2") for b in range(1, 9)]
    results = [measure(args, codecs, options) for _, options in named]
    for codec, *row in zip(codecs, *results):
        rows.append([f"`{codec}`", *[f"{error:.4g} ({wire:.3f})" for error, wire in row]])
    table("vnmse (bits on the wire) of `qsgd` with Elias codes, buckets of 512", ["codec", *[name for name, _ in named]], rows)


def beside(args, named, best):
    """Every kind at about the same bits."""
    rows = []
    for bits in (1, 2, 4):
        for kind in ("sq", "sq 512", "qsgd l2", "qsgd", "kashin-sq", "hadamard-sq", "eden"):
            cells, wires, specs = [], [], []
            for name, options in named:
                spec = {"sq": f"sq:bits={bits},block={best[name, bits]}", "kashin-sq": f"kashin-sq:bits={bits}", "hadamard-sq": f"hadamard-sq:bits={bits}",
                        "eden": f"eden:bits={bits}", "sq 512": f"sq:bits={bits},block=512",
                        "qsgd": f"qsgd:bits={bits},norm=max,code=fixed,block=512" if bits > 1 else None,
                        "qsgd l2": f"qsgd:bits={bits},norm=l2,code=fixed,block=512" if bits > 1 else None}[kind]
                if spec is None:
                    break
                [(error, wire)] = measure(args, [spec], options)
                cells.append(f"{error:.4g}")
                wires.append(wire)
                specs.append(spec)
            if cells:
                shown = f"`{specs[0]}`" if len(set(specs)) == 1 else f"`sq:bits={bits}`, best block of each"
                rows.append([shown, "…".join(sorted({f"{w:.3f}" for w in wires})), *cells])
    table("Baselines side by side, vnmse", ["codec", "bits on the wire", *[name for name, _ in named]], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kpd", default="build/release/bin/kpd")
    parser.add_argument("--updates", nargs="*", default=[])
    parser.add_argument("--dim", default="2^20")
    parser.add_argument("--trials", type=int, default=4)
    args = parser.parse_args()
    named = inputs(args)
    best = sweep_whole_sq(args, named)
    sweep_sq(args, named)
    sweep_qsgd(args, named)
    elias(args, named)
    beside(args, named, best)


if __name__ == "__main__":
    sys.exit(main())
