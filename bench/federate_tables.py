#!/usr/bin/env python3
"""The tables and the plot of docs/results/federated.md from what bench/federate_runs.sh left: federate_tables.py OUT [PLOT.png]

One row a codec: mean of final_accuracy over seeds, with the standard error over seeds, and the same of its difference to float32 of the same
seed (the seeds share the split, the samples and the first model). The plot (gnuplot) shows the tests' accuracy against megabytes sent up.
"""
import collections
import json
import math
import pathlib
import subprocess
import sys


def mean_and_error(values):
    n = len(values)
    mean = sum(values) / n
    if n == 1:
        return mean, None
    return mean, math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1) / n)


def shown(values):
    mean, error = mean_and_error(values)
    return f"{mean:.4f}" + (f" ± {error:.4f}" if error is not None else "")


def read(folder):
    curves, finals = collections.defaultdict(dict), collections.defaultdict(dict)
    for path in sorted(pathlib.Path(folder).glob("*.jsonl")):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        for row in rows:
            if "final_accuracy" in row:
                finals[row["codec"]][row["seed"]] = row
            else:
                curves[row["codec"], row["seed"]][row["round"]] = row
    return curves, finals


def print_table(finals):
    print("| codec | seeds | accuracy, mean of the last 10 rounds | minus float32, same seed | MB up | float32 over that | update error |")
    print("|---|---|---|---|---|---|---|")
    floats = finals.get("float32", {})
    for codec, by_seed in sorted(finals.items(), key=lambda item: -item[1][min(item[1])]["uplink_bytes"]):
        accuracy = [row["final_accuracy"] for row in by_seed.values()]
        less = [row["final_accuracy"] - floats[seed]["final_accuracy"] for seed, row in by_seed.items() if seed in floats]
        first = by_seed[min(by_seed)]
        print(f"| `{codec}` | {len(by_seed)} | {shown(accuracy)} | {'' if codec == 'float32' or not less else shown(less)} | "
              f"{first['uplink_bytes'] / 1e6:.1f} | {first['ratio']:.1f} | {first['update_vnmse']:.3g} |")


def plot(curves, path):
    codecs = sorted({codec for codec, _ in curves}, key=lambda c: (c != "float32", c))
    script = [f"set terminal pngcairo size 900,560\nset output '{path}'\nset logscale x\nset xlabel 'megabytes sent up'\n"
              "set ylabel 'test accuracy'\nset key outside below\nset grid\nset format x '10^{%L}'\n"]
    series = []
    for i, codec in enumerate(codecs):
        rows = collections.defaultdict(list)
        for (name, _), curve in curves.items():
            if name == codec:
                for number, row in curve.items():
                    rows[number].append(row)
        most = max(len(r) for r in rows.values())
        points = [(sum(r["uplink_bytes"] for r in at) / len(at) / 1e6, sum(r["accuracy"] for r in at) / len(at))
                  for number, at in sorted(rows.items()) if len(at) == most and number % 10 == 0]
        script.append(f"$data{i} << EOD\n" + "\n".join(f"{x} {y}" for x, y in points) + "\nEOD\n")
        series.append(f"$data{i} using 1:2 with linespoints lw 2 pt 7 ps 0.6 title '{codec} (mean of {most})'")
    script.append("plot " + ", ".join(series) + "\n")
    subprocess.run(["gnuplot"], input="".join(script), text=True, check=True)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    curves, finals = read(sys.argv[1])
    print_table(finals)
    if len(sys.argv) > 2:
        plot({key: curve for key, curve in curves.items() if key[1] in finals.get(key[0], {})}, sys.argv[2])


if __name__ == "__main__":
    main()
