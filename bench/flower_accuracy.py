#!/usr/bin/env python3
"""Accuracy and bytes of examples/python/flower with and without kpd: the table of docs/guide/flower.md.

All clients run in this process, one after the other (python/tests/flower_local.py), so that runs of one seed have the same first
model, images and order of examples, and nothing is measured but learning and bytes. Prints a line a run and a table.

    python bench/flower_accuracy.py --rounds 8 --images 600 --seeds 0,1,2 --codecs plain,eden:bits=4,eden:bits=1
"""

import argparse
import contextlib
import io
import logging
import random
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / "python" / "tests"), str(ROOT / "examples" / "python" / "flower")]

import torch  # noqa: E402
from fashion import client_app, server_app  # noqa: E402
from flower_local import RUN, LocalGrid  # noqa: E402
from flower_processes import accuracies  # noqa: E402
from flwr.app import Context, RecordDict  # noqa: E402

import kpd.flower  # noqa: E402


class AppGrid(LocalGrid):
    """The example's clients; `plain` ones answer as without kpd."""

    def __init__(self, config):
        super().__init__({n: client_app.app for n in range(1, config["partitions"] + 1)})
        self.config = config

    def call(self, node, message, node_id):
        return node(message, Context(RUN, node_id, {"partition-id": node_id - 1}, RecordDict(), self.config))

    def send_and_receive(self, messages, *, timeout=None):
        return [reply for id_ in self.push_messages(messages) for reply in self.pull_messages([id_])]


def run(codec, seed, options):
    """Test accuracy by round, and the bytes of all arrays that clients sent."""
    config = {
        "rounds": options.rounds, "clients-per-round": 1.0, "local-epochs": 1, "learning-rate": 0.05, "batch-size": 32,
        "images-per-client": options.images, "partitions": options.clients, "test-images": options.test_images, "seed": seed, "codec": codec,
    }  # fmt: skip
    random.seed(seed)
    grid = AppGrid(config)
    wrap = kpd.flower.Grid
    if codec == "plain":
        kpd.flower.Grid = lambda inner, *args, **kwargs: inner
    try:
        with contextlib.redirect_stdout(io.StringIO()) as output:
            server_app.app(grid, Context(RUN, 0, {}, RecordDict(), config))
    finally:
        kpd.flower.Grid = wrap
    return accuracies(output.getvalue()), sum(grid.pulled)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--images", type=int, default=600)
    parser.add_argument("--test-images", type=int, default=10_000)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--codecs", default="plain,eden:bits=4,eden:bits=1")
    options = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.WARNING)
    torch.set_num_threads(1)
    found = {}
    for seed in map(int, options.seeds.split(",")):
        for codec in options.codecs.split(","):
            found[codec, seed] = run(codec, seed, options)
            rounds, sent = found[codec, seed]
            print(codec, f"seed {seed}", " ".join(f"{a:.4f}" for a in rounds.values()), f"{sent} bytes", flush=True)
    print("\n| updates | accuracy after the last round, by seed | mean | bytes up |\n|---|---|---|---|")
    for codec in options.codecs.split(","):
        runs = [found[key] for key in found if key[0] == codec]
        last = [rounds[max(rounds)] for rounds, _ in runs]
        print(f"| `{codec}` | {', '.join(f'{a:.4f}' for a in last)} | {sum(last) / len(last):.4f} | {runs[0][1]:,} |")


if __name__ == "__main__":
    main()
