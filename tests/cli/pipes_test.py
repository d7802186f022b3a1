#!/usr/bin/env python3
"""Inputs and outputs that are no plain files: pipes, standard input and output, terminals; outputs that are there already; inputs that shrink."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import threading
import time

from inputs import numbers, read_npy, safetensors_bytes, write_npy, write_safetensors
from run_cli_tests import run_cases
from terminal import open_pty


def shell(t, command, exit=0):
    """A line of bash in which kpd is the program; its stdout as bytes."""
    done = subprocess.run(["bash", "-c", f"set -o pipefail; kpd() {{ '{t.program}' \"$@\"; }}; {command}"], cwd=t.folder, capture_output=True,
                          timeout=60)
    assert done.returncode == exit, (command, done.returncode, done.stdout[-500:], done.stderr[-500:])
    return done


def make(t):
    values = numbers(5000)
    write_npy(t.path("in.npy"), values)
    t.run("encode", "in.npy", "good.kpdg", "--codec", "eden:bits=2", "--seed", "1")
    t.run("decode", "good.kpdg", "good.npy")
    return t.path("good.kpdg").read_bytes(), t.path("good.npy").read_bytes()


def case_pipes_give_the_bytes_of_files(t):
    stream, decoded = make(t)
    encode = "--codec eden:bits=2 --seed 1"
    for command in (f"kpd encode - - {encode} < in.npy",
                    f"cat in.npy | kpd encode - - {encode}",
                    f"cat in.npy | kpd encode /dev/stdin /dev/stdout {encode} | cat",
                    f"kpd encode <(cat in.npy) >(cat > piped) {encode} > said; while ! [ $(stat -c %s piped) = {len(stream)} ]; do sleep .01; done; cat piped",
                    f"cat in.npy | kpd encode - - {encode} --as npy | cat"):
        assert shell(t, command).stdout == stream, command
    for command in ("kpd decode - - --as npy < good.kpdg", "cat good.kpdg | kpd decode - /dev/stdout --as npy | cat",
                    f"cat in.npy | kpd encode - - {encode} | kpd decode - - --as npy"):
        assert shell(t, command).stdout == decoded, command
    assert t.names() == ["good.kpdg", "good.npy", "in.npy", "piped", "said"], t.names()
    done = shell(t, f"kpd encode in.npy - {encode} --json > piped.kpdg")
    assert json.loads(done.stderr)["elements"] == 5000 and t.path("piped.kpdg").read_bytes() == stream, done.stderr


def case_inspect_and_mean_read_pipes(t):
    stream, _ = make(t)
    assert json.loads(shell(t, "kpd inspect --json - < good.kpdg").stdout)["elements"] == 5000
    assert b"checksum ok" in shell(t, "kpd inspect <(cat good.kpdg)").stdout
    t.run("mean", "in.npy", "in.npy", "--codec", "float32", "--seed", "1", "--out", "m.npy")
    mean = t.path("m.npy").read_bytes()
    done = shell(t, "kpd mean <(cat in.npy) - --codec float32 --seed 1 --trials 1 --out - --as npy < in.npy | cat")
    assert done.stdout == mean and b"codec" in done.stderr, done
    done = shell(t, "kpd mean <(cat good.kpdg) --out - --as npy")
    assert done.stdout[:6] == b"\x93NUMPY" and b"numbers" in done.stderr, done


def case_named_pipes(t):
    stream, decoded = make(t)
    os.mkfifo(t.path("in.fifo"))
    os.mkfifo(t.path("out.fifo"))
    got = []
    reader = threading.Thread(target=lambda: got.append(t.path("out.fifo").read_bytes()))
    writer = threading.Thread(target=lambda: t.path("in.fifo").write_bytes(t.path("in.npy").read_bytes()))
    reader.start(), writer.start()
    t.run("encode", "in.fifo", "out.fifo", "--codec", "eden:bits=2", "--seed", "1")
    reader.join(), writer.join()
    assert got == [stream]


def case_large_pipes(t):
    """More than is kept in memory."""
    shell(t, "head -c 80000000 /dev/zero > zeros.f32")
    shell(t, "kpd encode zeros.f32 a.kpdg --codec bf16 --seed 1; cat zeros.f32 | kpd encode - b.kpdg --as f32 --codec bf16 --seed 1; cmp a.kpdg b.kpdg")
    shell(t, "cat a.kpdg | kpd decode - - --as f32 | cmp - zeros.f32")


def case_raw_and_unknown_inputs_need_a_format(t):
    t.path("in.f32").write_bytes(bytes(400))
    for command in ("kpd encode - x.kpdg --seed 1 < in.f32", "cat in.f32 | kpd encode - x.kpdg --seed 1"):
        assert b"--as" in shell(t, command, exit=3).stderr, command
    shell(t, "kpd encode - x.kpdg --seed 1 --as f32 < in.f32")
    t.path("tensors").write_bytes(safetensors_bytes({"a": ("F32", (10,), bytes(40))}))
    shell(t, "kpd encode tensors y.kpdg --seed 1")
    assert "-" not in t.names()


def case_terminals_get_and_bring_no_binary_data(t):
    make(t)
    master, slave = open_pty()
    try:
        for args in (["encode", "in.npy", "-"], ["encode", "in.npy", "/dev/stdout"], ["encode", "in.npy", os.ttyname(slave)],
                     ["decode", "good.kpdg", "-", "--as", "npy"], ["mean", "in.npy", "--out", "-", "--as", "npy"]):
            done = subprocess.run([t.program, *args, *(["--seed", "1"] if args[0] != "decode" else [])], stdout=slave,
                                  stderr=subprocess.PIPE, cwd=t.folder, timeout=60)
            assert done.returncode == 2 and b"terminal" in done.stderr, (args, done)
        for args in (["encode", "-", "x.kpdg"], ["decode", "-", "x.npy"], ["inspect", "-"]):
            done = subprocess.run([t.program, *args], stdin=slave, capture_output=True, cwd=t.folder, timeout=60)
            assert done.returncode == 2 and b"terminal" in done.stderr, (args, done)
    finally:
        os.close(master), os.close(slave)
    assert "x.kpdg" not in t.names()


def case_what_is_there_is_replaced_with_force_only(t):
    stream, decoded = make(t)
    t.path("mine.npy").write_bytes(b"mine")
    t.path("mine.kpdg").write_bytes(b"mine")
    for args in (["decode", "good.kpdg", "mine.npy"], ["encode", "in.npy", "mine.kpdg", "--codec", "eden:bits=2", "--seed", "1"],
                 ["mean", "in.npy", "--codec", "float32", "--seed", "1", "--out", "mine.npy"]):
        name = "mine.kpdg" if args[0] == "encode" else "mine.npy"
        t.run(*args, exit=2, err=name + r": is there already; --force replaces it")
        assert t.path(name).read_bytes() == b"mine"
    t.run("decode", "good.kpdg", "mine.npy", "--force")
    t.run("encode", "in.npy", "mine.kpdg", "--codec", "eden:bits=2", "--seed", "1", "--force")
    assert t.path("mine.npy").read_bytes() == decoded and t.path("mine.kpdg").read_bytes() == stream


def case_an_input_that_shrinks_is_an_error(t):
    """The second file is a pipe that brings nothing until the first, mapped already, is short."""
    write_npy(t.path("a.npy"), numbers(100000))
    os.mkfifo(t.path("b.fifo"))
    process = subprocess.Popen([t.program, "mean", "a.npy", "b.fifo", "--codec", "float32", "--seed", "1", "--out", "m.npy"], cwd=t.folder,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with open(t.path("b.fifo"), "wb") as pipe:  # opens once the program reads it: a.npy is mapped
        data = t.path("a.npy").read_bytes()
        os.truncate(t.path("a.npy"), 4096)
        pipe.write(data)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1 and b"a.npy: became shorter while it was read" in err, (process.returncode, err)
    assert t.names() == ["a.npy", "b.fifo"], t.names()


def case_ctrl_c_leaves_nothing(t):
    t.path("big.f32").write_bytes(b"")
    os.truncate(t.path("big.f32"), 1 << 29)
    process = subprocess.Popen([t.program, "encode", "big.f32", "x.kpdg", "--codec", "eden:bits=8,rounds=3", "--seed", "1", "--threads", "1"],
                               cwd=t.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 30
    while len(t.names()) < 2 and time.monotonic() < deadline and process.poll() is None:
        time.sleep(.005)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130 and t.names() == ["big.f32"] or process.returncode == 0, (process.returncode, t.names())


def case_inspect_reads_weights_from_a_pipe(t):
    write_safetensors(t.path("in.safetensors"), {"a": numbers(100), "b": numbers(7)})
    shutil.copy(t.path("in.safetensors"), t.path("no-name"))
    for line in ("kpd inspect --json - < in.safetensors", "cat in.safetensors | kpd inspect --json /dev/stdin", "kpd inspect --json no-name"):
        row = json.loads(shell(t, line).stdout)
        assert [(x["name"], x["type"], x["shape"]) for x in row["tensors"]] == [("a", "F32", [100]), ("b", "F32", [7])], row
    by_name = json.loads(shell(t, "kpd inspect in.safetensors --tensor a --json").stdout)
    assert json.loads(shell(t, "cat in.safetensors | kpd inspect - --tensor a --json").stdout) == by_name
    gguf = pathlib.Path(__file__).resolve().parent.parent / "golden/models/chat/model.gguf"
    piped = json.loads(shell(t, f"cat {gguf} | kpd inspect --json -").stdout)
    assert piped == dict(json.loads(shell(t, f"kpd inspect --json {gguf}").stdout), model="standard input"), piped


if __name__ == "__main__":
    run_cases(globals())
