#!/usr/bin/env python3
"""Checks what CONTRIBUTING.md says of files: none has more than 500 lines, but tables of data; each opens with a comment, or with the
include of the header of its name, which has one; a kernel has a benchmark; lines of prose in docs have less than 200 characters."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("include", "src", "tools", "tests", "bench", "fuzz", "examples", "scripts", "python")
MAX_LINES = 500
MAX_COLUMNS = 200
# Longer on purpose: tables of data, and the format page's decoder, which is one file so that it can be read beside the page.
LONG = re.compile(r"_tables\.cc$|_golden\.inc$|^tests/golden/decode_gradient\.py$")
# Pages whose lines are not looked at: decisions and archived results, kept as they were.
UNTOUCHED = re.compile(r"^docs/design/|^docs/results/archive/")


def sources(*suffixes):
    return sorted(p for name in FOLDERS for p in (ROOT / name).rglob("*") if p.suffix in suffixes and p.is_file())


def check_length(path, where, text, problems):
    lines = text.count("\n")
    if lines > MAX_LINES and not LONG.search(where):
        problems.append(f"{where}: {lines} lines, more than {MAX_LINES}: it asks to be two")


def check_opening(path, where, text, problems):
    if path.suffix in (".py", ".sh"):
        body = re.sub(r"\A#!.*\n", "", text)
        if not body.startswith(('"""', "#", 'r"""')):
            problems.append(f"{where}:1: expected a comment that says what the file is")
    elif not text.startswith(("//", "/*")):
        own = re.match(r'#include "(?:[^"]*/)?([^"/]+)\.h"', text)
        if own is None or own.group(1) != path.stem:
            problems.append(f"{where}:1: expected a comment that says what the file is, or the include of {path.stem}.h")


def check_kernels(problems):
    timed = "\n".join(p.read_text(encoding="utf-8") for p in (ROOT / "bench").glob("*.cc"))
    kernels = sorted(p.name.removesuffix("_scalar.cc") for p in (ROOT / "src" / "kernels").glob("*_scalar.cc"))
    for kernel in kernels:
        if f'"kernels/{kernel}.h"' not in timed:
            problems.append(f"src/kernels/{kernel}.cc: no bench/*.cc includes kernels/{kernel}.h: a kernel has a benchmark")
    return len(kernels)


def check_page(where, text, problems):
    """Code, tables and comments may be as wide as they must."""
    outside = True
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            outside = not outside
        elif outside and len(line) >= MAX_COLUMNS and not line.startswith(("|", "    ", "![", "<!--")):
            problems.append(f"{where}:{number}: {len(line)} characters, expected fewer than {MAX_COLUMNS}")


def main():
    problems, n_files = [], 0
    for path in sources(".cc", ".h", ".c", ".py", ".sh"):
        where, text = str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
        n_files += 1
        check_length(path, where, text, problems)
        check_opening(path, where, text, problems)
    n_kernels = check_kernels(problems)
    pages = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    for path in pages:
        where = str(path.relative_to(ROOT))
        if not UNTOUCHED.search(where):
            check_page(where, path.read_text(encoding="utf-8"), problems)
    print("\n".join(problems) or f"{n_files} files, {n_kernels} kernels and {len(pages)} pages are as CONTRIBUTING.md says")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
