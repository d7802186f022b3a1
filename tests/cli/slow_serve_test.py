#!/usr/bin/env python3
"""`kpd serve` and clients that send a byte a second: each is sent away when its request is not whole within 30 s."""
import concurrent.futures
import contextlib
import socket
import time

from run_cli_tests import run_cases
from serve_test import serving


def seconds_until_closed(port, first):
    start = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=1) as raw, contextlib.suppress(ConnectionError):
        raw.sendall(first)
        while time.monotonic() - start < 60:
            raw.sendall(b"x")
            with contextlib.suppress(TimeoutError):
                while raw.recv(4096):
                    pass
                break
    return time.monotonic() - start


def case_a_request_that_never_ends_is_given_up(t):
    beginnings = (b"", b"GET / HTTP/1.1\r\nX: ", b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\n")
    with serving(t) as s, concurrent.futures.ThreadPoolExecutor(3) as pool:
        waits = list(pool.map(lambda first: seconds_until_closed(s.port, first), beginnings))
        assert all(20 < wait < 50 for wait in waits), waits
        s.complete(prompt="still there")


if __name__ == "__main__":
    run_cases(globals())
