#!/usr/bin/env python3
"""The tables of docs/results/engines.md: the mean of vectors between hosts, compressed and in float32, by link speed.

    bench/engines.py [--build build/release] [--dim 24] [--links 100mbit,1gbit,none] [--ranks 2,4] [--trials 5]

Every rank is a host of its own (network namespaces joined by a bridge), each with one core's worth of threads; tc's token bucket paces
both directions of its link. In one run: MPI_Allreduce and Gloo's allreduce in float32, then kpd mean over the same engine. Needs root,
iproute2, Open MPI and the programs of a build with -DKPD_WITH_MPI=ON -DKPD_WITH_TORCH=ON -DKPD_BUILD_BENCH=ON.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys

CODECS = ["eden:bits=1", "eden:bits=2", "eden:bits=4", "eden:code=entropy,bits=2"]
BITS = {"eden:bits=1": 1, "eden:bits=2": 2, "eden:bits=4": 4, "eden:code=entropy,bits=2": 2}
BRIDGE = "kpdbench"
NETWORK = "10.214.7"


def ip(*args):
    subprocess.run(["ip", *args], check=True)


class Hosts:
    def __init__(self, count, link):
        self.names = [f"{BRIDGE}-{i}" for i in range(count)]
        self.link = link

    def __enter__(self):
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("link", "set", BRIDGE, "up")
        ip("addr", "add", f"{NETWORK}.254/24", "dev", BRIDGE)
        for i, name in enumerate(self.names):
            outer = f"{BRIDGE}{i}"
            ip("netns", "add", name)
            ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", outer, "master", BRIDGE, "up")
            ip("-n", name, "addr", "add", f"{NETWORK}.{i + 1}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
            if self.link != "none":
                pace = ["root", "tbf", "rate", self.link, "burst", "128kb", "latency", "100ms"]
                subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", "eth0", *pace], check=True)
                subprocess.run(["tc", "qdisc", "add", "dev", outer, *pace], check=True)
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name])
        subprocess.run(["ip", "link", "del", BRIDGE])


def rows_of(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def run_mpi(hosts, command):
    args = ["mpirun", "--oversubscribe", "-q", "--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", f"{NETWORK}.0/24", "--mca",
            "oob_tcp_if_include", BRIDGE]
    for i, name in enumerate(hosts.names):
        args += ([":"] if i else []) + ["-n", "1", "ip", "netns", "exec", name, *command]
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "PMIX_MCA_ptl_tcp_if_include": BRIDGE, "PMIX_MCA_ptl_tcp_remote_connections": "1"}
    return rows_of(subprocess.run(args, check=True, capture_output=True, text=True, env=environment).stdout)


PORT = 29600


def run_gloo(hosts, command):
    """command(rank, ranks, host, port, address) -> arguments."""
    global PORT
    PORT += 1
    count = len(hosts.names)
    running = [subprocess.Popen(["ip", "netns", "exec", name, *command(i, count, f"{NETWORK}.1", PORT, f"{NETWORK}.{i + 1}")],
                                stdout=subprocess.PIPE, text=True) for i, name in enumerate(hosts.names)]
    rows = [rows_of(p.communicate()[0]) for p in running]
    if any(p.returncode for p in running):
        sys.exit("a rank failed")
    return [row for own in rows for row in own]


def measure(hosts, bin_folder, engine, pattern, dim, trials):
    """Seconds of the slowest rank for the rival and each codec, with that rank's stages."""
    kpd = [str(bin_folder / "kpd"), "mean", "--comm", engine, "--pattern", pattern, "--synthetic", "normal", "--dim", str(dim),
           "--trials", str(trials), "--seed", "1", "--json"]
    for codec in CODECS:
        kpd += ["--codec", codec]
    few = "3"
    if engine == "mpi":
        rival = run_mpi(hosts, [str(bin_folder / "bench_allreduce_mpi"), str(dim), few])
        rows = run_mpi(hosts, kpd)
    else:
        rival = run_gloo(hosts, lambda r, n, host, port, address: [str(bin_folder / "bench_allreduce_gloo"), str(r), str(n), host,
                                                                   str(port), address, str(dim), few])
        rows = run_gloo(hosts, lambda r, n, host, port, address: [*kpd, "--rank", str(r), "--ranks", str(n), "--store",
                                                                  f"tcp:{host}:{port}", "--address", address])
    slowest = {}
    for row in rows:
        if row["codec"] not in slowest or row["seconds"] > slowest[row["codec"]]["seconds"]:
            slowest[row["codec"]] = row
        hashes = {r["replica_hash"] for r in rows if r["codec"] == row["codec"]}
        assert len(hashes) == 1, hashes
    return max(row["seconds"] for row in rival), slowest


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--dim", type=int, default=24, help="log2")
    parser.add_argument("--links", default="100mbit,1gbit,none")
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--engines", default="mpi,gloo")
    parser.add_argument("--trials", type=int, default=5)
    args = parser.parse_args()
    bin_folder = pathlib.Path(args.build).resolve() / "bin"
    for link in args.links.split(","):
        print(f"\n### d = 2^{args.dim}, link {'unpaced' if link == 'none' else link.replace('bit', 'bit/s')}\n")
        print("| engine | ranks | pattern | codec | MB sent a rank | nmse | encode s | exchange s | decode s | total s | float32 allreduce s "
              "| faster | of 32/b |")
        print("|---|---|---|---|---|---|---|---|---|---|---|---|---|", flush=True)
        for ranks in map(int, args.ranks.split(",")):
            with Hosts(ranks, link) as hosts:
                for engine in args.engines.split(","):
                    for pattern in (["allgather"] if ranks == 2 else ["allgather", "sra"]):
                        rival, slowest = measure(hosts, bin_folder, engine, pattern, 2 ** args.dim, args.trials)
                        for codec, row in slowest.items():
                            gain = rival / row["seconds"]
                            print(f"| {engine} | {ranks} | {pattern} | `{codec}` | {row['bytes_per_rank'] / 1e6:.2f} | {row['nmse']:.4f} | "
                                  f"{row['seconds_encode']:.3f} | {row['seconds_exchange']:.3f} | {row['seconds_decode']:.3f} | "
                                  f"{row['seconds']:.3f} | {rival:.3f} | {gain:.1f} x | {gain / (32 / BITS[codec]):.2f} |", flush=True)


if __name__ == "__main__":
    main()
