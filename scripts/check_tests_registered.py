#!/usr/bin/env python3
"""Checks that every test file on disk is a ctest of the build folder: tests/**/*_test.{cc,py,sh} and the examples. Files of a
component that the build folder left out (torch) are named, not failed."""
import argparse
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def registered_names(ctest, build):
    """Names without the build's prefix ("asan/")."""
    done = subprocess.run([ctest, "--test-dir", build, "--show-only=json-v1"], capture_output=True, text=True, check=True)
    return {test["name"].rsplit("/", 1)[-1] for test in json.loads(done.stdout)["tests"]}


def name_of(path):
    """As tests/CMakeLists.txt makes it."""
    return re.sub(r"[^A-Za-z0-9]", "_", str(path.with_suffix("")))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ctest", default="ctest")
    parser.add_argument("build")
    arguments = parser.parse_args()
    names = registered_names(arguments.ctest, arguments.build)
    cache = (pathlib.Path(arguments.build) / "CMakeCache.txt").read_text(encoding="utf-8")
    with_torch = "KPD_WITH_TORCH:BOOL=ON" in cache

    missing, left_out = [], []
    files = sorted(p for p in (ROOT / "tests").rglob("*_test.*") if p.suffix in {".cc", ".py", ".sh"})
    for path in files:
        relative = path.relative_to(ROOT / "tests")
        if name_of(relative) not in names:
            (left_out if relative.parts[0] == "train" and not with_torch else missing).append(f"tests/{relative}")
    examples = [p for p in sorted((ROOT / "examples").glob("*")) if p.suffix in {".cc", ".c"}]
    missing += [str(p.relative_to(ROOT)) for p in examples if f"example_{p.stem}" not in names]

    if left_out:
        print("not in this build (no torch): " + ", ".join(left_out))
    for path in missing:
        print(f"{path} is on disk, but no test of {arguments.build} runs it")
    if not missing:
        print(f"{len(files) + len(examples) - len(left_out)} test files and examples are registered")
    return 1 if missing or not files else 0


if __name__ == "__main__":
    sys.exit(main())
