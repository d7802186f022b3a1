#!/usr/bin/env python3
"""How ranks of an engine end: servers that stood still, terminals and pipes that close."""
import os
import pathlib
import signal
import subprocess
import time

from comm_test import Gloo, connections, need_engine, until
from federate_test import SMALL, make_images
from mpi_ranks import MPIRUN, ROOT_ENVIRONMENT
from processes import cpu_seconds
from run_cli_tests import changed, run_cases


def train(t):
    """Options of a small federated run, with its images."""
    make_images(t)
    return [*changed(SMALL, "--clients-per-round", "4"), "--codec", "eden:bits=1", "--local-epochs", "8"]


def until_training(group):
    """All ranks but the server have met and have trained a while."""
    until(lambda: all(connections(p.pid) >= len(group.processes) - 1 for p in group.processes), group.processes)
    start = [cpu_seconds(p.pid) for p in group.processes]
    until(lambda: all(cpu_seconds(p.pid) > s + .5 for p, s in list(zip(group.processes, start))[1:]), group.processes)


def case_a_closed_stdout_still_ends_a_gloo_rank(t):
    need_engine(t, "gloo")
    group = Gloo(t, 2, *train(t), "--rounds", "100000", "--timeout", "5", "--eval-every", "1", command="federate")
    group.processes[0].stdout.readline()
    group.processes[0].stdout.close()
    assert group.processes[0].wait(timeout=60) == -signal.SIGPIPE
    (code, _, err), = group.finish([1])
    assert code == 1 and "the server (rank 0) was lost" in err, (code, err)


def case_a_closed_terminal_keeps_the_checkpoint(t):
    """SIGHUP is a Ctrl-C, but not where nohup had it ignored."""
    need_engine(t, "gloo")  # for the train component
    run = [t.program, "federate", *train(t), "--rounds", "100000", "--checkpoint", "kept"]
    process = subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=t.folder)
    until(lambda: cpu_seconds(process.pid) > 2, [process])
    process.send_signal(signal.SIGHUP)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "kept holds all complete rounds" in err and t.path("kept").exists(), (process.returncode, err)
    process = subprocess.Popen([*run[:-1], "other"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=t.folder,
                               preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    until(lambda: cpu_seconds(process.pid) > 2, [process])
    process.send_signal(signal.SIGHUP)
    time.sleep(1)
    assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130


def case_a_gloo_server_that_was_paused_ends_in_words(t):
    """Its ranks have given up when it goes on: what it writes to them must not end it by SIGPIPE."""
    need_engine(t, "gloo")
    group = Gloo(t, 3, *train(t), "--rounds", "100000", "--timeout", "3", "--eval-every", "1000", command="federate")
    until_training(group)
    server = group.processes[0]
    server.send_signal(signal.SIGSTOP)
    for code, _, err in group.finish([1, 2]):
        assert code == 1 and "rank 0 did not answer" in err, (code, err)
    server.send_signal(signal.SIGCONT)
    (code, _, err), = group.finish([0])
    assert code == 1 and "no rank that trains is left" in err, (code, err)


def case_a_stopped_mpi_rank_does_not_hold_the_end(t):
    """The server goes on without it, prints what it has, and waits for it no longer than the time-out."""
    need_engine(t, "gloo")  # for the train component
    need_engine(t, "mpi")
    run = subprocess.Popen([*MPIRUN, "-n", "3", t.program, "federate", "--comm", "mpi", *train(t), "--rounds", "6", "--timeout", "5",
                            "--eval-every", "4", "--json"],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=t.folder,
                           env={**os.environ, **ROOT_ENVIRONMENT}, start_new_session=True)
    ranks = []

    def training():
        ranks[:] = subprocess.run(["pgrep", "-P", str(run.pid)], capture_output=True, text=True).stdout.split()
        return len(ranks) == 3 and all(cpu_seconds(rank) > 2.5 for rank in ranks[1:])

    until(training, [run])
    os.kill(int(ranks[2]), signal.SIGSTOP)
    try:
        out, err = run.communicate(timeout=100)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        raise AssertionError(f"it hangs: {run.communicate()}") from None
    assert '"final_accuracy"' in out, (out, err)


if __name__ == "__main__":
    run_cases(globals())
