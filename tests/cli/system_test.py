#!/usr/bin/env python3
"""What the machine does to the program: unreadable paths, full disks, closed outputs, Ctrl-C (exit 1 and 130)."""
import os
import resource
import signal
import subprocess
import time

from inputs import numbers, write_npy
from run_cli_tests import Skip, run_cases


def case_missing_files(t):
    t.run("encode", "--force", "no.npy", "x.kpdg", "--codec", "eden:bits=1", "--seed", "1", exit=1, err=r"no\.npy")
    t.run("decode", "--force", "no.kpdg", "x.npy", exit=1, err=r"no\.kpdg")
    t.run("inspect", "no.kpdg", exit=1, err=r"no\.kpdg")
    t.run("mean", "no.npy", "--codec", "eden:bits=1", "--seed", "1", exit=1, err=r"no\.npy")
    assert t.names() == []


def case_output_folder_missing(t):
    write_npy(t.path("in.npy"), numbers(100))
    t.run("encode", "--force", "in.npy", "no/x.kpdg", "--codec", "eden:bits=1", "--seed", "1", exit=1, err=r"no/x\.kpdg")
    t.run("encode", "--force", "in.npy", "x.kpdg", "--codec", "eden:bits=1", "--seed", "1")
    t.run("decode", "--force", "x.kpdg", "no/x.npy", exit=1, err=r"no/x\.npy")


def case_output_is_a_directory(t):
    write_npy(t.path("in.npy"), numbers(100))
    t.path("x.kpdg").mkdir()
    t.run("encode", "--force", "in.npy", "x.kpdg", "--codec", "eden:bits=1", "--seed", "1", exit=1, err=r"x\.kpdg")
    assert t.names() == ["in.npy", "x.kpdg"], t.names()


def case_unreadable_file(t):
    if os.geteuid() == 0:
        raise Skip("root reads every file")
    write_npy(t.path("in.npy"), numbers(100))
    t.path("in.npy").chmod(0)
    t.run("encode", "--force", "in.npy", "x.kpdg", "--codec", "eden:bits=1", "--seed", "1", exit=1, err=r"in\.npy")


def no_room(t, options):
    t.run("encode", "--force", "../in.npy", "x.kpdg", "--codec", "eden:bits=8", "--seed", "1", exit=1, err=r"x\.kpdg", **options)
    t.run("decode", "--force", "../x.kpdg", "x.npy", exit=1, err=r"x\.npy", **options)
    t.run("mean", "../in.npy", "--codec", "eden:bits=8", "--seed", "1", "--out", "m.npy", exit=1, err=r"m\.npy",
          **options)


def case_file_size_limit(t):
    """Like a full disk: the system refuses to write on after 4 KiB."""
    write_npy(t.path("in.npy"), numbers(50000))
    t.run("encode", "--force", "in.npy", "x.kpdg", "--codec", "eden:bits=8", "--seed", "1")
    t.path("full").mkdir()
    folder, t.folder = t.folder, str(t.path("full"))

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    no_room(t, {"preexec_fn": limit})
    assert t.names() == [], t.names()
    t.folder = folder


def case_full_disk(t):
    write_npy(t.path("in.npy"), numbers(50000))
    t.run("encode", "--force", "in.npy", "x.kpdg", "--codec", "eden:bits=8", "--seed", "1")
    t.path("full").mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", t.path("full")], capture_output=True, text=True)
    if mounted.returncode != 0:
        raise Skip(f"cannot mount a small tmpfs: {mounted.stderr.strip()}")
    folder, t.folder = t.folder, str(t.path("full"))
    try:
        no_room(t, {})
        assert t.names() == [], t.names()
        # An older output survives.
        t.path("x.kpdg").write_bytes(b"old")
        t.run("encode", "--force", "../in.npy", "x.kpdg", "--codec", "eden:bits=8", "--seed", "1", exit=1)
        assert t.names() == ["x.kpdg"] and t.path("x.kpdg").read_bytes() == b"old"
    finally:
        t.folder = folder
        subprocess.run(["umount", t.path("full")], check=True)


def case_standard_output_is_full(t):
    if not os.path.exists("/dev/full"):
        raise Skip("no /dev/full")
    with open("/dev/full", "w") as full:
        done = subprocess.run([t.program, "codecs"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "standard output" in done.stderr, (done.returncode, done.stderr)


def interrupt(t, args, signal_number, expected):
    process = subprocess.Popen([t.program, *args], cwd=t.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(0.5)
    assert process.poll() is None, f"ended too early: {process.communicate()}"
    start = time.monotonic()
    process.send_signal(signal_number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == expected, (process.returncode, err)
    assert "interrupted" in err and time.monotonic() - start < 5, (err, time.monotonic() - start)


def case_ctrl_c(t):
    args = ["mean", "--synthetic", "lognormal", "--dim", "2^20", "--clients", "1000", "--trials", "1000", "--codec", "eden:bits=1",
            "--seed", "1", "--json"]
    interrupt(t, args, signal.SIGINT, 130)
    interrupt(t, args, signal.SIGTERM, 143)
    assert t.names() == []


def case_ctrl_c_leaves_no_output(t):
    interrupt(t, ["mean", "--synthetic", "normal", "--dim", "2^22", "--clients", "10000", "--trials", "1", "--codec", "float32", "--seed",
                  "1", "--out", "m.npy"], signal.SIGINT, 130)
    assert t.names() == []


if __name__ == "__main__":
    run_cases(globals())
