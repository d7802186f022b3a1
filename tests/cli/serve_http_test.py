#!/usr/bin/env python3
"""`kpd serve` and the bytes of HTTP: where a request ends, how large it may be, whom it may come from, what fields cannot do."""
import contextlib
import ctypes
import gzip
import json
import os
import re
import resource
import select
import signal
import socket
import time

from run_cli_tests import Skip, run_cases
from serve_test import MODEL, refused, serving

ASK = b'{"prompt": "a", "max_tokens": 1}'
LIMIT = 16 << 20


def raw(s, pieces, wait=60):
    """Sends the pieces and returns all that comes until the server closes the connection."""
    out = b""
    with socket.create_connection(("127.0.0.1", s.port), timeout=wait) as client:
        with contextlib.suppress(ConnectionError):
            for piece in [pieces] if isinstance(pieces, bytes) else pieces:
                client.sendall(piece)
        with contextlib.suppress(ConnectionError):
            while data := client.recv(65536):
                out += data
    return out


def reply_of(client):
    """Reads one reply whole, however the network cuts it, and leaves the connection open."""
    out = b""
    while True:
        top, end, body = out.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", top)
        if end and len(body) >= (int(length.group(1)) if length else 0):
            return out
        data = client.recv(65536)
        assert data, f"the connection ended after {out!r}"
        out += data


def head(s, method="POST", path="/v1/completions", fields=(), host=None, close=True):
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host or f'127.0.0.1:{s.port}'}", *fields, *(["Connection: close"] if close else [])]
    return "\r\n".join([*lines, "", ""]).encode()


def post(s, body=ASK, fields=(), **more):
    return head(s, fields=(f"Content-Length: {len(body)}", *fields), **more) + body


def statuses(reply):
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+) [A-Z]", reply)]


def memory(s):
    """The most that the server ever held, in bytes."""
    with open(f"/proc/{s.process.pid}/status", encoding="ascii") as f:
        return 1024 * int(re.search(r"VmHWM:\s*(\d+)", f.read()).group(1))


def case_ranges_change_nothing(t):
    with serving(t) as s:
        whole = s.send("GET", "/")[1]
        for value in ("bytes=0-9", "bytes=" + ",".join(["0-"] * 2600), "bytes=9-0", "bytes=" + "9" * 500 + "-", "lines=1-"):
            status, text = s.send("GET", "/", headers={"Range": value})
            assert (status, text) == (200, whole), (value[:40], status, len(text))
            assert statuses(raw(s, post(s, fields=(f"Range: {value}",)))) == [200]
        assert b"\r\nAccept-Ranges: none\r\n" in raw(s, head(s, "HEAD", "/"))


def case_a_body_has_a_limit_however_it_comes(t):
    # The address sanitizer keeps what is freed, to catch its users.
    os.environ["ASAN_OPTIONS"] = ":".join(filter(None, [os.environ.get("ASAN_OPTIONS"), "quarantine_size_mb=1"]))
    with serving(t) as s:
        before = memory(s)

        def chunks(size, n):
            yield head(s, fields=("Transfer-Encoding: chunked",))
            for _ in range(n):
                yield b"%x\r\n" % size + b"a" * size + b"\r\n"
            yield b"0\r\n\r\n"

        packed = gzip.compress(b'{"prompt":"' + b"a" * (64 << 20) + b'"}')
        assert statuses(raw(s, post(s, packed, ("Content-Encoding: gzip",)))) == [415]
        assert statuses(raw(s, post(s, packed, ("Content-Encoding: br",)))) == [415]
        assert statuses(raw(s, chunks(1 << 20, 40))) == [413]
        assert statuses(raw(s, [b"".join(chunks(1, 30000))])) == [413], "sizes of chunks are not bounded"
        assert statuses(raw(s, post(s, b"a" * (LIMIT + 1)))) == [413]
        assert statuses(raw(s, (head(s, fields=("Transfer-Encoding: chunked",)), b"1;" + b"x" * 200000))) == [413]
        assert memory(s) - before < 6 * LIMIT, (before, memory(s))


def case_all_bodies_together_have_a_limit(t):
    with serving(t) as s:
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(socket.create_connection(("127.0.0.1", s.port), timeout=60)) for _ in range(9)]
            for client in clients:  # all stop short of their end
                with contextlib.suppress(ConnectionError):
                    client.sendall(head(s, fields=(f"Content-Length: {LIMIT}",)) + b"a" * (LIMIT - 1))
            answered, _, _ = select.select(clients, [], [], 60)
            assert answered and statuses(reply_of(answered[0])) == [503]
            assert s.send("GET", "/health")[0] == 200, "who sends little is not shut out"
            assert statuses(raw(s, post(s))) == [200]
        deadline = time.monotonic() + 60  # they are gone: there is room
        while statuses(raw(s, post(s))) != [200]:
            assert time.monotonic() < deadline


def case_a_head_has_a_limit(t):
    with serving(t) as s:
        many = [b"GET /health HTTP/1.1\r\nHost: localhost\r\n", *(b"X-%d: %s\r\n" % (i, b"b" * 1000) for i in range(5000)), b"\r\n"]
        assert statuses(raw(s, many)) == [431]
        assert statuses(raw(s, [b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ", *[b"y" * 100000] * 20])) == [431]
        assert statuses(raw(s, head(s, "GET", "/" + "a" * 20000))) == [414]
        assert statuses(raw(s, head(s, "GET", "/health", [f"X-{i}: {'b' * 100}" for i in range(500)]))) == [200]


def case_old_and_other_forms_of_requests(t):
    with serving(t) as s:
        # A client that ends its side without a request is told nothing.
        with socket.create_connection(("127.0.0.1", s.port), timeout=60) as client:
            client.sendall(head(s, "GET", "/health", close=False))
            assert statuses(reply_of(client)) == [200]
            client.shutdown(socket.SHUT_WR)
            assert client.recv(65536) == b""
        # HTTP/1.0 has no chunks and its connections end.
        body = ASK[:-1] + b', "stream": true}'
        reply = raw(s, b"POST /v1/completions HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        assert statuses(reply) == [200] and b"chunked" not in reply and reply.rstrip().endswith(b"data: [DONE]"), reply
        # The form of requests to a proxy: its authority is the name.
        assert statuses(raw(s, head(s, "GET", f"http://127.0.0.1:{s.port}/health"))) == [200]
        assert statuses(raw(s, head(s, "GET", "http://evil.example/health"))) == [403]


def case_a_post_without_a_length_is_empty(t):
    with serving(t) as s:
        start = time.monotonic()
        reply = raw(s, head(s))
        assert statuses(reply) == [400] and b"JSON" in reply, reply
        assert time.monotonic() - start < 20, "it waited for a body"  # it would for 30 s


def case_a_body_is_json_whatever_it_is_called(t):
    with serving(t) as s:
        text = json.dumps({"prompt": ["a"] * 3, "max_tokens": 1, "user": "u" * 20000}).encode()
        for kind in ("application/x-www-form-urlencoded", "multipart/form-data; boundary=b", "multipart/form-data", "text/plain", ""):
            status, reply = s.send("POST", "/v1/completions", text, {"Content-Type": kind})
            assert status == 200 and len(json.loads(reply)["choices"]) == 3, (kind, status, reply[:200])
        # As curl sends a large file: it asks first, or it does not know the length.
        with socket.create_connection(("127.0.0.1", s.port), timeout=60) as client:
            client.sendall(head(s, fields=(f"Content-Length: {len(text)}", "Expect: 100-continue")))
            assert reply_of(client) == b"HTTP/1.1 100 Continue\r\n\r\n"
            client.sendall(text)
            assert statuses(reply_of(client)) == [200]
        parts = [text[i:i + 999] for i in range(0, len(text), 999)]
        chunked = b"".join(b"%X;name=value\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\nTrailer: x\r\n\r\n"
        assert statuses(raw(s, head(s, fields=("Transfer-Encoding: chunked",)) + chunked)) == [200]


def case_no_part_of_a_request_becomes_another(t):
    with serving(t) as s:
        inner = head(s, "GET", "/v1/models")
        length = f"Content-Length: {len(inner)}"
        chunk = b"%x\r\n%s\r\n0\r\n\r\n" % (len(inner), inner)
        for method in ("GET", "HEAD", "DELETE", "OPTIONS", "PUT", "PATCH", "POST"):
            for first in (head(s, method, "/health", [length], close=False) + inner,
                          head(s, method, "/health", ["Transfer-Encoding: chunked"], close=False) + chunk):
                got = statuses(raw(s, first + head(s, "GET", "/no/such/path")))
                assert got in ([400], [405, 404]), (method, got)
        for fields in (["Transfer-Encoding: chunked", "Content-Length: 5"], ["Transfer-Encoding: gzip, chunked"],
                       ["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"], ["Transfer-Encoding: xchunked"],
                       ["Content-Length: 5", "Content-Length: 6"], ["Content-Length: 5", "Content-Length: 5"], ["Content-Length: 5, 5"],
                       ["Content-Length: +5"], ["Content-Length: -5"], ["Content-Length: 0x5"], ["Content-Length: 5 5"], ["Content-Length:"],
                       ["Content-Length : 5"], ["X: y", " folded: z"], ["X: a\0b"], ["X: a\rContent-Length: 5"], ["no colon"]):
            got = statuses(raw(s, head(s, fields=fields, close=False) + b"5\r\nhello\r\n0\r\n\r\n" + inner))
            assert got == [400], (fields, got)
        for bad in (b"0x5\r\nhello\r\n0\r\n\r\n", b"-5\r\nhello\r\n", b"+5\r\nhello\r\n", b"5\r\nhelloX\r\n0\r\n\r\n", b"5\nhello\n0\n\n",
                    b"\r\nhello\r\n", b"fffffffffffffffff\r\nhello\r\n"):
            got = statuses(raw(s, head(s, fields=["Transfer-Encoding: chunked"], close=False) + bad + inner))
            assert got == [400], (bad, got)
        for line in (b"GET /health HTTP/1.1\nHost: localhost\n\n", b"GET  /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
                     b"GET /health\r\n\r\n", b"GET /health HTTP/1.1\r\n\r\n", b"GET /a b HTTP/1.1\r\nHost: localhost\r\n\r\n"):
            assert statuses(raw(s, line)) == [400], line
        assert statuses(raw(s, b"GET /health HTTP/2.0\r\n\r\n")) == [505]
        assert statuses(raw(s, head(s, "TRACE", "/health"))) == [405]
        # And what is well behind another is answered in turn.
        assert statuses(raw(s, post(s, close=False) + b"\r\n" + head(s, "GET", "/health", close=False) + post(s))) == [200] * 3


def case_a_name_that_is_not_ours_is_refused(t):
    with serving(t) as s:
        for host in ("evil.example", f"evil.example:{s.port}", "127.0.0.1.evil.example", "localhost.evil.example", "[::2]", "2130706433"):
            for fields in ((), (f"Origin: http://{host}",)):
                reply = raw(s, post(s, fields=fields, host=host))
                assert statuses(reply) == [403], (host, reply)
                refused(json.loads(reply.split(b"\r\n\r\n")[1]), kind="permission_error")
            assert statuses(raw(s, head(s, "GET", "/", host=host))) == [403]
        for host in ("localhost", f"LocalHost:{s.port}", "127.0.0.1:1", "[::1]:8080", "[::1]"):
            assert statuses(raw(s, head(s, "GET", "/health", host=host))) == [200], host
        assert statuses(raw(s, b"GET /health HTTP/1.0\r\n\r\n")) == [200], "no browser omits its Host"
    with serving(t, "--allowed-host", "Models.example", "--allowed-host", "10.1.2.3") as s:
        for host, status in (("models.example", 200), ("models.example:443", 200), ("10.1.2.3", 200), ("localhost", 200), ("evil.example", 403)):
            assert statuses(raw(s, head(s, "GET", "/health", host=host))) == [status], host
    for name in ("a.example:80", "http://a.example", ""):
        t.run("serve", MODEL, "--allowed-host", name, exit=2, err="--allowed-host")


def case_a_key_may_have_any_visible_character(t):
    key = "50%25+%41&~!\"'\\"
    with serving(t, key=key) as s:
        s.get("/v1/models")
        assert s.send("GET", "/v1/models", headers={"Authorization": "Bearer 50%+A"})[0] == 401
    for wrong in (" ", "a b", "key ", "schlüssel", "a\tb"):
        t.run("serve", MODEL, "--api-key", wrong, exit=2, err="--api-key")


def case_clients_that_stall_do_not_hold_up_the_end(t):
    with serving(t) as s, contextlib.ExitStack() as stack:
        for begun in (b"POST /v1/comp", head(s, fields=("Content-Length: 100",)) + b"{", b"", head(s, "GET", "/health", close=False)):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", s.port), timeout=60))
            client.sendall(begun)
        # One that takes nothing of its answer.
        client = stack.enter_context(socket.socket())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", s.port))
        client.sendall(b"".join(head(s, "GET", "/", close=False) for _ in range(1000)))
        time.sleep(0.5)
        start = time.monotonic()
        s.process.send_signal(signal.SIGINT)
        assert s.process.wait(25) == 130  # each of them would have had 30 s
        assert time.monotonic() - start < 20
        s.ended = True


def case_without_handles_it_waits_for_some(t):
    with serving(t) as s:
        pid = s.process.pid
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")), hard))
        with socket.create_connection(("127.0.0.1", s.port), timeout=60) as client:
            client.sendall(head(s, "GET", "/health"))
            time.sleep(0.3)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
            assert statuses(reply_of(client)) == [200]


def case_a_lost_port_ends_the_program(t):
    with serving(t) as s:
        libc = ctypes.CDLL(None, use_errno=True)
        pidfd = os.pidfd_open(s.process.pid)
        ours = -1
        for name in os.listdir(f"/proc/{s.process.pid}/fd"):
            copy = libc.syscall(438, pidfd, int(name), 0)  # pidfd_getfd
            if copy < 0:
                raise Skip(f"no handle of another process: {os.strerror(ctypes.get_errno())}")
            try:
                found = socket.socket(fileno=copy)
            except OSError:
                os.close(copy)
                continue
            with found:
                if found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    found.shutdown(socket.SHUT_RDWR)
                    ours = copy
        os.close(pidfd)
        assert ours >= 0, "no socket that listens"
        assert s.process.wait(20) == 1
        s.ended = True


if __name__ == "__main__":
    run_cases(globals())
