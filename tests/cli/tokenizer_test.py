#!/usr/bin/env python3
"""What the program says of a GGUF file whose tokenizer lacks a key, and how it reads prompts of every editor."""
import json
import pathlib

from run_cli_tests import run_cases

GGUF = pathlib.Path(__file__).resolve().parent.parent / "golden" / "models" / "chat" / "model.gguf"
NOTE = "tokenizer.ggml.pre is missing; texts are cut into words as GPT-2's, which may not be this model's way"


def without_pre_tokenizer(t, architecture=b"llama"):
    """The golden model without the key: under another name of the same length nothing finds it."""
    data = GGUF.read_bytes()
    assert b"tokenizer.ggml.pre" in data
    t.path("m.gguf").write_bytes(data.replace(b"tokenizer.ggml.pre", b"tokenizer.ggml.prx").replace(b"llama", architecture))


def case_a_missing_key_is_said_once(t):
    without_pre_tokenizer(t)
    assert t.run("inspect", "m.gguf").stdout.count(f"note: {NOTE}\n") == 1
    assert json.loads(t.run("inspect", "m.gguf", "--json").stdout)["tokenizer"]["notes"] == [NOTE]
    t.path("text").write_text("Permission is hereby granted. " * 40)
    for args in (["generate", "m.gguf", "--prompt", "Hi", "--max-tokens", "3", "--temperature", "0"],
                 ["eval", "m.gguf", "--text", "text", "--ctx", "64", "--windows", "1"]):
        done = t.run(*args)
        assert done.stderr.count(f"note: m.gguf: {NOTE}\n") == 1, done.stderr
        assert "note:" not in done.stdout, done.stdout


def case_a_whole_file_has_no_notes(t):
    assert "note:" not in t.run("inspect", GGUF).stdout
    assert json.loads(t.run("inspect", GGUF, "--json").stdout)["tokenizer"]["notes"] == []


def case_a_default_that_is_known_to_be_wrong_is_refused(t):
    without_pre_tokenizer(t, b"qwen2")
    t.run("inspect", "m.gguf", exit=3, err=r"m\.gguf: tokenizer\.ggml\.pre is missing, expected 'qwen2', as files of 'qwen2' have it")


def case_prompts_are_the_same_from_every_editor(t):
    answers = set()
    for text in (b"THE SOFTWARE IS\nPROVIDED", b"THE SOFTWARE IS\r\nPROVIDED\r\n", b"\xef\xbb\xbfTHE SOFTWARE IS\nPROVIDED\n"):
        t.path("prompt").write_bytes(text)
        answer = json.loads(t.run("generate", GGUF, "--prompt-file", "prompt", "--max-tokens", "8", "--temperature", "0", "--json").stdout)
        answers.add((answer["prompt_tokens"], answer["text"]))
    assert len(answers) == 1, answers


if __name__ == "__main__":
    run_cases(globals())
