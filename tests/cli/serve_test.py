#!/usr/bin/env python3
"""`kpd serve` as its clients see it: completions and chat, whole and streamed, log-probabilities, refusals, hostile bytes, Ctrl-C."""
import concurrent.futures
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

from processes import PATIENCE_S, until
from run_cli_tests import HERE, run_cases

MODEL = HERE.parent / "golden/models/chat"  # a token a byte, ChatML
CONTEXT = 256


class Server:
    def __init__(self, process, port, key):
        self.process, self.port, self.key = process, port, key
        self.ended, self.reader = False, None

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def send(self, method, path, body=None, headers=None):
        connection = self.connect()
        headers = dict({"Authorization": f"Bearer {self.key}"} if self.key else {}, **(headers or {}))
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        connection.request(method, path, data, headers)
        reply = connection.getresponse()
        text = reply.read()
        connection.close()
        return reply.status, text

    def get(self, path, status=200):
        got, text = self.send("GET", path)
        assert got == status, (path, got, text)
        return json.loads(text)

    def post(self, path, body, status=200):
        got, text = self.send("POST", path, body)
        assert got == status, (path, body, got, text)
        return json.loads(text)

    def complete(self, status=200, **fields):
        return self.post("/v1/completions", dict({"temperature": 0, "max_tokens": 8}, **fields), status)

    def chat(self, content="hello", status=200, **fields):
        messages = [{"role": "user", "content": content}]
        return self.post("/v1/chat/completions", dict({"messages": messages, "temperature": 0, "max_tokens": 8}, **fields), status)

    def stream(self, path, body):
        """The chunks of a streamed reply; the last line must be [DONE]."""
        status, text = self.send("POST", path, dict({"temperature": 0, "max_tokens": 8, "stream": True}, **body))
        assert status == 200, (status, text)
        events = text.decode().split("\n\n")
        assert events[-2:] == ["data: [DONE]", ""], events[-3:]
        return [json.loads(event.removeprefix("data: ")) for event in events[:-2]]

    def metric(self, name):
        status, text = self.send("GET", "/metrics")
        assert status == 200
        return float(re.search(rf"^kpd_{name} (\S+)$", text.decode(), re.M).group(1))

    def close_stderr(self):
        """Nobody reads what the server says any more; its next line may still find the reader that waits."""
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), self.process.stderr.fileno())

    def wait_until_idle(self):
        until(lambda: self.metric("requests_active") == 0 and self.metric("requests_waiting") == 0, "no request under way")


@contextlib.contextmanager
def serving(t, *options, key=None, given=True, model=MODEL, env=None, said=None):
    """A server; `said` gets the lines of its stderr, `given`: the key stands on the command line. A case that has ended it sets `ended`."""
    args = [t.program, "serve", str(model), "--port", "0", "--arithmetic", "exact", "--threads", "1", *map(str, options)]
    if "--arithmetic" in options:
        del args[5:7]
    said = [] if said is None else said
    process = subprocess.Popen(args + (["--api-key", key] if key and given else []), stderr=subprocess.PIPE, text=True,
                               env=dict(os.environ, **(env or {})))
    server = Server(process, 0, key)
    try:
        for line in process.stderr:
            said.append(line)
            found = re.search(r" on http://127\.0\.0\.1:(\d+)/v1", line)
            if found:
                break
        else:
            raise AssertionError(f"the server ended: {said}")
        server.port = int(found.group(1))
        # What it says later must not fill the pipe.
        server.reader = threading.Thread(target=lambda: said.extend(process.stderr), daemon=True)
        server.reader.start()
        yield server
        assert server.ended or process.poll() is None, "the server has ended"
    finally:
        if not server.ended:
            process.send_signal(signal.SIGINT)
        try:
            assert server.ended or process.wait(20) == 130, process.returncode
        finally:
            process.kill()
            if server.reader:
                server.reader.join(20)


def refused(reply, param=None, kind="invalid_request_error"):
    assert set(reply) == {"error"} and set(reply["error"]) == {"message", "type", "param", "code"}, reply
    assert reply["error"]["type"] == kind and reply["error"]["message"], reply
    assert reply["error"]["param"] == param, reply


def case_what_it_says_of_itself(t):
    with serving(t, "--name", "small") as s:
        models = s.get("/v1/models")
        assert [m["id"] for m in models["data"]] == ["small"] and models["data"][0]["max_model_len"] == CONTEXT, models
        assert s.get("/v1/models/small")["id"] == "small"
        assert s.get("/health") == {"status": "ok"}
        info = s.get("/tokenizer_info")
        assert info["bos_token"] == "<|im_start|>" and info["eos_token"] == "<|im_end|>" and "im_start" in info["chat_template"]
        tokens = s.post("/tokenize", {"prompt": "aé<|im_end|>"})["tokens"]
        assert len(tokens) == 4 and tokens[3] == 259, tokens
        pieces = s.post("/tokenize", {"content": "aé<|im_end|>", "with_pieces": True, "add_special": False})["tokens"]
        assert [p["id"] for p in pieces] == tokens and [p["piece"] for p in pieces] == ["a", [195], [169], "<|im_end|>"], pieces
        assert s.post("/detokenize", {"tokens": tokens})["prompt"] == "aé<|im_end|>"
        assert s.metric("slots") == 4


def case_completions_take_every_form_of_prompt(t):
    with serving(t) as s:
        one = s.complete(prompt="abc")
        assert one["object"] == "text_completion" and one["usage"]["prompt_tokens"] == 3, one
        text = one["choices"][0]["text"]
        ids = s.post("/tokenize", {"prompt": "abc"})["tokens"]
        assert one["choices"][0]["finish_reason"] in ("length", "stop")
        assert s.complete(prompt=ids)["choices"][0]["text"] == text
        several = s.complete(prompt=["abc", "xyz", "abc"])["choices"]
        assert [c["index"] for c in several] == [0, 1, 2] and several[0]["text"] == several[2]["text"] == text
        lists = s.complete(prompt=[ids, ids[:1]])["choices"]
        assert len(lists) == 2 and lists[0]["text"] == text
        assert s.complete(prompt="abc", echo=True)["choices"][0]["text"] == "abc" + text
        assert s.complete(prompt="abc", max_tokens=0, echo=True)["choices"][0]["text"] == "abc"
        # What generate gives is what the server gives.
        alone = t.run("generate", MODEL, "--prompt", "abc", "--max-tokens", 8, "--arithmetic", "exact", "--json",
                      "--temperature", 0)
        assert json.loads(alone.stdout)["text"] == text


def case_answers_are_those_of_transformers(t):
    with serving(t) as s:
        for expected in json.loads((MODEL / "expected.json").read_text()):
            fields = {"max_tokens": len(expected["ids"]) + (expected["finish_reason"] == "stop")}
            if expected["chat"]:
                choice = s.chat(expected["prompt"], **fields)["choices"][0]
                text = choice["message"]["content"]
            else:
                choice = s.complete(prompt=expected["prompt"], **fields)["choices"][0]
                text = choice["text"]
            assert (text, choice["finish_reason"]) == (expected["text"], expected["finish_reason"]), (expected, choice)


def case_log_probabilities_as_lm_eval_reads_them(t):
    with serving(t) as s:
        prompts = [[97, 98, 99, 100, 101], [97, 98, 99, 120], [97, 98, 99, 100, 101, 102]]
        for _ in range(2):  # the second time from the cache
            reply = s.complete(prompt=prompts, max_tokens=1, logprobs=1, echo=True, seed=1234)
            for prompt, choice in zip(prompts, reply["choices"]):
                scores, top = choice["logprobs"]["token_logprobs"], choice["logprobs"]["top_logprobs"]
                assert len(scores) == len(top) == len(choice["logprobs"]["tokens"]) == len(prompt) + 1
                assert scores[0] is None and top[0] is None and all(v < 0 for v in scores[1:])
                assert scores[-1] == max(top[-1].values()), "the greedy token's two numbers differ"
                assert all(score <= max(t.values()) for score, t in zip(scores[1:], top[1:]))
        scored = s.complete(prompt="abc", max_tokens=0, logprobs=3, echo=True)["choices"][0]["logprobs"]
        assert len(scored["token_logprobs"]) == 3 and scored["text_offset"] == [0, 1, 2], scored
        assert s.metric("prompt_tokens_cached_total") > 0


def case_scores_name_the_bytes_and_places_of_tokens(t):
    with serving(t) as s:
        prompt = "Hi 👩\u200d🚀 é<|im_end|>日"
        choice = s.complete(prompt=prompt, max_tokens=12, echo=True, logprobs=0, temperature=2, seed=6)["choices"][0]
        assert choice["finish_reason"] == "length", "its last token has no text: take another seed"
        places = [i for i, c in enumerate(prompt.replace("<|im_end|>", "\0")) for _ in range(1 if c == "\0" else len(c.encode()))]
        special = prompt.index("<")
        places = [i if i <= special else i + len("<|im_end|>") - 1 for i in places]
        offsets, tokens = choice["logprobs"]["text_offset"], choice["logprobs"]["tokens"]
        assert offsets[:len(places)] == places, (offsets, places)
        assert all(choice["text"][at:].startswith(token) for at, token in zip(offsets, tokens) if "\ufffd" not in token), choice
        field = {"prompt": prompt, "max_tokens": 12, "logprobs": 0, "temperature": 2, "seed": 6}
        streamed = [c["choices"][0]["logprobs"] for c in s.stream("/v1/completions", field)]
        whole = s.complete(**field)["choices"][0]["logprobs"]["text_offset"]
        assert [at for scores in streamed if scores for at in scores["text_offset"]] == whole, (streamed, whole)
        ended, split = 0, 0
        for seed in range(12):
            fields = {"logprobs": True, "top_logprobs": 1, "temperature": 2, "seed": seed, "max_tokens": 24}
            reply = s.chat(**fields)
            choice = reply["choices"][0]
            content = choice["logprobs"]["content"]
            joined = bytes(byte for token in content for byte in token["bytes"])
            assert joined.decode(errors="replace") == choice["message"]["content"], (joined, choice)
            assert all(token["bytes"] == list(token["token"].encode()) for token in content if token["token"] in "abc"), content
            stop = choice["finish_reason"] == "stop"
            ended += stop
            split += b"\xef\xbf\xbd" not in joined and "\ufffd" in choice["message"]["content"]
            assert len(content) == reply["usage"]["completion_tokens"] + stop and (not stop or content[-1]["bytes"] == []), reply
            chunks = s.stream("/v1/chat/completions", dict(fields, messages=[{"role": "user", "content": "hello"}]))
            scores = [c["choices"][0]["logprobs"] for c in chunks]
            assert [token for part in scores if part for token in part["content"]] == content, (scores, content)
        assert ended and split, "no answer of the model's own end, or none with a part of a character"


def case_sampling_follows_the_seed(t):
    with serving(t) as s:
        ask = lambda **f: [c["text"] for c in s.complete(prompt="abc", temperature=3, max_tokens=12, **f)["choices"]]
        assert ask(seed=5) == ask(seed=5) != ask(seed=6)
        several = ask(seed=5, n=3)
        assert several[0] == ask(seed=5)[0] and len(set(several)) == 3, several
        # Clients send what else there is beside a temperature of 0.
        likeliest = s.complete(prompt="abc")["choices"][0]["text"]
        assert s.complete(prompt="abc", temperature=0, top_p=.5, top_k=3, min_p=.1)["choices"][0]["text"] == likeliest


def case_penalties_and_biases(t):
    with serving(t) as s:
        ask = lambda **f: s.complete(prompt="abc", max_tokens=40, ignore_eos=True, **f)["choices"][0]["text"]
        token = lambda c: s.post("/tokenize", {"prompt": c, "add_special_tokens": False})["tokens"][0]
        plain = ask()
        assert ask(logit_bias={str(token("x")): 100}) == "x" * 40
        assert ask(logit_bias=[[token("x"), 100]]) == "x" * 40
        banned = {str(token(c)): -100 for c in set(plain)}
        assert not set(ask(logit_bias=banned)) & set(plain)
        assert not set(ask(logit_bias=[[token(c), False] for c in set(plain)])) & set(plain)
        few = {str(token(c)): 100 for c in "uvwxyz"}
        assert len(set(ask(logit_bias=few))) < 6, "there is nothing to see"
        assert set(ask(logit_bias=few, frequency_penalty=2)) == set("uvwxyz")
        assert ask(presence_penalty=2) != plain and ask(presence_penalty=0) == plain
        assert ask(frequency_penalty=-2) != ask(frequency_penalty=2)


def case_stop_texts(t):
    with serving(t) as s:
        whole = s.complete(prompt="stop", max_tokens=30)["choices"][0]["text"]
        stop = whole[5]
        choice = s.complete(prompt="stop", max_tokens=30, stop=stop)["choices"][0]
        assert choice["text"] == whole[:whole.index(stop)] and choice["finish_reason"] == "stop", (whole, choice)


def case_chat_whole_and_streamed(t):
    with serving(t) as s:
        whole = s.chat("hello", logprobs=True, top_logprobs=2)
        choice = whole["choices"][0]
        assert whole["object"] == "chat.completion" and choice["message"]["role"] == "assistant"
        assert len(choice["logprobs"]["content"][0]["top_logprobs"]) == 2
        parts = s.chat([{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}])
        assert parts["choices"][0]["message"] == s.chat("hel\nlo")["choices"][0]["message"], "parts are lines"
        chunks = s.stream("/v1/chat/completions", {"messages": [{"role": "user", "content": "hello"}],
                                                   "stream_options": {"include_usage": True}})
        assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
        text = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks[:-1])
        assert text == choice["message"]["content"]
        assert chunks[-2]["choices"][0]["finish_reason"] == choice["finish_reason"]
        assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["total_tokens"] == whole["usage"]["total_tokens"]
        pieces = s.stream("/v1/completions", {"prompt": ["ab", "cd"], "echo": True})
        for i, prompt in enumerate(("ab", "cd")):
            got = "".join(c["choices"][0]["text"] for c in pieces if c["choices"][0]["index"] == i)
            assert got == s.complete(prompt=prompt, echo=True)["choices"][0]["text"]


def case_what_it_lacks_is_named(t):
    with serving(t) as s:
        tool = {"type": "function", "function": {"name": "f"}}
        for field, value in (("tools", [tool]), ("response_format", {"type": "json_object"}), ("tool_choice", "required"),
                             ("reasoning_effort", "high"), ("modalities", ["audio"]), ("mirostat", 2), ("grammar", "root ::= \"a\"")):
            refused(s.chat(status=400, **{field: value}), field)
        for field, value in (("best_of", 2), ("suffix", "x"), ("no_such_field", 1)):
            refused(s.complete(prompt="a", status=400, **{field: value}), field)
        refused(s.chat([{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}], status=400), "messages[0].content")


def case_nothing_is_ignored_but_what_the_guide_says(t):
    with serving(t) as s:
        def ask(status, **fields):
            message = dict({"role": "assistant", "content": "hello"}, **fields)
            return s.post("/v1/chat/completions", {"messages": [message], "temperature": 0, "max_tokens": 4}, status)
        for field, value in (("audio", {"id": "a"}), ("refusal", "no"), ("refusal", ""), ("tool_calls", [{"id": "a"}]), ("tool_call_id", "a"),
                             ("function_call", {"name": "f"}), ("annotations", [{"type": "url_citation"}]), ("reasoning", "x"), ("name", 5)):
            refused(ask(400, **{field: value}), f"messages[0].{field}")
        part = {"type": "text", "text": "hello"}
        for bad, name in (({"citations": []}, ".citations"), ({"text": None}, None), ({"text": 5}, ".text"), ({"type": "input_audio"}, None)):
            refused(ask(400, content=[part, dict(part, **bad)]), "messages[0].content" + (f"[1]{name}" if name else ""))
        # What the openai package sends back of an answer, and what it says by default.
        plain = ask(200)["choices"][0]["message"]
        assert ask(200, refusal=None, audio=None, function_call=None, annotations=[], tool_calls=None, name="me")["choices"][0]["message"] == plain
        assert ask(200, content=[dict(part, cache_control={"type": "ephemeral"})], annotations=None, tool_calls=[])["choices"][0]["message"] == plain
        s.chat("b", stream_options=None)
        for options, stream in (({"include_usage": True}, False), ({}, False), ({"include_obfuscation": True}, True), ({"x": 1}, True)):
            reply = s.chat("b", status=400, stream=stream, stream_options=options)
            assert reply["error"]["param"].startswith("stream_options"), reply
        s.stream("/v1/completions", {"prompt": "a", "stream_options": {"include_usage": False, "include_obfuscation": False}})


def case_what_asks_for_nothing_is_taken(t):
    """As clients send it without being asked: the openai package, LangChain, LiteLLM, Open WebUI, Continue, lm-evaluation-harness, and
    those of vLLM and llama.cpp."""
    taken = {"tools": [], "tool_choice": "auto", "parallel_tool_calls": False, "functions": [], "function_call": "auto", "response_format": {"type": "text"},
             "logit_bias": {}, "presence_penalty": 0, "frequency_penalty": 0.0, "modalities": ["text"], "store": False, "metadata": {"chat": "1"}, "user": "me",
             "safety_identifier": "x", "service_tier": "default", "prompt_cache_key": "k", "verbosity": "medium", "prediction": None, "audio": None,
             "reasoning_effort": None, "top_logprobs": 0, "logprobs": False, "n": 1, "stop": [], "seed": -1, "top_k": -1, "min_p": 0, "repetition_penalty": 1.0,
             "length_penalty": 1.0, "use_beam_search": False, "min_tokens": 0, "skip_special_tokens": True, "spaces_between_special_tokens": True,
             "add_generation_prompt": True, "continue_final_message": False, "include_stop_str_in_output": False, "stop_token_ids": [], "cache_prompt": True,
             "typical_p": 1, "tfs_z": 1.0, "mirostat": 0, "mirostat_tau": 5.0, "mirostat_eta": 0.1, "dynatemp_range": 0, "dynatemp_exponent": 1,
             "xtc_probability": 0, "xtc_threshold": 0.1, "dry_multiplier": 0, "dry_base": 1.75, "dry_allowed_length": 2, "dry_penalty_last_n": -1,
             "repeat_last_n": 64, "samplers": [], "grammar": "", "json_schema": {}, "n_probs": 0, "min_keep": 0, "n_keep": 0, "id_slot": -1, "lora": [],
             "timings_per_token": True, "return_progress": True, "reasoning_control": True, "backend_sampling": False, "post_sampling_probs": False,
             "sse_ping_interval": 1, "t_max_predict_ms": 0, "verbose": False, "stream_options": None}
    with serving(t) as s:
        plain = s.chat("hello")["choices"][0]["message"]
        assert s.chat("hello", **taken)["choices"][0]["message"] == plain
        for field, value in (("tool_choice", "none"), ("store", True), ("cache_prompt", False), ("service_tier", "auto"), ("logit_bias", []), ("top_k", 0)):
            assert s.chat("hello", **{field: value})["choices"][0]["message"] == plain, field
        message = {"role": "user", "content": "hello", "type": "text", "name": "n"}
        assert s.post("/v1/chat/completions", {"messages": [message], "temperature": 0, "max_tokens": 8})["choices"][0]["message"] == plain
        # -1 is as much as there is.
        for field in ("max_tokens", "n_predict"):
            reply = s.complete(**{"prompt": "abc", "ignore_eos": True, "max_tokens": None, field: -1})
            assert reply["usage"]["total_tokens"] == CONTEXT + 1, reply["usage"]
        assert s.chat("abc", ignore_eos=True, max_tokens=None, max_completion_tokens=-1)["usage"]["total_tokens"] == CONTEXT + 1


def case_a_full_context_has_its_code(t):
    with serving(t) as s:
        for prompt in ("a" * CONTEXT, [97] * CONTEXT, [97] * (CONTEXT + 1), "a" * 1000000):
            for stream in (False, True):
                reply = s.complete(prompt=prompt, stream=stream, status=400)
                assert reply["error"]["code"] == "context_length_exceeded" and reply["error"]["param"] == "prompt", reply
        for text in ("a" * CONTEXT, "a" * 1000000):
            assert s.chat(text, status=400)["error"]["code"] == "context_length_exceeded"
        s.complete(prompt="a" * CONTEXT, max_tokens=0, echo=True)


def case_what_makes_no_sense(t):
    with serving(t) as s:
        for fields in ({"temperature": -1}, {"temperature": "hot"}, {"top_p": 2}, {"n": 0}, {"n": 1000}, {"max_tokens": -2}, {"top_k": -2},
                       {"presence_penalty": 3}, {"frequency_penalty": "much"}, {"logit_bias": [1]}, {"logit_bias": {"a": 1}}, {"logit_bias": {"-1": 1}},
                       {"logit_bias": {"1": 101}}, {"logit_bias": {"1": "a"}}, {"logit_bias": {"99999": 1}}, {"logit_bias": [[1, True]]},
                       {"repeat_last_n": 64, "repeat_penalty": 1.1},
                       {"max_tokens": 1.5}, {"logprobs": 100}, {"stop": [1]}, {"stop": ["x"] * 99}, {"seed": "a"},
                       {"stream": 1}, {"echo": "yes"}, {"stream_options": 1}):
            refused(s.complete(prompt="a", status=400, **fields), next(iter(fields)))
        for prompt in (None, "", [], 5, {"a": 1}, [[]], ["a", 5], [1, "a"], [99999], [-1], [1.5], [[1], [99999]], [[[1]]]):
            refused(s.complete(prompt=prompt, status=400), "prompt")
        for prompt in ("a" * CONTEXT, [97] * CONTEXT, [97] * 100000, "a" * 1000000):
            reply = s.complete(prompt=prompt, status=400)
            refused(reply, "prompt")
            assert str(CONTEXT) in reply["error"]["message"], reply
        refused(s.chat("a" * CONTEXT, status=400), "messages")
        for body in (b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"prompt":"\xff"}', b"[" * 100000, b'{"a":' * 5000 + b"1" + b"}" * 5000):
            refused(s.post("/v1/completions", body, 400))
        for messages in (None, [], "hi", [1], [{}], [{"role": "user"}], [{"role": "user", "content": 5}]):
            s.post("/v1/chat/completions", {"messages": messages}, 400)
        refused(s.post("/tokenize", {}, 400), "prompt")
        refused(s.post("/detokenize", {"tokens": [1, 99999]}, 400), "tokens")


def case_paths_and_methods(t):
    with serving(t) as s:
        for path in ("/v1", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/v1/models/..%2fetc", "/config.json"):
            refused(s.get(path, 404), kind="not_found_error")
        refused(s.get("/v1/completions", 405))
        assert s.send("DELETE", "/v1/models")[0] == 405
        assert s.send("POST", "/v1/completions", b"x" * (17 << 20))[0] == 413
        assert s.send("GET", "/v1/models", headers={"Origin": "http://elsewhere.example"})[0] == 403
        assert s.send("GET", "/v1/models", headers={"Origin": f"http://127.0.0.1:{s.port}"})[0] == 200


def case_the_page_needs_nothing_from_outside(t):
    with serving(t, key="secret") as s:
        status, text = s.send("GET", "/", headers={"Authorization": ""})
        assert status == 200 and text.startswith(b"<!doctype html>")
        assert not re.search(rb"https?://|@import|src=", text), "it fetches something"


def case_a_key_is_needed(t):
    with serving(t, key="secret") as s:
        s.get("/v1/models")
        for wrong in ("", "Bearer ", "Bearer secre", "Bearer secrets", "Bearer Secret", "secret", "Basic secret"):
            status, text = s.send("GET", "/v1/models", headers={"Authorization": wrong})
            assert status == 401, (wrong, status)
            refused(json.loads(text), kind="authentication_error")
        assert s.send("GET", "/health", headers={"Authorization": ""})[0] == 200


def case_many_at_once_get_what_they_get_alone(t):
    with serving(t, "--parallel", "3", "--chunk", "16") as s:
        prompts = [chr(97 + i) * (3 + 11 * i) for i in range(12)]
        alone = [s.complete(prompt=p, max_tokens=20)["choices"][0]["text"] for p in prompts]
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            together = list(pool.map(lambda p: s.complete(prompt=p, max_tokens=20)["choices"][0]["text"], prompts))
        assert together == alone


def case_a_full_queue_refuses(t):
    with serving(t, "--parallel", "1", "--max-queue", "2", "--chunk", "1") as s:
        def ask(i):
            body = {"prompt": chr(97 + i) * 200, "max_tokens": 50, "temperature": 0, "ignore_eos": True}
            return s.send("POST", "/v1/completions", body)
        with concurrent.futures.ThreadPoolExecutor(10) as pool:
            replies = list(pool.map(ask, range(10)))
        assert {status for status, _ in replies} == {200, 503}, [status for status, _ in replies]
        refused(json.loads(next(text for status, text in replies if status == 503)), kind="server_error")
        refused(s.complete(prompt="a", n=4, status=400), "prompt")


def case_a_client_that_leaves_frees_its_slot(t):
    with serving(t, "--parallel", "1", "--chunk", "1") as s:
        for stream in (False, True):
            connection = s.connect()
            body = {"prompt": "abc" * 60, "max_tokens": 300, "ignore_eos": True, "temperature": 0, "stream": stream}
            connection.request("POST", "/v1/completions", json.dumps(body))
            if stream:
                connection.getresponse().read(10)
            else:
                time.sleep(0.05)
            connection.sock.shutdown(socket.SHUT_RDWR)
            connection.close()
            s.wait_until_idle()
        s.complete(prompt="still there")


def case_bytes_that_are_no_http(t):
    with serving(t) as s:
        for garbage in (b"\0" * 100, b"GET\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
                        b"POST /v1/completions HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
                        b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nX: " + b"y" * 20000 + b"\r\n\r\n",
                        b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n", b"\r\n" * 50):
            with socket.create_connection(("127.0.0.1", s.port), timeout=20) as raw:
                raw.sendall(garbage)
                raw.shutdown(socket.SHUT_WR)
                with contextlib.suppress(ConnectionError):
                    while raw.recv(65536):
                        pass
        s.complete(prompt="still there")


def case_ctrl_c_ends_requests_and_frees_the_port(t):
    with serving(t, "--chunk", "1") as s:
        t.run("serve", MODEL, "--port", s.port, exit=1, err="Address already in use")
        body = {"prompt": "abc" * 60, "max_tokens": 200, "ignore_eos": True, "n": 8}
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            under_way = pool.submit(s.send, "POST", "/v1/completions", body)
            until(lambda: s.metric("requests_active") > 0 or under_way.done(), "a request under way")
            s.process.send_signal(signal.SIGINT)
            status, text = under_way.result(PATIENCE_S)
        assert status in (200, 503), (status, text)
        assert s.process.wait(PATIENCE_S) == 130
        with socket.socket() as port:
            port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            port.bind(("127.0.0.1", s.port))
        s.ended = True


def case_wrong_options(t):
    t.run("serve", exit=2, err="MODEL is required")
    for option, value in (("--port", "70000"), ("--parallel", "0"), ("--ctx", "1"), ("--chunk", "0"), ("--kv", "q3"),
                          ("--chat-template", "none"), ("--api-key", ""), ("--max-queue", "-1"), ("--timeout", "0")):
        t.run("serve", MODEL, option, value, exit=2, err=option)


if __name__ == "__main__":
    run_cases(globals())
