#!/usr/bin/env python3
"""Renders chat templates with transformers' own set-up of Jinja and records what it gives, for tests/text/jinja_test.cc and
tests/text/chat_test.cc.

    python3 tests/golden/make_chat_prompts.py [--public FOLDER]

writes into tests/golden/chat, from the *.jinja files there (each in the style of its family's published one):

conversations.json  the conversations, each rendered with and without a generation prompt and with enable_thinking absent, true, false
expected.txt        a line a template, then a line a conversation: its name and the start of the SHA-256 of its six renderings, each
                    behind its length in bytes and a colon; '-' in place of one that is refused
constructs.json     small templates, one construct each, and their texts; null where Jinja fails

With --public, public.txt: the same as expected.txt of the published templates in that folder, which are not ours to keep here.
"""
import argparse
import datetime
import glob
import hashlib
import json
import os

import jinja2
import transformers.utils.chat_template_utils as chat_templates

from chat_constructs import CONSTRUCTS, VARIABLES
from chat_conversations import CONVERSATIONS

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "chat")
NOW = (2026, 12, 1, 9, 5, 7)
TOKENS = {"bos_token": "<bos-token>", "eos_token": "<eos-token>"}


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(*NOW)


def render_variants(source, messages):
    texts = []
    for add_generation_prompt in (True, False):
        for thinking in (None, True, False):
            kwargs = dict(TOKENS) if thinking is None else dict(TOKENS, enable_thinking=thinking)
            try:
                rendered, _ = chat_templates.render_jinja_template(
                    conversations=[messages], chat_template=source, add_generation_prompt=add_generation_prompt, **kwargs)
                text = rendered[0].encode()
                texts.append(str(len(text)).encode() + b":" + text)
            except (jinja2.exceptions.TemplateError, TypeError, ValueError, AttributeError, ZeroDivisionError, RecursionError):
                texts.append(b"-")
    return texts


def digests(folder):
    lines = []
    for path in sorted(glob.glob(os.path.join(folder, "*.jinja"))):
        with open(path, encoding="utf-8", newline="") as file:
            source = file.read()
        lines.append(os.path.basename(path))
        for name, messages in CONVERSATIONS.items():
            texts = render_variants(source, messages)
            refused = all(text == b"-" for text in texts)
            lines.append(f" {name} " + ("refused" if refused else hashlib.sha256(b"".join(texts)).hexdigest()[:12]))
    return "\n".join(lines) + "\n"


def constructs():
    cases = []
    for template in CONSTRUCTS:
        try:
            text = chat_templates._compile_jinja_template(template).render(**VARIABLES)
            text.encode()
        except Exception:  # what Python raises here is any of its own errors
            text = None
        cases.append({"template": template, "text": text})
    return {"variables": VARIABLES, "cases": cases}


def dump(value, file):
    with open(os.path.join(OUT, file), "w", encoding="utf-8") as out:
        json.dump(value, out, indent=1, ensure_ascii=True)
        out.write("\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--public")
    args = parser.parse_args()
    chat_templates.datetime = FixedTime
    dump(CONVERSATIONS, "conversations.json")
    dump(constructs(), "constructs.json")
    with open(os.path.join(OUT, "expected.txt"), "w", encoding="utf-8") as out:
        out.write(digests(OUT))
    if args.public:
        with open(os.path.join(OUT, "public.txt"), "w", encoding="utf-8") as out:
            out.write(digests(args.public))


if __name__ == "__main__":
    main()
