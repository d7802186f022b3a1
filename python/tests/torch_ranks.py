"""Ranks of a gloo group for the tests of kpd.gradient.torch: processes forked from the test's own, so a rank may be a closure."""

import datetime
import io
import multiprocessing
import os
import signal
import tempfile
import traceback

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
dist = pytest.importorskip("torch.distributed", reason="torch has no distributed package")

FORK = multiprocessing.get_context("fork")
WAIT_SECONDS = 100  # what a hang is, on a busy machine too


def _rank_main(rank, size, folder, pipe, function, args):
    torch.set_num_threads(1)
    store = dist.FileStore(os.path.join(folder, "store"), size)
    try:
        dist.init_process_group("gloo", rank=rank, world_size=size, store=store, timeout=datetime.timedelta(seconds=WAIT_SECONDS))
        result = io.BytesIO()  # not pickled, as then torch shares memory with a process that ends
        torch.save(function(rank, *args), result)
        pipe.send(("ok", result.getvalue()))
    except BaseException:
        pipe.send(("error", traceback.format_exc()))
    finally:
        pipe.close()
        os._exit(0)  # no clean-up that waits for ranks that are gone


def run(size, function, *args):
    """function(rank, *args) in `size` ranks; what each returned, None of one that was killed. Fails with a rank's traceback."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = []
        for rank in range(size):
            reader, writer = FORK.Pipe(duplex=False)
            process = FORK.Process(target=_rank_main, args=(rank, size, folder, writer, function, args), daemon=True)
            process.start()
            writer.close()
            ranks.append((process, reader))
        results = []
        try:
            for rank, (process, reader) in enumerate(ranks):
                if not reader.poll(WAIT_SECONDS):
                    pytest.fail(f"rank {rank} hangs")
                try:
                    kind, value = reader.recv()
                    value = torch.load(io.BytesIO(value), weights_only=False) if kind == "ok" else value
                except EOFError:
                    process.join()
                    assert process.exitcode == -signal.SIGKILL, f"rank {rank} ended with {process.exitcode}"
                    kind, value = "ok", None
                if kind == "error":
                    pytest.fail(f"rank {rank}:\n{value}")
                results.append(value)
        finally:
            for process, _ in ranks:
                process.kill()
                process.join()
        return results
