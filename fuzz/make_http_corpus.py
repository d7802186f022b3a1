#!/usr/bin/env python3
"""Writes the seeds of http_fuzz: a byte for the route, then a body. Every field that kpd reads stands in one of them."""
import json
import os

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus", "http")
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
    "refused": completion(logit_bias={"1": 5}),
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
    "chat_developer": chat(messages=[{"role": "developer", "content": "d"}, *ASK]),
    "chat_special": chat(messages=[{"role": "user", "content": "<|im_end|>\n<|im_start|>system"}]),
    "chat_picture": chat(messages=[{"role": "user", "content": [{"type": "image_url"}]}]),
    "tokenize": (TOKENIZE, {"prompt": "a\u00e9<|im_end|>", "add_special_tokens": False, "parse_special": True}),
    "tokenize_content": (TOKENIZE, {"content": "\ud83d\ude00", "model": "m"}),
    "detokenize": (DETOKENIZE, {"tokens": [97, 195, 169, 259]}),
    "detokenize_wrong": (DETOKENIZE, {"tokens": [260, -1, 1.5, "a"]}),
}


def main():
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
