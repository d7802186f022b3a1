"""The examples with torch do what they print."""

import os
import pathlib
import re
import socket
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="torch is not installed")

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python"


def run_example(name, *arguments, ranks=2):
    """What rank 0 prints; the ranks as torchrun starts them, without torchrun's own seconds."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    running = []
    for rank in range(ranks):
        environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        command = [sys.executable, str(EXAMPLES / name), *arguments]
        running.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    try:
        outputs = [p.communicate(timeout=200) for p in running]
    finally:
        for p in running:
            p.kill()
    for p, (_, err) in zip(running, outputs, strict=True):
        assert p.returncode == 0, err
    assert not any(out for out, _ in outputs[1:])
    return outputs[0][0]


def test_ddp():
    out = run_example("ddp.py", "--codec", "eden:bits=4", "--steps", "60")
    losses = [float(v) for v in re.findall(r"loss ([\d.]+)", out)]
    assert len(losses) == 3 and losses[-1] < 0.8 * losses[0]
    assert all(4 < float(v) < 4.3 for v in re.findall(r"([\d.]+) bits a number", out))


def test_local_sgd():
    out = run_example("local_sgd.py", "--codec", "eden:bits=1,scale=biased", "--error-feedback")
    losses = [float(v) for v in re.findall(r"loss ([\d.]+)", out)]
    assert len(losses) == 6 and losses[-1] < 0.8 * losses[0]
    message, floats, sparse = map(int, re.search(r"has (\d+) bytes, float32 (\d+), SparseLoCo's layout (\d+)", out).groups())
    assert floats / 32 < message < 1.1 * floats / 32
    assert sparse == round(floats / 4 * 14 / 64 / 8)
