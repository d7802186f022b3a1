"""Threads, fork, Ctrl-C, memory, and what an import brings."""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import kpd
from kpd import gradient

SECRET = bytes(32)
MANIFEST = gradient.Manifest([("x", "float32", (1 << 20,))])


def normal(n=1 << 20, seed=1):
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)


def test_import_brings_neither_numpy_nor_torch_nor_flwr():
    code = "import sys, kpd, kpd.gradient; print(sorted({'numpy', 'torch', 'flwr'} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_threads_code_at_the_same_time_with_the_same_bytes():
    x = normal()
    expected = gradient.encode(x, seed=1)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: gradient.encode(x, seed=1, threads=2), range(12)))
    assert all(r == expected for r in results)


def test_other_threads_run_while_a_call_codes():
    x = normal(1 << 24)
    seen = []
    stop = threading.Event()

    def count():
        while not stop.is_set():
            seen.append(time.monotonic())
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    begin = time.monotonic()
    gradient.encode(x, "eden:bits=1")
    end = time.monotonic()
    stop.set()
    thread.join()
    assert sum(begin < t < end for t in seen) >= 3


def test_an_object_in_use_says_so():
    manifest = gradient.Manifest([("x", "float32", (1 << 24,))])
    encoder = gradient.Encoder(manifest, "eden:code=entropy,bits=2", SECRET)
    x = normal(1 << 24)
    refusals = []
    started = threading.Event()

    def encode():
        started.set()
        encoder.encode(x, round=0, client=0)

    thread = threading.Thread(target=encode)
    thread.start()
    started.wait()
    while thread.is_alive():
        try:
            encoder.max_bytes
        except kpd.Error as error:
            refusals.append(str(error))
            break
    thread.join()
    assert refusals == ["Encoder: is in use by another call; expected one for each thread"]
    assert encoder.max_bytes > 0


def child(connection, encoder, x):
    connection.send((encoder.encode(x, round=0, client=1), gradient.encode(x, seed=3, threads=4)))


def test_a_forked_child_codes_with_a_pool_of_its_own():
    x = normal()
    encoder = gradient.Encoder(MANIFEST, "eden:bits=1", SECRET, threads=4)
    expected = (encoder.encode(x, round=0, client=1), gradient.encode(x, seed=3, threads=4))  # the pool lives
    context = multiprocessing.get_context("fork")
    for _ in range(3):
        ours, theirs = context.Pipe()
        process = context.Process(target=child, args=(theirs, encoder, x))
        process.start()
        assert ours.poll(60), "the child hangs"
        assert ours.recv() == expected
        process.join()
        assert process.exitcode == 0
    assert encoder.encode(x, round=0, client=1) == expected[0]


@pytest.fixture(autouse=True)
def hear_interrupts():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores them
    yield
    signal.signal(signal.SIGINT, before)


def interrupt_soon(seconds):
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()


@pytest.mark.parametrize("threads", [1, 3])
def test_ctrl_c_ends_encoding_and_decoding_and_the_objects_go_on(threads):
    n = 1 << 24
    manifest = gradient.Manifest([("x", "float32", (n,))])
    x = normal(n)
    encoder = gradient.Encoder(manifest, "kashin-sq:bits=2", SECRET, threads=threads)
    decoder = gradient.Decoder(manifest, SECRET, threads=threads)
    expected = encoder.encode(x, round=0, client=0)
    out = np.empty_like(x)
    for call in (
        lambda: encoder.encode(x, round=0, client=0),
        lambda: decoder.decode(expected, round=0, client=0, out=[out]),
    ):
        rounds = 0
        interrupt_soon(0.15)
        with pytest.raises(KeyboardInterrupt):
            while True:
                call()
                rounds += 1
                assert rounds < 1000
    assert encoder.encode(x, round=0, client=0) == expected
    decoder.decode(expected, round=0, client=0, out=[out])
    assert np.isfinite(out).all()


def test_an_interrupt_is_seen_inside_a_call():
    code = """
import threading, os, signal, time, numpy as np
from kpd import gradient
signal.signal(signal.SIGINT, signal.default_int_handler)
x = np.ones(1 << 25, np.float32)
def kill():
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGINT)
gradient.encode(x[:1000])
threading.Thread(target=kill).start()
try:
    gradient.encode(x, "kashin-sq:bits=2")
    print("finished")
except KeyboardInterrupt:
    print("interrupted")
"""
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "interrupted"


def rss():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_many_calls_leave_nothing_behind():
    manifest = gradient.Manifest([("x", "float32", (300,)), ("n", "int64", (3,))])
    encoder = gradient.Encoder(manifest, "eden:bits=1", SECRET)
    decoder = gradient.Decoder(manifest, SECRET)
    tensors = [normal(600)[::2], np.arange(3)]

    def calls(n):
        for i in range(n):
            message = encoder.encode(tensors, round=i, client=0)
            decoder.decode(message, round=i, client=0)
            try:
                decoder.decode(message, round=i + 1, client=0)
            except kpd.Error:
                pass
            gradient.Codec("eden:bits=1")

    calls(2000)
    gc.collect()
    before, objects = rss(), len(gc.get_objects())
    calls(25_000)  # 100,000 calls
    gc.collect()
    assert rss() - before < 4 << 20
    assert len(gc.get_objects()) - objects < 100


PEAK = """
import resource, numpy as np
from kpd import gradient
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
n = 1 << 24
x = np.ones(n, np.float32); x[::7] = -3
out = np.zeros(n, np.float32)
manifest = gradient.Manifest([("x", "float32", (n,))])
encoder = gradient.Encoder(manifest, "eden:bits=1", bytes(32)); decoder = gradient.Decoder(manifest, bytes(32))
room = bytearray(encoder.max_bytes)
before = peak()
message = encoder.encode(x, round=0, client=0, out=room)
decoder.decode(message, round=0, client=0, out=[out])
decoder.decode_add(message, [out], round=0, client=0)
print(peak() - before)
"""


def test_no_temporary_of_the_size_of_the_vector():
    assert int(subprocess.check_output([sys.executable, "-c", PEAK])) < 8 << 20  # of 64 MiB
