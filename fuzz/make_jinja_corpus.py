#!/usr/bin/env python3
"""Writes seeds for jinja_fuzz into fuzz/corpus/jinja: the templates of tests/golden/chat, and its constructs, twelve a file."""
import json
import os
import shutil

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GOLDEN = os.path.join(ROOT, "tests/golden/chat")
OUT = os.path.join(ROOT, "fuzz/corpus/jinja")


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    os.makedirs(OUT)
    for name in ("chatml", "gemma3", "llama2", "llama3_1", "mistral_v03", "qwen3"):
        shutil.copyfile(os.path.join(GOLDEN, name + ".jinja"), os.path.join(OUT, name))
    with open(os.path.join(GOLDEN, "constructs.json"), encoding="utf-8") as file:
        cases = json.load(file)["cases"]
    whole = [case["template"] for case in cases if case["text"] is not None]
    broken = [case["template"] for case in cases if case["text"] is None]
    for i in range(0, len(whole), 12):
        with open(os.path.join(OUT, f"constructs{i:03}"), "w", encoding="utf-8", newline="") as file:
            file.write("\n".join(whole[i:i + 12]))
    for i, template in enumerate(broken[::4]):
        with open(os.path.join(OUT, f"broken{i:02}"), "w", encoding="utf-8", newline="") as file:
            file.write(template)


if __name__ == "__main__":
    main()
