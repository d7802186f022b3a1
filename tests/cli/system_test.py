#!/usr/bin/env python3
"""What the machine does to the program: unreadable paths, full disks, closed outputs, Ctrl-C (exit 1 and 130)."""
import os
import resource
import signal
import subprocess
import time

from inputs import numbers, write_npy
from processes import PATIENCE_S, until_working
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
    """`ulimit -f`, like a full disk: the system refuses to write on after 4 KiB, and its signal ends nobody."""
    write_npy(t.path("in.npy"), numbers(50000))
    t.run("encode", "--force", "in.npy", "x.kpdg", "--codec", "eden:bits=8", "--seed", "1")
    t.path("full").mkdir()
    folder, t.folder = t.folder, str(t.path("full"))

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    no_room(t, {"preexec_fn": limit})
    assert t.names() == [], t.names()
    t.folder = folder


def case_of_two_that_make_one_file_the_second_says_so(t):
    write_npy(t.path("in.npy"), numbers(100))
    data = t.path("in.npy").read_bytes()
    t.run("encode", "in.npy", "x.kpdg", "--seed", "1")
    for args, out in ((["encode", "-", "y.kpdg", "--as", "npy", "--seed", "2"], "y.kpdg"), (["decode", "-", "y.npy"], "y.npy"),
                      (["mean", "-", "--as", "npy", "--seed", "1", "--out", "m.npy"], "m.npy")):
        first = subprocess.Popen([t.program, *args], stdin=subprocess.PIPE, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd=t.folder)
        first.stdin.write(t.path("x.kpdg").read_bytes() if args[0] == "decode" else data)
        first.stdin.flush()
        until_reading(first)
        t.path(out).write_bytes(b"of another")
        err = first.communicate(timeout=60)[1].decode()
        assert first.returncode == 1 and f"{out}: another has made it meanwhile" in err, (args, first.returncode, err)
        assert t.path(out).read_bytes() == b"of another"
    assert t.names() == ["in.npy", "m.npy", "x.kpdg", "y.kpdg", "y.npy"], t.names()


def until_reading(process):
    """It has looked at its options and waits for its pipe."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with open(f"/proc/{process.pid}/syscall") as file:
            if file.read().split()[0] == "0":  # read
                return
        time.sleep(.005)


def case_an_unwritable_mean_is_noticed_before_the_work(t):
    done = t.run("mean", "--synthetic", "normal", "--dim", "2^33", "--clients", "1000", "--out", "no/m.npy", exit=1, err=r"--out no/m\.npy: there is no folder no")
    assert done.stdout == "", done.stdout


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
    until_working(process, signal_number, 0.2)
    process.send_signal(signal_number)
    out, err = process.communicate(timeout=PATIENCE_S)  # hours, if it went on
    assert process.returncode == expected, (process.returncode, err)
    assert "interrupted" in err, err


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
