#!/usr/bin/env python3
"""`kpd serve` from its start to its end: while the model is loaded, SIGTERM, a closed stderr, a model file that is cut, keys, the log."""
import contextlib
import fcntl
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time

from run_cli_tests import run_cases
from serve_http_test import head, post, raw, statuses
from serve_test import MODEL, refused, serving


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ask(port, path="/health", body=None):
    """Status and reply, as soon as anything listens."""
    deadline = time.monotonic() + 60
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request("GET" if body is None else "POST", path, body)
            reply = connection.getresponse()
            return reply.status, reply.read()
        except ConnectionRefusedError:
            assert time.monotonic() < deadline, "nothing listens"
            time.sleep(0.02)
        finally:
            connection.close()


@contextlib.contextmanager
def held_while_loading(t, *options):
    """A server whose stderr takes nothing, so that the line about the model, which is part of loading, waits. Gives process, port, and the
    pipe's end to read."""
    to_read, to_write = os.pipe()
    os.set_blocking(to_write, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(to_write, b"x" * 4096)
    os.set_blocking(to_write, True)
    port = free_port()
    process = subprocess.Popen([t.program, "serve", str(MODEL), "--port", str(port), "--threads", "1", *options], stderr=to_write)
    os.close(to_write)
    try:
        yield process, port, to_read
    finally:
        process.kill()
        process.wait()
        os.close(to_read)


def case_until_the_model_is_there_it_says_503(t):
    with held_while_loading(t) as (process, port, to_read):
        for path, body in (("/health", None), ("/v1/health", None), ("/v1/models", None), ("/v1/completions", b'{"prompt": "a"}'), ("/tokenize", b"{}")):
            status, text = ask(port, path, body)
            assert status == 503, (path, status, text)
            refused(json.loads(text), kind="server_error")
            assert json.loads(text)["error"]["code"] == "loading"
        assert ask(port, "/")[0] == 200, "the page waits by itself"
        assert ask(port, "/no/such/path")[0] == 404
        flags = fcntl.fcntl(to_read, fcntl.F_GETFL)
        fcntl.fcntl(to_read, fcntl.F_SETFL, flags & ~os.O_NONBLOCK)
        said = b""
        while b"Ctrl-C ends" not in said:
            said += os.read(to_read, 65536)
        assert ask(port)[0] == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def case_signals_end_it_while_it_loads(t):
    for number, code in ((signal.SIGTERM, 0), (signal.SIGINT, 130)):
        with held_while_loading(t) as (process, port, _):
            assert ask(port)[0] == 503
            process.send_signal(number)
            assert process.wait(20) == code, number


def case_a_model_that_cannot_be_loaded_ends_it(t):
    bad = shutil.copytree(MODEL, t.path("bad"))
    (bad / "config.json").write_text("{")
    t.run("serve", bad, "--port", free_port(), exit=3, err="config.json")


def case_sigterm_ends_a_stream_and_the_program_with_0(t):
    with serving(t, "--ctx", "100000", "--log") as s:
        connection = s.connect()
        connection.request("POST", "/v1/completions", json.dumps({"prompt": "a", "max_tokens": 90000, "ignore_eos": True, "stream": True}))
        reply = connection.getresponse()
        assert reply.readline().startswith(b"data: {")
        s.process.send_signal(signal.SIGTERM)
        text = reply.read().decode()
        assert text.endswith("data: [DONE]\n\n"), text[-300:]
        error = json.loads(text.split("\n\n")[-3].removeprefix("data: "))["error"]
        assert error["code"] == "shutting_down", error
        connection.close()
        assert s.process.wait(20) == 0
        s.ended = True


def case_what_it_says_at_its_start(t):
    said = []
    with serving(t, "--parallel", "3", "--cache-ram", "0", said=said) as s:
        text = "".join(said)
        assert f"http://127.0.0.1:{s.port}/v1 " in text and f"http://127.0.0.1:{s.port}/ " in text, text
        # Two layers, two heads of keys and of values, eight numbers each, two bytes a number.
        size = 3 * 256 * 2 * 2 * 2 * 8 * 2
        assert f"cache of keys and values: {size / 1024:.1f} KiB when full (f16, 3 x 256 tokens, and up to 0 MiB" in text, text
        assert s.metric("cache_capacity_bytes") == size
        defaults = s.get("/props")["default_generation_settings"]["params"]
        assert "sampling, where a request says nothing: greedy (generation_config.json)" in text and defaults["temperature"] == 0, (text, defaults)


def case_sampling_where_a_request_says_nothing_is_the_models(t):
    config = {"do_sample": True, "temperature": 0.25, "top_k": 3, "top_p": 0.5, "repetition_penalty": 1.5}
    for number, (given, wanted) in enumerate(((config, {"temperature": 0.25, "top_k": 3, "top_p": 0.5, "repeat_penalty": 1.5}), ({"do_sample": False}, {"temperature": 0}),
                                             (None, {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}))):
        folder = shutil.copytree(MODEL, t.path(f"model{number}"))
        (folder / "generation_config.json").unlink()
        if given is not None:
            (folder / "generation_config.json").write_text(json.dumps(given))
        with serving(t, model=folder) as s:
            params = s.get("/props")["default_generation_settings"]["params"]
            assert {key: params[key] for key in wanted} == wanted, (given, params)
            ask = lambda **f: s.post("/v1/completions", dict({"prompt": "abc", "max_tokens": 30, "seed": 9}, **f))["choices"][0]["text"]
            assert ask() == ask(**params), "what it says is not what it does"


def case_conversations_beyond_the_slots_go_on_where_they_were(t):
    with serving(t, "--parallel", "2") as s:
        texts = [f"{i}" * 60 for i in range(6)]
        for text in texts:
            s.complete(prompt=text, max_tokens=4)
        for text in texts:  # each goes on from what is kept
            reply = s.complete(prompt=text + "and more", max_tokens=4)
            assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] >= 59, (text[0], reply["usage"])
    with serving(t, "--parallel", "2", "--cache-ram", "0") as s:
        for text in texts:
            s.complete(prompt=text, max_tokens=4)
        assert s.complete(prompt=texts[0] + "and more")["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def case_a_closed_stderr_changes_nothing(t):
    with serving(t, "--log") as s:
        s.close_stderr()
        for _ in range(3):
            assert s.complete(prompt="abc")["choices"]
        s.stream("/v1/completions", {"prompt": "abc"})
    # And one that was closed from the start: what is written to it goes into no socket and no file.
    port = free_port()
    process = subprocess.Popen([t.program, "serve", str(MODEL), "--port", str(port), "--threads", "1", "--log"], preexec_fn=lambda: os.close(2))
    try:
        while ask(port)[0] != 200:
            time.sleep(0.02)
        status, text = ask(port, "/v1/completions", b'{"prompt": "abc", "max_tokens": 4, "temperature": 0}')
        assert status == 200 and json.loads(text)["choices"], text
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()


def case_a_model_file_that_is_cut_is_an_error(t):
    """In exact arithmetic weights are read where they lie; in fast arithmetic nothing of the file is needed any more."""
    for arithmetic in ("exact", "fast"):
        for whole in ("model.safetensors", "model.gguf"):
            folder = shutil.copytree(MODEL, t.path(f"{arithmetic}_{whole}"))
            other = {"model.safetensors": "model.gguf", "model.gguf": "model.safetensors"}[whole]
            (folder / other).unlink()
            file = folder / whole
            data = file.read_bytes()
            with serving(t, "--arithmetic", arithmetic, model=folder if whole == "model.safetensors" else file) as s:
                before = s.complete(prompt="abc")["choices"][0]["text"]
                os.truncate(file, len(data) // 3)
                if arithmetic == "fast":
                    assert s.complete(prompt="xyz abc")["choices"] and s.complete(prompt="abc")["choices"][0]["text"] == before
                    continue
                reply = s.complete(prompt="xyz", status=500)
                refused(reply, kind="server_error")
                assert whole in reply["error"]["message"] and "shorter" in reply["error"]["message"], reply
                assert s.get("/health") == {"status": "ok"}
                with open(file, "r+b") as f:  # in place
                    f.write(data)
                assert s.complete(prompt="abc")["choices"][0]["text"] == before, "it does not go on with the file whole again"


def case_the_log_has_a_line_a_request(t):
    said = []
    with serving(t, "--log", said=said) as s:
        s.complete(prompt="abc", max_tokens=4, ignore_eos=True)
        s.stream("/v1/completions", {"prompt": "abcd", "max_tokens": 3, "ignore_eos": True})
        s.get("/health")
        raw(s, head(s, "GET", "/\u00e9\x1b[31m"))
        raw(s, head(s, "GET", "/caf\u00e9"))
        raw(s, b"garbage\r\n\r\n")
        connection = s.connect()
        connection.request("POST", "/v1/completions", json.dumps({"prompt": "a", "max_tokens": 200, "stream": True, "ignore_eos": True, "n": 20}))
        connection.getresponse().readline()
        connection.sock.shutdown(socket.SHUT_RDWR)
        connection.close()
        s.wait_until_idle()
    lines = [line for line in "".join(said).splitlines() if re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ 127\.0\.0\.1 ", line)]
    of = lambda text: [line for line in lines if text in line]
    # In the order in which they were over, which is not that of their beginning.
    assert len(of("; 3 prompt tokens, 0 of them cached, 4 tokens, ended by length")) == 1 and " POST /v1/completions 200 " in of("; 3 prompt")[0], lines
    assert len(of("; 4 prompt tokens, 3 of them cached, 3 tokens, ended by length")) == 1, lines
    assert re.search(r" GET /health 200 \d+ bytes \d+\.\d{3} s$", of("/health")[0]), lines
    assert of("GET /caf\\xc3\\xa9 404 ") and of(" - - 400 ") and not of("\x1b"), lines
    assert of("the client left"), lines


def case_keys_come_from_files_and_the_environment_too(t):
    t.path("keys").write_text("first-key\r\n\nsecond-key\n")
    bearer = lambda s, key: s.send("GET", "/v1/models", headers={"Authorization": key})[0]
    with serving(t, "--api-key-file", t.path("keys"), key="third-key", given=False) as s:
        for key, status in (("first-key", 200), ("second-key", 200), ("first-key\r", 400), ("third-key", 401), ("", 401)):
            if "\r" not in key:
                assert bearer(s, f"Bearer {key}") == status, key
    with serving(t, "--api-key-file", t.path("keys"), key="third-key") as s:
        assert [bearer(s, f"Bearer {key}") for key in ("first-key", "third-key", "fourth-key")] == [200, 200, 401]
        for scheme in ("bearer", "BEARER", "bEaReR"):
            assert bearer(s, f"{scheme} first-key") == bearer(s, f"{scheme}   first-key") == 200, scheme
        for wrong in ("bearer", "bearer ", "bearerfirst-key", "Basic first-key", "first-key", "Bearer first-key second-key"):
            assert bearer(s, wrong) == 401, wrong
    with serving(t, env={"KPD_API_KEY": "from-outside"}, key="from-outside", given=False) as s:
        assert bearer(s, "Bearer from-outside") == 200 and bearer(s, "Bearer other") == 401
    with serving(t, env={"KPD_API_KEY": "from-outside"}, key="given") as s:
        assert bearer(s, "Bearer given") == 200 and bearer(s, "Bearer from-outside") == 401, "the command line decides"
    t.run("serve", MODEL, exit=2, err="KPD_API_KEY", env={"KPD_API_KEY": "a b"})
    t.path("none").write_text("\n\n")
    t.path("wrong").write_text("a b\n")
    t.run("serve", MODEL, "--api-key-file", t.path("none"), exit=2, err="holds no key")
    t.run("serve", MODEL, "--api-key-file", t.path("wrong"), exit=2, err="--api-key-file")
    t.run("serve", MODEL, "--api-key-file", t.path("absent"), exit=1, err="absent")


def headers_of(reply):
    lines = reply.split(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
    return {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}


def case_pages_of_allowed_sites_may_ask(t):
    site = "https://chat.example"
    with serving(t, "--cors-origin", "https://Chat.example", "--cors-origin", "http://localhost:3000", key="k") as s:
        for origin, allowed in ((site, True), ("http://localhost:3000", True), ("http://localhost:3001", False), ("https://chat.example.evil", False), ("null", False)):
            fields = (f"Origin: {origin}", "Authorization: Bearer k")
            reply = raw(s, post(s, fields=fields))
            assert statuses(reply) == [200 if allowed else 403], (origin, reply)
            assert headers_of(reply).get("access-control-allow-origin") == (origin if allowed else None), reply
        # Refusals can be read too, and streams.
        reply = raw(s, post(s, b"{", fields=(f"Origin: {site}",)))
        assert statuses(reply) == [401] and headers_of(reply)["access-control-allow-origin"] == site
        reply = raw(s, post(s, b'{"prompt": "a", "stream": true}', fields=(f"Origin: {site}", "Authorization: Bearer k")))
        assert statuses(reply) == [200] and headers_of(reply)["access-control-allow-origin"] == site
        asks = ("Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization,content-type")
        reply = raw(s, head(s, "OPTIONS", "/v1/chat/completions", [f"Origin: {site}", *asks]))
        fields = headers_of(reply)
        assert statuses(reply) == [204] and fields["access-control-allow-origin"] == site and "Authorization" in fields["access-control-allow-headers"], reply
        assert "POST" in fields["access-control-allow-methods"] and "Origin" in fields["vary"], reply
        assert statuses(raw(s, head(s, "OPTIONS", "/v1/chat/completions", ["Origin: https://evil.example", *asks]))) == [403]
        # A name that was made to point here is no site that is allowed.
        assert statuses(raw(s, post(s, fields=(f"Origin: {site}",), host="chat.example"))) == [403]
    with serving(t, "--cors-origin", "*") as s:
        for origin in ("https://any.example", "null"):
            assert headers_of(raw(s, post(s, fields=(f"Origin: {origin}",))))["access-control-allow-origin"] == origin
    with serving(t) as s:
        assert "access-control-allow-origin" not in headers_of(raw(s, post(s)))
    for wrong in ("chat.example", "https://chat.example/", "", "https://", "https://a.example, https://b.example"):
        t.run("serve", MODEL, "--cors-origin", wrong, exit=2, err="--cors-origin")


if __name__ == "__main__":
    run_cases(globals())
