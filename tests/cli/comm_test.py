#!/usr/bin/env python3
"""kpd mean --comm: the same mean over every engine, ranks that are lost, ranks in network namespaces of their own."""
import contextlib
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

from bad_link import BadLink
from inputs import read_npy, write_npy
from mpi_ranks import MPIRUN, ROOT_ENVIRONMENT, mpirun, need_mpi
from run_cli_tests import Skip, changed, run_cases

VECTOR = ["--synthetic", "normal", "--dim", "20000", "--codec", "eden:bits=2", "--json"]


def need_engine(t, engine):
    if engine == "mpi":
        return need_mpi(t)
    if not pathlib.Path(t.program).with_name("kpd-train").exists():
        raise Skip("kpd-train was not built")


def lines(text):
    return sorted((json.loads(line) for line in text.splitlines() if line.startswith("{")), key=lambda row: row["rank"])


def run_mpi(t, ranks, *args):
    done = mpirun(t, ranks, "mean", "--comm", "mpi", *args)
    assert done.returncode == 0, done.stderr
    return lines(done.stdout)


class Gloo:
    """The ranks as processes of their own, in namespaces if given."""

    def __init__(self, t, ranks, *args, command="mean", store="file:store", prefix=lambda rank: [], extra=lambda rank: []):
        self.processes = [subprocess.Popen([*prefix(rank), t.program, command, "--comm", "gloo", "--rank", str(rank), "--ranks",
                                            str(ranks), "--store", store, *extra(rank), *args], stdout=subprocess.PIPE,
                                           stderr=subprocess.PIPE, text=True, cwd=t.folder) for rank in range(ranks)]

    def finish(self, ranks=None):
        done = []
        for process in self.processes if ranks is None else [self.processes[r] for r in ranks]:
            out, err = process.communicate(timeout=120)
            done.append((process.returncode, out, err))
        return done


def connections(pid):
    """How many established TCP connections a process has."""
    own = set()
    for entry in os.scandir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            own.add(os.readlink(entry.path))
    rows = [line.split() for table in ("tcp", "tcp6") if (path := pathlib.Path(f"/proc/{pid}/net/{table}")).exists()
            for line in path.read_text().splitlines()[1:]]
    return sum(row[3] == "01" and f"socket:[{row[9]}]" in own for row in rows)


def until(condition, processes, seconds=60):
    """Waits for the condition while the processes run."""
    deadline = time.monotonic() + seconds
    while True:
        for process in processes:
            assert process.poll() is None, process.communicate()
        if condition():
            return
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.05)


def kill_once_connected(group, rank):
    """Ends a rank of a Gloo group some time after all have met: they average then."""
    peers = len(group.processes) - 1
    until(lambda: all(connections(process.pid) >= peers for process in group.processes), group.processes)
    time.sleep(.5)
    assert group.processes[rank].poll() is None, group.processes[rank].communicate()
    group.processes[rank].kill()


def case_every_engine_makes_the_same_bits(t):
    for pattern in ("gather", "allgather", "sra"):
        args = [*VECTOR, "--pattern", pattern]
        rows = lines(t.run("mean", "--comm", "inprocess", "--ranks", "3", *args).stdout)
        assert [row["rank"] for row in rows] == [0, 1, 2], rows
        hashes = [row["replica_hash"] for row in rows]
        assert hashes[0] and hashes[1:] == ([None] * 2 if pattern == "gather" else [hashes[0]] * 2), hashes
        assert 0 < rows[0]["nmse"] < .2 and rows[1]["bytes_per_rank"] > 5000, rows
        for key in ("seconds_encode", "seconds_exchange", "seconds_decode"):
            assert rows[1][key] >= 0, rows
        for engine, run in (("mpi", lambda: run_mpi(t, 3, *args)),
                            ("gloo", lambda: lines("".join(out for _, out, _ in Gloo(t, 3, *args).finish())))):
            try:
                need_engine(t, engine)
            except Skip:
                continue
            other = run()
            assert [row["replica_hash"] for row in other] == hashes, (engine, pattern, other, hashes)
            assert [row["bytes_per_rank"] for row in other] == [row["bytes_per_rank"] for row in rows], (engine, other)
            t.path("store").unlink(missing_ok=True)


def case_mpi_ran(t):
    need_engine(t, "mpi")
    assert [row["comm"] for row in run_mpi(t, 2, *VECTOR)] == ["mpi"] * 2


def case_mpi_over_ucx(t):
    """The transport of InfiniBand, here over shared memory: it has fewer tags."""
    need_engine(t, "mpi")
    info = subprocess.run(["ompi_info", "--param", "pml", "all"], capture_output=True, text=True).stdout if shutil.which("ompi_info") else ""
    if "MCA pml: ucx" not in info:
        raise Skip("this MPI has no UCX")
    ucx = ["--mca", "pml", "ucx", "--mca", "opal_common_ucx_tls", "any", "--mca", "opal_common_ucx_devices", "any", "--mca", "osc", "^ucx"]
    done = mpirun(t, 3, "mean", "--comm", "mpi", *VECTOR, options=ucx)
    if done.returncode != 0 and not lines(done.stdout):
        raise Skip(f"UCX does not run here: {done.stderr.strip()[:200]}")
    assert done.returncode == 0 and len(lines(done.stdout)) == 3, done


def case_gloo_ran(t):
    need_engine(t, "gloo")
    assert all(code == 0 for code, _, _ in Gloo(t, 2, *VECTOR).finish())


def case_files_one_a_rank_or_by_name(t):
    for r in range(3):
        write_npy(t.path(f"x{r}.npy"), [float(r + i % 5) for i in range(500)])
    for files in (["x0.npy", "x1.npy", "x2.npy"], ["x{rank}.npy"]):
        rows = lines(t.run("mean", "--comm", "inprocess", "--ranks", "3", *files, "--codec", "float32", "--weights", "1,1,2", "--force", "--out",
                           "mean.npy", "--json").stdout)
        assert rows[0]["nmse"] < 1e-12, rows
        mean = read_npy(t.path("mean.npy"))
        assert all(abs(v - (1.25 + i % 5)) < 1e-5 for i, v in enumerate(mean)), mean[:5]


def case_table_has_a_line_a_rank(t):
    done = t.run("mean", "--comm", "inprocess", "--ranks", "2", *VECTOR[:-1], out=r"replica hash")
    rows = [line for line in done.stdout.splitlines() if line.startswith("eden:bits=2 ")]
    assert [row.split()[1] for row in rows] == ["0", "1"] and len({row.split()[-1] for row in rows}) == 1, done.stdout


def case_the_table_says_who_is_not_in_the_mean(t):
    need_engine(t, "gloo")
    group = Gloo(t, 3, *VECTOR[:-1], "--trials", "1000", "--pattern", "gather", "--timeout", "20")
    kill_once_connected(group, 2)
    (code, out, err), _ = group.finish([0, 1])
    assert code == 0 and "eden:bits=2: rank 2 is not in the mean: lost: rank 2 is gone" in out.splitlines(), (out, err)


def case_sra_says_where_allgather_is_cheaper(t):
    few = ["--synthetic", "normal", "--dim", "100000", "--codec", "eden:bits=.1", "--comm", "inprocess", "--ranks", "4"]
    rows = {p: lines(t.run("mean", *few, "--pattern", p, "--json").stdout)[0] for p in ("allgather", "sra")}
    assert rows["sra"]["bytes_per_rank"] <= rows["allgather"]["bytes_per_rank"], rows
    assert abs(rows["sra"]["allgather_bytes_per_rank"] / rows["allgather"]["bytes_per_rank"] - 1) < .01, rows
    note = "allgather would send"
    t.run("mean", *few, "--pattern", "sra", out=f"eden:bits=.1: {note} [0-9]+ bytes a rank, with less error")
    many = changed(changed(few, "--codec", "eden:bits=2"), "--ranks", "8")
    done = t.run("mean", *many, "--pattern", "sra")
    assert note not in done.stdout, done.stdout


def case_wrong_command_lines(t):
    def usage(text, *args):
        t.run("mean", *args, exit=2, err=text)

    usage("did you mean 'inprocess'", "--comm", "inproces", *VECTOR)
    usage("--pattern belongs to --comm", "--pattern", "sra", *VECTOR)
    usage("did you mean 'allgather'", "--comm", "inprocess", "--pattern", "allgathr", *VECTOR)
    usage("--second belongs to --pattern sra", "--comm", "inprocess", "--second", "eden:bits=4", *VECTOR)
    usage("--loss does not belong to --comm", "--comm", "inprocess", "--loss", ".1", *VECTOR)
    usage("--rank does not belong to --comm inprocess", "--comm", "inprocess", "--rank", "1", *VECTOR)
    usage("2 files for 4 ranks", "--comm", "inprocess", "a.npy", "b.npy", "--codec", "drive")
    usage("its correlation is 1", "--comm", "inprocess", "--correlation", ".3", *changed(VECTOR, "--synthetic", "sparse:3"))
    usage("3 weights for 4 ranks", "--comm", "inprocess", "--weights", "1,2,3", *VECTOR)
    try:
        need_engine(t, "gloo")
    except Skip:
        return
    usage("needs --rank R --ranks N", "--comm", "gloo", *VECTOR)
    for store in ("x", "tcp:nohost", "tcp:host:0x1"):
        usage("expected tcp:HOST:PORT", "--comm", "gloo", "--rank", "0", "--ranks", "2", "--store", store, *VECTOR)


def case_the_rank_that_failed_is_named(t):
    for r in range(3):
        write_npy(t.path(f"x{r}.npy"), [1.0] * 100)
    t.path("bad.npy").write_bytes(b"no array")
    run = ["--comm", "inprocess", "--ranks", "3", "--codec", "float32"]
    t.run("mean", "x0.npy", "x1.npy", "bad.npy", *run, exit=3, err=r"^kpd mean: bad\.npy: byte 0")
    t.run("mean", "x0.npy", "x1.npy", "x3.npy", *run, exit=1, err=r"^kpd mean: x3\.npy")


def case_gloo_rank_that_never_comes(t):
    need_engine(t, "gloo")
    t.run("mean", "--comm", "gloo", "--rank", "0", "--ranks", "2", "--store", "file:store", "--timeout", "1", *VECTOR, exit=1,
          err="gloo: rank 0 of 2 cannot meet the others at file:store")


def seconds(run):
    start = time.monotonic()
    run()
    return time.monotonic() - start


@contextlib.contextmanager
def silent_listener():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(5)
        yield listener.getsockname()[1]


def case_gloo_meets_within_its_timeout(t):
    """Where something listens that never answers, and at a file that ranks left behind which were killed."""
    need_engine(t, "gloo")
    group = Gloo(t, 2, *VECTOR, "--trials", "100000")
    kill_once_connected(group, 0)
    group.processes[1].kill()
    group.finish()
    assert t.path("store").exists()
    start = seconds(lambda: t.run("--version"))  # how busy the machine is
    join = ["mean", "--comm", "gloo", "--ranks", "2", *VECTOR, "--timeout", "3"]
    with silent_listener() as port:
        for store, rank in ((f"tcp:127.0.0.1:{port}", 1), ("file:store", 1), ("file:store", 0)):
            took = seconds(lambda: t.run(*join, "--rank", rank, "--store", store, exit=1, err=f"gloo: rank {rank} of 2 cannot meet"))
            assert took < 3 + 3 + 100 * start, (store, rank, took)


def case_gloo_by_addresses_of_ipv6(t):
    need_engine(t, "gloo")
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
            port = probe.getsockname()[1]
    except OSError as error:
        raise Skip(f"no IPv6 here: {error}") from None
    group = Gloo(t, 2, *VECTOR, "--timeout", "20", store=f"tcp:[::1]:{port}", extra=lambda rank: ["--address", "[::1]"])
    for code, out, err in group.finish():
        assert code == 0 and lines(out), (code, out, err)


def case_gloo_fails_in_one_line(t):
    need_engine(t, "gloo")
    for store in ("tcp:127.0.0.1:9", "tcp:no.such.host.invalid:29999", "file:no/folder/store"):
        t.run("mean", "--comm", "gloo", "--rank", "1", "--ranks", "2", "--store", store, "--timeout", "1", *VECTOR, exit=1)


def case_gather_goes_on_without_a_lost_gloo_rank(t):
    need_engine(t, "gloo")
    many = [*VECTOR, "--trials", "2000", "--pattern", "gather", "--timeout", "20"]
    group = Gloo(t, 3, *many)
    kill_once_connected(group, 2)
    (code, out, err), (other_code, _, other_err) = group.finish([0, 1])
    assert code == 0 and other_code == 0, err + other_err
    row = json.loads(out)
    assert row["ranks_in_mean"] == 2 and row["refused"] == [{"rank": 2, "refusal": "lost", "reason": "rank 2 is gone"}], row
    assert 0 < row["nmse"] < .2, row


def case_allgather_names_a_lost_gloo_rank(t):
    need_engine(t, "gloo")
    group = Gloo(t, 2, *VECTOR, "--trials", "100000", "--timeout", "20")
    kill_once_connected(group, 1)
    (code, _, err), = group.finish([0])
    assert code == 1 and err.strip().splitlines() == ["kpd mean: rank 1 was lost"], (code, err)


def case_a_lost_mpi_rank_ends_the_run(t):
    need_engine(t, "mpi")
    run = subprocess.Popen([*MPIRUN, "-n", "3", t.program, "mean", "--comm", "mpi", *VECTOR, "--trials", "1000000"],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=t.folder,
                           env={**os.environ, **ROOT_ENVIRONMENT}, start_new_session=True)
    ranks = []

    def started():
        ranks[:] = subprocess.run(["pgrep", "-P", str(run.pid)], capture_output=True, text=True).stdout.split()
        return len(ranks) == 3

    def averages(rank):  # a second of processor time is beyond the start
        ticks = pathlib.Path(f"/proc/{rank}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
        return sum(map(int, ticks)) >= os.sysconf("SC_CLK_TCK")

    until(started, [run])
    until(lambda: all(map(averages, ranks)), [run])
    os.kill(int(ranks[1]), signal.SIGKILL)
    _, err = run.communicate(timeout=60)
    assert run.returncode != 0, err
    told = [line for line in err.splitlines() if line.startswith("kpd: rank ")]
    # mpirun gives a rank a second between SIGTERM and SIGKILL: on a busy machine one of the two may not get to speak.
    assert 1 <= len(told) <= 2 and all("another rank was lost" in line for line in told), err


def case_an_mpi_rank_that_fails_says_why_and_ends_the_others(t):
    need_engine(t, "mpi")
    write_npy(t.path("x0.npy"), [1.0] * 100)
    start = time.monotonic()
    done = mpirun(t, 2, "mean", "--comm", "mpi", "x{rank}.npy", "--codec", "drive")
    assert done.returncode != 0 and time.monotonic() - start < 30, done
    assert "kpd mean: x1.npy: " in done.stderr, done.stderr


NUMBER = itertools.count()


@contextlib.contextmanager
def namespaces(count, join):
    """Hosts with addresses of their own, 10.213.7.1 and on. join(tag, names, ip) gives each its device eth0 and returns what ends the link. Skip where the system refuses."""
    tag = f"kpd{os.getpid()}n{next(NUMBER)}"  # a device goes some time after its namespace: no name is used again
    names = [f"{tag}-{i}" for i in range(count)]

    def ip(*args):
        done = subprocess.run(["ip", *args], capture_output=True, text=True)
        if done.returncode != 0:
            raise Skip(f"network namespaces are refused here: ip {' '.join(args)}: {done.stderr.strip()}")

    if not shutil.which("ip"):
        raise Skip("iproute2 is not installed")
    with contextlib.ExitStack() as undo:
        for name in names:
            ip("netns", "add", name)
            undo.callback(subprocess.run, ["ip", "netns", "del", name], capture_output=True)
        undo.callback(join(tag, names, ip))
        for i, name in enumerate(names):
            ip("-n", name, "addr", "add", f"10.213.7.{i + 1}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names


def bridge(tag, names, ip):
    def clean():
        subprocess.run(["ip", "link", "del", tag], capture_output=True)

    try:
        ip("link", "add", tag, "type", "bridge")
        ip("link", "set", tag, "up")
        for i, name in enumerate(names):
            ip("link", "add", f"{tag}v{i}", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", f"{tag}v{i}", "master", tag, "up")
    except Skip:
        clean()
        raise
    return clean


def run_in_namespaces(t, names, *vector):
    want = lines(t.run("mean", "--comm", "inprocess", "--ranks", "2", *vector).stdout)[0]["replica_hash"]
    group = Gloo(t, 2, *vector, store="tcp:10.213.7.1:29500", prefix=lambda rank: ["ip", "netns", "exec", names[rank]],
                 extra=lambda rank: ["--address", f"10.213.7.{rank + 1}"])
    for code, out, err in group.finish():
        assert code == 0 and json.loads(out)["replica_hash"] == want, (code, out, err)


def case_gloo_between_hosts_of_their_own(t):
    need_engine(t, "gloo")
    with namespaces(2, bridge) as names:
        run_in_namespaces(t, names, *VECTOR)


MANY_FRAMES = ["--synthetic", "normal", "--dim", "1000000", "--codec", "eden:bits=4", "--json"]  # 500 kB each way, some 350 frames


def case_gloo_over_a_bad_link_by_netem(t):
    need_engine(t, "gloo")
    with namespaces(2, bridge) as names:
        for name in names:
            subprocess.run(["ip", "-n", name, "link", "set", "eth0", "gso_max_segs", "1"], check=True)  # loss is by what is sent at once
            done = subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", "netem", "loss", "2%", "delay", "10ms"],
                                  capture_output=True, text=True)
            if done.returncode != 0:
                raise Skip(f"this kernel has no netem: {done.stderr.strip()}")
        run_in_namespaces(t, names, *MANY_FRAMES)
        told = "".join(subprocess.run(["tc", "-n", name, "-s", "qdisc"], capture_output=True, text=True).stdout for name in names)
        assert sum(map(int, re.findall(r"dropped (\d+)", told))) > 0, told


def case_gloo_over_a_bad_link_by_taps(t):
    need_engine(t, "gloo")
    links = []

    def bad_link(_, names, __):
        try:
            links.append(BadLink(names, "eth0", loss=0.02, delay=0.01))
        except OSError as error:
            raise Skip(f"tap devices are refused here: {error}") from None
        return links[0].close

    with namespaces(2, bad_link) as names:
        run_in_namespaces(t, names, *MANY_FRAMES)
    assert links[0].lost > 0 and links[0].forwarded > 700, (links[0].lost, links[0].forwarded)


if __name__ == "__main__":
    run_cases(globals())
