#!/usr/bin/env python3
"""`kpd serve` and clients that keep connections: idle ones, requests half sent, replies not taken; waiting streams; limits of memory.

The tests' own addresses are two clients to the server: 127.0.0.1 and 127.0.0.2.
"""
import contextlib
import http.client
import json
import select
import socket
import time

from run_cli_tests import run_cases
from serve_http_test import head, memory, post, raw, reply_of, statuses
from serve_test import CONTEXT, refused, serving


def connect(s, stack, client="127.0.0.1", receive=None):
    sock = stack.enter_context(socket.socket())
    if receive is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
    sock.settimeout(60)
    sock.bind((client, 0))
    sock.connect(("127.0.0.1", s.port))
    return sock


def readable(sockets):
    poll = select.poll()
    by_handle = {sock.fileno(): sock for sock in sockets}
    for handle in by_handle:
        poll.register(handle, select.POLLIN)
    return [by_handle[handle] for handle, _ in poll.poll(0)]


def still_open(sockets):
    """How many of them the server has neither answered nor closed."""
    return len(sockets) - len(readable(sockets))


def health(s, client):
    connection = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60, source_address=(client, 0))
    connection.request("GET", "/health")
    status = connection.getresponse().status
    connection.close()
    return status


def case_idle_connections_hold_up_nobody(t):
    with serving(t) as s, contextlib.ExitStack() as stack:
        idle = [connect(s, stack) for _ in range(600)]
        assert health(s, "127.0.0.1") == health(s, "127.0.0.2") == 200
        assert still_open(idle) == 600, "connections were ended to make room"
        # And each of them can still ask.
        for sock in idle[::100]:
            sock.sendall(head(s, "GET", "/health", close=False))
            assert statuses(reply_of(sock)) == [200]
            sock.sendall(head(s, "GET", "/v1/models", close=False))
            assert statuses(reply_of(sock)) == [200]


def case_idle_connections_have_a_limit(t):
    import resource
    with serving(t, "--max-queue", "0", "--parallel", "1") as s, contextlib.ExitStack() as stack:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
        other = connect(s, stack, "127.0.0.2")
        idle = [connect(s, stack) for _ in range(1400)]
        assert health(s, "127.0.0.2") == 200
        assert 300 < still_open(idle) < 1400, still_open(idle)
        assert still_open([other]) == 1, "the client with one connection lost it to one with a thousand"
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def case_half_sent_requests_make_room(t):
    for begun in (b"G", head(t, "POST", "/v1/completions", ["Content-Length: 100"], host="localhost") + b"{"):
        with serving(t, "--max-queue", "0", "--parallel", "1") as s, contextlib.ExitStack() as stack:  # 33 threads
            stalled = [connect(s, stack) for _ in range(60)]
            for sock in stalled:
                sock.sendall(begun)
            assert health(s, "127.0.0.2") == 200
            assert still_open(stalled) > 0, "it waited for the others' time to end"
            assert health(s, "127.0.0.1") == 200
            closed = readable(stalled)
            assert closed and statuses(reply_of(closed[0])) == [503], "those that gave way are told so"


def case_replies_that_nobody_takes_make_room(t):
    with serving(t, "--max-queue", "0", "--parallel", "1") as s, contextlib.ExitStack() as stack:
        full = [connect(s, stack, receive=4096) for _ in range(40)]
        for sock in full:
            sock.setblocking(False)
            asked = b"".join(head(s, "GET", "/", close=False) for _ in range(500))
            with contextlib.suppress(BlockingIOError):
                sock.send(asked)
        time.sleep(0.7)  # for the replies to fill all buffers on their way
        assert health(s, "127.0.0.2") == health(s, "127.0.0.1") == 200


def case_clients_take_turns(t):
    """One that sends many requests at once, each whole, does not hold up another that sends one."""
    with serving(t) as s, contextlib.ExitStack() as stack:
        many = [connect(s, stack) for _ in range(50)]
        for sock in many:
            sock.sendall(b"".join(post(s, b'{"prompt": "a", "max_tokens": 4}', close=False) for _ in range(20)))
        assert health(s, "127.0.0.2") == 200
        for sock in many:
            for _ in range(20):
                assert statuses(reply_one(sock)) == [200]


def reply_one(sock):
    """One of several replies on a connection, no byte of the next."""
    out = b""
    while b"\r\n\r\n" not in out:
        out += sock.recv(1)
    top = out.lower()
    length = int(top.split(b"content-length:")[1].split(b"\r\n")[0])
    while length > 0:
        part = sock.recv(length)
        assert part, out
        length -= len(part)
        out += part
    return out.split(b"\r\n\r\n")[0] + b"\r\n\r\n"


class Stream:
    """Lines of a streamed reply as they come."""

    def __init__(self, s, **fields):
        self.connection = s.connect()
        body = dict({"prompt": "a", "temperature": 0, "ignore_eos": True, "stream": True}, **fields)
        self.connection.request("POST", "/v1/completions", json.dumps(body))
        self.reply = self.connection.getresponse()
        assert self.reply.status == 200, self.reply.read()

    def line(self):
        line = self.reply.readline()
        while line == b"\n":
            line = self.reply.readline()
        return line.rstrip(b"\n").decode()


def case_the_time_limit_is_of_silence_and_waiting_streams_say_so(t):
    with serving(t, "--parallel", "1", "--ctx", "1000000", "--timeout", "1") as s:
        long = Stream(s, max_tokens=900000)
        assert long.line().startswith("data: {")
        waiting = Stream(s, max_tokens=5)  # behind the other, for longer than the limit
        lines = [waiting.line()]
        while lines[-1].startswith(":"):
            lines.append(waiting.line())
        assert lines[0] == ": waiting", lines
        error = json.loads(lines[-1].removeprefix("data: "))["error"]
        assert error["code"] == "timeout" and "1 s" in error["message"], error
        assert waiting.line() == "data: [DONE]"
        # The first has gone on for as long as that, and is given up by nobody.
        for _ in range(20):
            chunk = json.loads(long.line().removeprefix("data: "))
            assert chunk["choices"][0]["finish_reason"] is None, chunk
        long.connection.sock.shutdown(socket.SHUT_RDWR)
        long.connection.close()
        s.wait_until_idle()


def case_texts_and_lists_of_tokens_have_the_limits_of_prompts(t):
    with serving(t) as s:
        s.post("/tokenize", {"prompt": "a" * (CONTEXT * 256)})
        before = memory(s)
        for field in ("prompt", "content"):
            reply = s.post("/tokenize", {field: "a" * (15 << 20)}, 400)
            refused(reply, field)
            assert reply["error"]["code"] == "context_length_exceeded"
        refused(s.post("/detokenize", {"tokens": [97] * (CONTEXT * 256 + 1)}, 400), "tokens")
        assert len(s.post("/detokenize", {"tokens": [97] * (CONTEXT * 256)})["content"]) == CONTEXT * 256
        # JSON takes more memory than its text; small parts are counted.
        for many in (b"[" + b"{}," * 4000000 + b"{}]", b"[" + b'"",' * 4000000 + b'""]', b"[" + b"[]," * 4000000 + b"[]]"):
            refused(s.post("/v1/completions", b'{"prompt":' + many + b"}", 400))
        assert memory(s) - before < 300 << 20, (before, memory(s))
        assert raw(s, post(s, b'{"prompt": "a", "max_tokens": 1}')).count(b"200 OK") == 1


if __name__ == "__main__":
    run_cases(globals())
