"""Flower's own processes for tests: a SuperLink with SuperNodes or with the simulation engine, on free ports of this machine, with
all their files in a folder. `flwr run` is what a user types."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
APP = ROOT / "examples" / "python" / "flower"
BIN = Path(sys.executable).parent


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def copy_of_app(folder, change=lambda name, text: text):
    """The example in a folder of its own, each file changed by change(name, text)."""
    for path in APP.rglob("*"):
        if path.suffix not in (".py", ".toml"):
            continue
        target = Path(folder) / path.relative_to(APP)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(change(path.name, path.read_text()))
    return Path(folder)


class Link:
    """A SuperLink and its SuperNodes until the with-block ends."""

    def __init__(self, folder, *, supernodes=0, partitions=10):
        self.folder = Path(folder)
        self.port = free_port()
        self.supernodes, self.partitions = supernodes, partitions
        self.processes = []
        self.short = tempfile.mkdtemp(prefix="kpd")  # ray's sockets lie there, and their paths may have 107 bytes
        self.environment = {
            **os.environ,
            "FLWR_HOME": str(self.folder / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "RAY_TMPDIR": self.short,
            "RAY_USAGE_STATS_ENABLED": "0",
            "OMP_NUM_THREADS": "1",
            "NO_COLOR": "1",
            "COLUMNS": "400",
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        }
        (self.folder / "flwr").mkdir(parents=True)
        (self.folder / "flwr" / "config.toml").write_text(
            f'[superlink]\ndefault = "test"\n\n[superlink.test]\naddress = "127.0.0.1:{self.port}"\ninsecure = true\n'
        )

    def __enter__(self):
        try:
            mode = [] if self.supernodes else ["--simulation"]
            self.start("superlink", "flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", str(self.port), *mode)
            self.wait_for_port(self.port)
            for i in range(self.supernodes):
                self.start(
                    f"supernode{i}", "flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{self.port}",
                    "--host", "127.0.0.1", "--port", str(free_port()),
                    "--node-config", f"partition-id={i} num-partitions={self.partitions}",
                )
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *error):
        self.stop()

    def start(self, name, *command):
        log = (self.folder / f"{name}.log").open("w")
        process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, cwd=self.folder)
        self.processes.append(process)
        return process

    def wait_for_port(self, port, seconds=40):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return
            if self.processes[-1].poll() is not None:
                break
            time.sleep(0.1)
        raise AssertionError(f"the SuperLink did not start:\n{self.logs()}")

    def run(self, app, seconds=120, federation=(), **config):
        """`flwr run` to its end; what it printed, without colours."""
        settings = " ".join(f"{key}={value!r}".replace("'", '"') for key, value in config.items())
        command = ["flwr", "run", str(app), "test", "--stream"]
        command += ["--run-config", settings] if settings else []
        command += ["--federation-config", " ".join(federation)] if federation else []
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=seconds, cwd=self.folder)
        output = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
        assert done.returncode == 0, output + self.logs()
        return output

    def logs(self):
        return "\n".join(f"{path.name}:\n{path.read_text()[-4000:]}" for path in sorted(self.folder.glob("*.log")))

    def stop(self):
        """Each process leads a session of its own, so what it has started ends with it."""
        for signal_ in (signal.SIGTERM, signal.SIGKILL):
            for process in self.processes:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal_)
            for process in self.processes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=5 if signal_ == signal.SIGTERM else None)
        shutil.rmtree(self.short, ignore_errors=True)


def accuracies(output):
    return {int(n): float(a) for n, a in re.findall(r"round (\d+): accuracy (\S+)", output)}


def byte_lines(output):
    """By round: (accepted, asked, bytes, plain bytes)."""
    lines = re.findall(r"kpd: round (\d+): (\d+) of (\d+) updates, ([\d,]+) bytes instead of ([\d,]+)", output)
    return {int(n): tuple(int(v.replace(",", "")) for v in values) for n, *values in lines}
