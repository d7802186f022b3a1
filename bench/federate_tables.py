#!/usr/bin/env python3
"""The table and the plot of docs/results/federated.md from what bench/federate_runs.sh left: federate_tables.py OUT [PLOT.png]

One row a codec: mean of final_accuracy over seeds, with the standard error over seeds, and the same of its difference to float32 of the same
seed (the seeds share the split, the samples and the first model). The plot (gnuplot) shows the tests' accuracy against megabytes sent up: a
colour a method (Okabe and Ito's, which the colour-blind tell apart), each curve with its name beside it, and a band from the lowest to the highest of
its seeds where there are several.
"""
import collections
import json
import math
import pathlib
import subprocess
import sys

COLOURS = {"float32": "#000000", "eden": "#0072b2", "eden, entropy": "#56b4e9", "hadamard-sq": "#d55e00", "kashin-sq": "#cc79a7",
           "qsgd": "#009e73", "sq": "#e69f00"}
OTHER = "#777777"
WIDTH, HEIGHT = 1100, 640  # pixels
LEFT, RIGHT, BOTTOM, TOP = .07, .77, .11, .96  # of the plot in the picture


def mean_and_error(values):
    n = len(values)
    mean = sum(values) / n
    if n == 1:
        return mean, None
    return mean, math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1) / n)


def fixed(value, digits=4):
    """Never "-0.0000"."""
    text = f"{value:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text


def shown(values):
    mean, error = mean_and_error(values)
    return fixed(mean) + (f" ± {fixed(error)}" if error is not None else "")


def read(folder):
    curves, finals = collections.defaultdict(dict), collections.defaultdict(dict)
    for path in sorted(pathlib.Path(folder).glob("*.jsonl")):
        for text in path.read_text().splitlines():
            try:
                row = json.loads(text)
            except ValueError:
                continue  # a run that was killed in the middle of a line
            if "final_accuracy" in row:
                finals[row["codec"]][row["seed"]] = row
            else:
                curves[row["codec"], row["seed"]][row["round"]] = row
    return curves, finals


def print_table(finals):
    rounds = {row["rounds"] for by_seed in finals.values() for row in by_seed.values()}
    last = min(10, *rounds) if len(rounds) > 1 else min([10, *rounds])
    print(f"| codec | seeds | accuracy, mean of the last {last} rounds | minus float32, same seed | MB up | float32 over that | update error |")
    print("|---|---|---|---|---|---|---|")
    floats = finals.get("float32", {})
    for codec, by_seed in sorted(finals.items(), key=lambda item: -item[1][min(item[1])]["uplink_bytes"]):
        accuracy = [row["final_accuracy"] for row in by_seed.values()]
        less = [row["final_accuracy"] - floats[seed]["final_accuracy"] for seed, row in by_seed.items() if seed in floats]
        first = by_seed[min(by_seed)]
        print(f"| `{codec}` | {len(by_seed)} | {shown(accuracy)} | {'' if codec == 'float32' or not less else shown(less)} | "
              f"{first['uplink_bytes'] / 1e6:.1f} | {first['ratio']:.1f} | {first['update_vnmse']:.3g} |")


def colour_of(codec):
    method = codec.split(" ")[-1].split(":")[0]
    if method == "eden" and "code=entropy" in codec:
        method = "eden, entropy"
    return COLOURS.get(method, OTHER)


def points_of(curves, codec):
    """[(megabytes, mean, lowest, highest) of a tested round], and the number of seeds; rounds that all seeds have."""
    rows = collections.defaultdict(list)
    for (name, _), curve in curves.items():
        if name == codec:
            for number, row in curve.items():
                rows[number].append(row)
    most = max(len(at) for at in rows.values())
    numbers = [n for n, at in sorted(rows.items()) if len(at) == most and (n % 10 == 0 or len(rows) < 10 or n == max(rows))]
    points = []
    for at in (rows[n] for n in numbers):
        accuracy = [r["accuracy"] for r in at]
        points.append((sum(r["uplink_bytes"] for r in at) / len(at) / 1e6, sum(accuracy) / len(at), min(accuracy), max(accuracy)))
    return points, most


def spread(heights, least):
    """Where names stand beside the plot: at the `heights` (shares of it) of their curves' ends, but `least` apart and beside it."""
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    at = [heights[i] for i in order]
    for _ in range(300):
        for i in range(1, len(at)):
            missing = least - (at[i] - at[i - 1])
            if missing > 1e-9:
                at[i - 1] -= missing / 2
                at[i] += missing / 2
    for i in range(len(at)):
        at[i] = min(at[i], 1 - least * (len(at) - 1 - i))
    return [y for _, y in sorted(zip(order, at))]


def plot(curves, path):
    codecs = sorted({codec for codec, _ in curves}, key=lambda c: (c != "float32", c))
    series = {codec: points_of(curves, codec) for codec in codecs}
    flat = [p for points, _ in series.values() for p in points]
    x_low, x_high = min(p[0] for p in flat) / 1.2, max(p[0] for p in flat) * 1.2
    room = .03 * (max(p[3] for p in flat) - min(p[2] for p in flat)) + .002
    y_low, y_high = min(p[2] for p in flat) - room, max(p[3] for p in flat) + room
    script = [f"set terminal pngcairo noenhanced size {WIDTH},{HEIGHT} font 'sans,11'\nset logscale x\nset xlabel 'megabytes sent up'\n"
              f"set ylabel 'test accuracy'\nunset key\nset grid\nset xrange [{x_low}:{x_high}]\nset yrange [{y_low}:{y_high}]\n"
              f"set lmargin at screen {LEFT}\nset rmargin at screen {RIGHT}\nset bmargin at screen {BOTTOM}\nset tmargin at screen {TOP}\n"]
    ends = [points[-1][:2] for points, _ in series.values()]
    heights = spread([(y - y_low) / (y_high - y_low) for _, y in ends], 17 / (HEIGHT * (TOP - BOTTOM)))
    bands, lines = [], []
    for i, (codec, (points, seeds)) in enumerate(series.items()):
        script.append(f"$data{i} << EOD\n" + "\n".join(" ".join(map(str, p)) for p in points) + "\nEOD\n")
        colour = colour_of(codec)
        name = codec + (f", {seeds} seeds" if seeds > 1 else "")
        script.append(f"set label '{name}' at graph 1.015,{heights[i]:.4f} left textcolor rgb '{colour}' font ',10'\n"
                      f"set arrow from first {ends[i][0]},{ends[i][1]} to graph 1.01,{heights[i]:.4f} nohead dt 3 lc rgb '{colour}' back\n")
        if seeds > 1:
            bands.append(f"$data{i} using 1:3:4 with filledcurves fc rgb '{colour}' fs transparent solid 0.18 noborder")
        lines.append(f"$data{i} using 1:2 with linespoints lc rgb '{colour}' lw 2 pt 7 ps 0.5")
    script.append("plot " + ", ".join(bands + lines) + "\n")
    # The picture comes on stdout, so that no name of a file stands in a script.
    picture = subprocess.run(["gnuplot"], input="".join(script).encode(), stdout=subprocess.PIPE, check=True).stdout
    pathlib.Path(path).write_bytes(picture)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    curves, finals = read(sys.argv[1])
    if not finals:
        sys.exit(f"{sys.argv[1]}: no run has ended there yet")
    print_table(finals)
    if len(sys.argv) > 2:
        plot({key: curve for key, curve in curves.items() if key[1] in finals.get(key[0], {})}, sys.argv[2])


if __name__ == "__main__":
    main()
