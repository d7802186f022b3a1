"""Waiting for what a process does instead of for a time: a busy machine takes longer and breaks nothing."""
import os
import pathlib
import time

PATIENCE_S = 120  # beyond it something hangs


def until(condition, what):
    """Returns when condition() is true; fails where that never comes."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE_S} s"
        time.sleep(0.01)


def cpu_seconds(pid):
    """Processor time that a process has used."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def catches(pid, number):
    """True once a process has a handler of its own for a signal."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def until_working(process, number, seconds):
    """It catches the signal and has computed for some time since it began."""
    until(lambda: process.poll() is not None or (catches(process.pid, number) and cpu_seconds(process.pid) > seconds),
          "a process that computes")
    assert process.poll() is None, f"ended too early: {process.communicate()}"
