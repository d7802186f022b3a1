#!/usr/bin/env python3
"""Data-parallel training in torch: kpd's hook beside torch's own, by link speed.

    bench/python_ddp.py [--links 100mbit,1gbit] [--ranks 2] [--steps 60] [--seeds 3] [--exchange 24]

Every rank is a host of its own (bench/engines.py: network namespaces, a token bucket a link), one thread each. In one run, for every link:
plain DDP, fp16_compress_hook, powerSGD_hook (from step 10 on; its rank is the one whose bytes are nearest to those of eden:bits=4), kpd's
codecs; the same model, data and seeds. Then the exchange alone: one vector of 2^EXCHANGE numbers, gloo's allreduce and Averager.
Needs root, iproute2, torch and the installed package. With --links none and no root: --local, all ranks on this host.
"""

import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
METHODS = {
    "plain DDP": {},
    "fp16_compress_hook": {"torch": "fp16"},
    "powerSGD_hook": {"torch": "powersgd"},
    "eden:bits=4": {"codec": "eden:bits=4"},
    "eden:bits=2": {"codec": "eden:bits=2"},
    "eden:bits=1": {"codec": "eden:bits=1"},
    "eden:bits=1,scale=biased, error feedback": {"codec": "eden:bits=1,scale=biased", "error_feedback": True},
}
EXCHANGES = ["eden:bits=4", "eden:bits=2", "eden:bits=1"]
WIDTH = 1024
POWER_START = 10


# -- one rank


def network():
    import torch

    torch.manual_seed(7)
    layers = [torch.nn.Linear(256, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, 10)]
    return torch.nn.Sequential(*layers)


def power_rank(shapes, bits):
    """The rank at which P and Q have the bytes of `bits` bits a number."""
    target = sum(math.prod(s) for s in shapes) * bits / 32
    vectors = sum(math.prod(s) for s in shapes if len(s) < 2)

    def floats(rank):
        return vectors + sum(min(rank, *s) * (s[0] + math.prod(s[1:])) for s in shapes if len(s) >= 2)

    return min(range(1, 129), key=lambda rank: abs(floats(rank) - target))


def sent_by_network():
    """Bytes that left this rank's host."""
    for line in pathlib.Path("/proc/net/dev").read_text().splitlines():
        if line.strip().startswith("eth0:"):
            return int(line.split(":")[1].split()[8])
    return 0


def register(ddp, method, pattern):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    if method.get("torch") == "fp16":
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif method.get("torch") == "powersgd":
        rank = power_rank([tuple(p.shape) for p in ddp.parameters()], 4)
        # The bytes are counted from POWER_START on.
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=rank, start_powerSGD_iter=POWER_START)
        ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif "codec" in method:
        from kpd.gradient.torch import ddp_hook

        ddp_hook(method["codec"], pattern, method.get("error_feedback", False)).register(ddp)


def train(name, pattern, steps, seed):
    """Loss over the last tenth of the steps, seconds and bytes of a step after POWER_START."""
    import torch
    import torch.distributed as dist

    net = network()
    torch.manual_seed(11)
    teacher = torch.nn.Linear(256, 10)
    # powerSGD_hook starts collectives in callbacks: over gloo those of two buckets overtake each other, so it gets a single one.
    cap = {"bucket_cap_mb": 1000} if METHODS[name].get("torch") == "powersgd" else {}
    ddp = torch.nn.parallel.DistributedDataParallel(net, **cap)
    register(ddp, METHODS[name], pattern)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    data = torch.Generator().manual_seed(1000 * seed + dist.get_rank())
    losses, begin, bytes_before = [], 0.0, 0
    for step in range(steps):
        if step == POWER_START + 2:
            dist.barrier()
            begin, bytes_before = time.monotonic(), sent_by_network()
        x = torch.randn(32, 256, generator=data)
        loss = torch.nn.functional.cross_entropy(ddp(x), teacher(x).argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    dist.barrier()
    measured = steps - POWER_START - 2
    return {
        "method": name,
        "seed": seed,
        "loss": statistics.mean(losses[-max(1, steps // 10) :]),
        "seconds": (time.monotonic() - begin) / measured,
        "bytes": (sent_by_network() - bytes_before) / measured,
    }


def exchange(codec, pattern, log_dim, trials):
    """Median seconds of one average of a vector; codec None: gloo's allreduce in float32."""
    import torch
    import torch.distributed as dist

    x = torch.randn(2**log_dim)
    averager = None
    if codec is not None:
        from kpd.gradient.torch import Averager

        averager = Averager(codec=codec, pattern=pattern)
    seconds = []
    for _ in range(trials + 1):
        y = x.clone()
        dist.barrier()
        begin = time.monotonic()
        if averager is None:
            dist.all_reduce(y)
        else:
            averager.average_flat(y, [("x", y.numel())])
        seconds.append(time.monotonic() - begin)
    return {"exchange": codec or "float32", "pattern": pattern, "seconds": statistics.median(seconds[1:])}


def rank_main(args):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    pattern = "sra" if dist.get_world_size() > 3 else "allgather"
    for seed in range(args.seeds):
        for name in METHODS:
            print(json.dumps(train(name, pattern, args.steps, seed)), flush=True)
    if args.exchange:
        for codec in [None, *EXCHANGES]:
            print(json.dumps(exchange(codec, pattern, args.exchange, args.trials)), flush=True)
    dist.barrier()
    os._exit(0)  # hooks stay registered: no clean-up in an order of their own


# -- all ranks


def run_ranks(names, host, arguments):
    """Lines of every rank. names: namespaces, or None for ranks on this host."""
    running = []
    for rank, name in enumerate(names):
        environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(len(names)), "MASTER_ADDR": host, "MASTER_PORT": "29611",
                       "GLOO_SOCKET_IFNAME": "lo" if name is None else "eth0"}
        inside = [] if name is None else ["ip", "netns", "exec", name]
        command = [*inside, sys.executable, __file__, "--rank-main", *arguments]
        running.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    rows = [[json.loads(line) for line in p.communicate()[0].splitlines() if line.startswith("{")] for p in running]
    if any(p.returncode for p in running):
        sys.exit("a rank failed")
    return rows


def print_training(rows):
    """rows: by rank. The loss is the mean of ranks and seeds; differences to plain DDP are paired by seed."""
    print("\n| method | loss | less than plain DDP (2 standard errors) | ms a step | MB sent a step and rank | bytes, of plain |")
    print("|---|---|---|---|---|---|")
    loss = {}
    for name in METHODS:
        own = [[r for r in rank if r.get("method") == name] for rank in rows]
        loss[name] = [statistics.mean(rank[i]["loss"] for rank in own) for i in range(len(own[0]))]
        difference = [a - b for a, b in zip(loss[name], loss["plain DDP"], strict=True)]
        error = 2 * statistics.stdev(difference) / math.sqrt(len(difference)) if len(difference) > 1 else float("nan")
        seconds = statistics.median(max(rank[i]["seconds"] for rank in own) for i in range(len(own[0])))
        sent = statistics.mean(r["bytes"] for rank in own for r in rank)
        plain = statistics.mean(r["bytes"] for rank in rows for r in rank if r.get("method") == "plain DDP")
        share = f"{sent / plain:.4f}" if plain else "-"
        print(f"| {name} | {statistics.mean(loss[name]):.4f} | {-statistics.mean(difference):+.4f} ({error:.4f}) | {1e3 * seconds:.1f} | "
              f"{sent / 1e6:.3f} | {share} |", flush=True)


def print_exchange(rows):
    own = [[r for r in rank if "exchange" in r] for rank in rows]
    if not own[0]:
        return
    print("\n| codec | pattern | seconds | faster than allreduce in float32 | of 32/b |")
    print("|---|---|---|---|---|")
    slowest = [max(rank[i]["seconds"] for rank in own) for i in range(len(own[0]))]
    for row, seconds in zip(own[0], slowest, strict=True):
        gain = slowest[0] / seconds
        share = "-" if row["exchange"] == "float32" else f"{gain * float(row['exchange'].split('=')[1]) / 32:.2f}"
        print(f"| {row['exchange']} | {row['pattern']} | {seconds:.3f} | {gain:.1f} x | {share} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--links", default="100mbit,1gbit")
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--exchange", type=int, default=24, help="log2 of the vector's length; 0: not measured")
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--local", action="store_true", help="all ranks on this host, no link paced")
    parser.add_argument("--rank-main", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank_main:
        return rank_main(args)
    arguments = [f"--{name}={getattr(args, name)}" for name in ("steps", "seeds", "exchange", "trials")]
    for link in ["none"] if args.local else args.links.split(","):
        for ranks in map(int, args.ranks.split(",")):
            print(f"\n### {ranks} ranks, link {'unpaced' if link == 'none' else link.replace('bit', 'bit/s')}")
            if args.local:
                rows = run_ranks([None] * ranks, "127.0.0.1", arguments)
            else:
                import engines

                with engines.Hosts(ranks, link) as hosts:
                    rows = run_ranks(hosts.names, f"{engines.NETWORK}.1", arguments)
            print_training(rows)
            print_exchange(rows)


if __name__ == "__main__":
    main()
