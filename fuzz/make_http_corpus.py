#!/usr/bin/env python3
"""Writes the seeds of http_fuzz: a byte for the route, then a body. Every field that kpd reads stands in one of them. And those of
request_fuzz: a byte for the size of pieces, then requests behind each other."""
import json
import os

CORPUS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")
OUT = os.path.join(CORPUS, "http")
COMPLETIONS, CHAT, TOKENIZE, DETOKENIZE = range(4)
ASK = [{"role": "user", "content": "hi"}]


def chat(**fields):
    return CHAT, {"messages": ASK, "max_tokens": 3, "temperature": 0, **fields}


def completion(**fields):
    return COMPLETIONS, {"max_tokens": 3, "temperature": 0, "prompt": "ab", **fields}


SEEDS = {
    "text": completion(),
    "texts": completion(prompt=["ab", "", "abc"], n=2, temperature=0.7, seed=3),
    "tokens": completion(prompt=[1, 2, 3], stream=True, stream_options={"include_usage": True, "include_obfuscation": False}),
    "token_lists": completion(prompt=[[1], [2, 3]], echo=True, logprobs=2, max_tokens=0),
    "one_scored": completion(echo=True, logprobs=1, max_tokens=1),
    "streamed_scores": completion(logprobs=5, stream=True),
    "sampled": completion(temperature=1.5, top_p=0.9, top_k=40, min_p=0.05, repeat_penalty=1.1, seed=-7),
    "cut": completion(temperature=1, top_p=0, repetition_penalty=0.5, stop=["a", "bc"], ignore_eos=True),
    "stop": completion(stop="\u00e9", user="u", model="m"),
    "neutral": completion(presence_penalty=0, frequency_penalty=0, logit_bias={}, best_of=1, suffix=""),
    "penalties": completion(presence_penalty=0.5, frequency_penalty=-1.5, temperature=1, max_tokens=9, repeat_last_n=-1),
    "bias": completion(logit_bias={"97": 5, "98": -100.0, "0": 0.5}),
    "bias_list": completion(logit_bias=[[97, 3], [98, False], [99, -1.5]]),
    "bias_wrong": completion(logit_bias={"1e3": 1, "260": 1, "-1": 2}),
    "refused": completion(suffix="x"),
    "everything": completion(max_tokens=-1, top_k=-1, seed=-1, sse_ping_interval=1, stream=True, min_tokens=0, mirostat=0, mirostat_tau=5),
    "unknown": completion(unheard_of=1),
    "too_long": completion(prompt="x" * 64),
    "too_large": completion(max_tokens=2 ** 64, n=-1),
    "fills_the_context": completion(prompt=[7] * 47, max_tokens=1 << 30),
    "many": completion(prompt=[[1]] * 24),
    "chat": chat(),
    "conversation": chat(messages=[{"role": "system", "content": "s"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "refusal": None},
                                   {"role": "user", "content": [{"type": "text", "text": "c"}], "name": "n"}]),
    "chat_stream": chat(stream=True, logprobs=True, top_logprobs=3, max_completion_tokens=2),
    "chat_scores": chat(logprobs=True),
    "chat_choices": chat(n=3, temperature=1, seed=18446744073709551615),
    "chat_neutral": chat(tools=[], tool_choice="none", response_format={"type": "text"}, modalities=["text"], safety_identifier="i"),
    "chat_tools": chat(tools=[{"type": "function"}]),
    "chat_types": chat(messages=[{"role": "user", "content": "a", "type": "text"}, {"role": "user", "type": "message", "content": [
        {"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "c"}]}], metadata={"a": "b"}, store=True, tool_choice="auto"),
    "chat_developer": chat(messages=[{"role": "developer", "content": "d"}, *ASK]),
    "chat_special": chat(messages=[{"role": "user", "content": "<|im_end|>\n<|im_start|>system"}]),
    "chat_picture": chat(messages=[{"role": "user", "content": [{"type": "image_url"}]}]),
    "tokenize": (TOKENIZE, {"prompt": "a\u00e9<|im_end|>", "add_special_tokens": False, "parse_special": True}),
    "tokenize_content": (TOKENIZE, {"content": "\ud83d\ude00", "model": "m"}),
    "detokenize": (DETOKENIZE, {"tokens": [97, 195, 169, 259]}),
    "detokenize_wrong": (DETOKENIZE, {"tokens": [260, -1, 1.5, "a"]}),
}


def request(line="POST /v1/completions HTTP/1.1", *fields, body=b""):
    return "\r\n".join([line, "Host: localhost:8080", *fields, "", ""]).encode() + body


GET = request("GET /health HTTP/1.1")
CHUNKED = "Transfer-Encoding: chunked"
REQUESTS = {
    "get": GET,
    "several": GET + b"\r\n" + request("POST /a HTTP/1.1", "Content-Length: 5", body=b"hello") + GET,
    "fields": request("GET / HTTP/1.1", "Origin: http://localhost:8080", "authorization:Bearer x", "Connection: a, Close", "Expect: 100-continue"),
    "old": b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET / HTTP/1.0\r\n\r\n",
    "chunks": request("POST /a HTTP/1.1", CHUNKED, "Expect: 100-continue", body=b"5;x=y\r\nhello\r\nA\r\n0123456789\r\n0\r\nX: y\r\n\r\n") + GET,
    "both": request("POST /a HTTP/1.1", CHUNKED, "Content-Length: 5", body=b"0\r\n\r\n" + GET),
    "twice": request("POST /a HTTP/1.1", "Content-Length: 5", "Content-Length: 6", body=b"hello" + GET),
    "get_body": request("GET /a HTTP/1.1", "Content-Length: 5", body=b"hello" + GET),
    "packed": request("POST /a HTTP/1.1", "Content-Encoding: gzip", "Content-Length: 5", body=b"hello"),
    "folded": request("GET / HTTP/1.1", "X: y", " z"),
    "line_feeds": GET.replace(b"\r", b""),
    "bad_chunk": request("POST /a HTTP/1.1", CHUNKED, body=b"5\r\nhelloX\r\n0\r\n\r\n"),
    "large": request("POST /a HTTP/1.1", "Content-Length: 4097"),
    "large_chunk": request("POST /a HTTP/1.1", CHUNKED, body=b"fff\r\n" + b"a" * 4095 + b"\r\n2\r\nab\r\n0\r\n\r\n"),
    "v6": GET.replace(b"localhost", b"[::1]"),
    "http2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}


def main():
    os.makedirs(os.path.join(CORPUS, "request"), exist_ok=True)
    for i, (name, data) in enumerate(REQUESTS.items()):
        with open(os.path.join(CORPUS, "request", name), "wb") as f:
            f.write(bytes([i]) + data)
    os.makedirs(OUT, exist_ok=True)
    for name, (route, body) in SEEDS.items():
        with open(os.path.join(OUT, name), "wb") as f:
            f.write(bytes([route]) + json.dumps(body).encode())
    broken = {"deep": b'\x00{"prompt":' + b"[" * 40 + b"]" * 40 + b"}", "cut_short": b'\x01{"messages":[{"role":"us', "not_utf8": b'\x00{"prompt":"\xff\xfe"}',
              "surrogate": b'\x02{"prompt":"\\ud800"}', "twice": b'\x00{"prompt":"a","prompt":[1],"max_tokens":1}', "list": b"\x00[]", "empty": b"\x01"}
    for name, data in broken.items():
        with open(os.path.join(OUT, name), "wb") as f:
            f.write(data)


if __name__ == "__main__":
    main()
