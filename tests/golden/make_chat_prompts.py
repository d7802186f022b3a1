#!/usr/bin/env python3
"""Renders the chat templates in tests/golden/chat/*.jinja, each in the style of its family's published one, as transformers'
apply_chat_template does, and records the prompts for tests/llm/chat_test.cc.

    python3 tests/golden/make_chat_prompts.py [--smollm2 FILE.gguf]

writes tests/golden/chat/expected.txt: records `TEMPLATE CONVERSATION BYTES`, a line feed, the prompt and a line feed; `error` in
place of BYTES where the template refuses. With --smollm2, smollm2.jinja is taken from that model first.
"""
import argparse
import os

from jinja2.exceptions import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "chat")
BOS, EOS = "<bos-token>", "<eos-token>"
SYSTEM = ("system", " Answer briefly.\n")
CONVERSATIONS = {
    "question": [("user", "What is 2 + 2?")],
    "spaces": [("user", "  two\nlines \n")],
    "system": [SYSTEM, ("user", "Hi")],
    "turns": [("user", "Hi"), ("assistant", " Hello! "), ("user", "Bye")],
    "all": [SYSTEM, ("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d\n"), ("user", "e")],
    "thought": [("user", "a"), ("assistant", "<think>\nhm\n</think>\n\nb"), ("user", "c")],
    "unfinished": [("user", "a"), ("assistant", "b")],
    "two_users": [("user", "a"), ("user", "b")],
}


def refuse(text):
    raise TemplateError(text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--smollm2")
    args = parser.parse_args()
    if args.smollm2:
        import gguf
        field = gguf.GGUFReader(args.smollm2).fields["tokenizer.chat_template"]
        with open(os.path.join(OUT, "smollm2.jinja"), "w", encoding="utf-8") as f:
            f.write(field.contents())
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.globals["raise_exception"] = refuse
    with open(os.path.join(OUT, "expected.txt"), "wb") as out:
        for file in sorted(os.listdir(OUT)):
            name, kind = os.path.splitext(file)
            if kind != ".jinja":
                continue
            with open(os.path.join(OUT, file), encoding="utf-8", newline="") as f:
                template = environment.from_string(f.read())
            for conversation, turns in CONVERSATIONS.items():
                messages = [{"role": role, "content": content} for role, content in turns]
                try:
                    prompt = template.render(messages=messages, tools=None, documents=None, add_generation_prompt=True,
                                             bos_token=BOS, eos_token=EOS).encode("utf-8")
                    out.write(f"{name} {conversation} {len(prompt)}\n".encode() + prompt + b"\n")
                except TemplateError:
                    out.write(f"{name} {conversation} error\n".encode())


if __name__ == "__main__":
    main()
