#!/usr/bin/env python3
"""Checks that every public header compiles alone and may be included twice; one with extern "C" also compiles as C99; and that the
headers that ARCHITECTURE.md calls stable are there and named by it."""
import argparse
import concurrent.futures
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The stable face of each pillar, and the C interface.
STABLE = ("kpd/gradient/gradient.h", "kpd/gradient/kpd_gradient.h", "kpd/llm/llm.h")
WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Werror", "-fsyntax-only", f"-I{ROOT / 'include'}"]


def compile_alone(compiler, language, standard, header):
    line = f'#include "{header.relative_to(ROOT / "include")}"\n' * 2
    command = [compiler, "-x", language, f"-std={standard}", *WARNINGS, "-"]
    done = subprocess.run(command, input=line, capture_output=True, text=True)
    return None if done.returncode == 0 else f"{header.relative_to(ROOT)} as {standard}:\n{done.stderr}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cxx", default="c++")
    parser.add_argument("--cc", default="cc")
    arguments = parser.parse_args()
    headers = sorted((ROOT / "include").rglob("*.h"))
    architecture = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    problems = [f"{name}: stable, but not there" for name in STABLE if not (ROOT / "include" / name).is_file()]
    problems += [f"{name}: stable, but ARCHITECTURE.md does not say so" for name in STABLE if f"`{name}`" not in architecture]
    jobs = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for header in headers:
            text = header.read_text(encoding="utf-8")
            jobs.append(pool.submit(compile_alone, arguments.cxx, "c++", "c++20", header))
            if 'extern "C"' in text:
                jobs.append(pool.submit(compile_alone, arguments.cc, "c", "c99", header))
    problems += [p for p in (job.result() for job in jobs) if p]
    print("\n".join(problems) or f"{len(headers)} public headers compile alone ({len(jobs)} compilations)")
    return 1 if problems or not headers else 0


if __name__ == "__main__":
    sys.exit(main())
