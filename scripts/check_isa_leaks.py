#!/usr/bin/env python3
"""Checks that no function which the linker may merge holds vector code beyond the baseline.

A template or inline function compiled inside a Highway target region could carry AVX code under a name that baseline callers share;
the linker would then give them that copy, and the program dies on an older machine. Target-specific symbols are told apart by the
N_<TARGET> namespace that HWY_NAMESPACE puts into their names. x86-64 only; elsewhere the check is skipped (exit 77).
"""
import platform
import re
import subprocess
import sys

TARGET = re.compile(r"N_(SSSE3|SSE4|AVX2|AVX3|AVX3_DL|AVX3_ZEN4|AVX3_SPR)\b|\bN_(SSSE3|SSE4|AVX2|AVX3)")
BEYOND_BASELINE = re.compile(r"%[yz]mm|\{%k[0-7]\}|\tv[a-z0-9]+ ")


def weak_functions(archive):
    lines = subprocess.run(["nm", "--demangle", archive], capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split(" ", 2)[2] for line in lines if re.match(r"[0-9a-f]+ W ", line)}


def main():
    if platform.machine() != "x86_64":
        print("skipped: not an x86-64 machine")
        return 77
    archive = sys.argv[1]
    weak = weak_functions(archive)
    disassembly = subprocess.Popen(["objdump", "-d", "--demangle", "--no-show-raw-insn", archive], stdout=subprocess.PIPE, text=True)
    current, leaks, n_weak = None, {}, 0
    for line in disassembly.stdout:
        header = re.match(r"[0-9a-f]+ <(.*)>:$", line)
        if header:
            name = header.group(1)
            current = name if name in weak and not TARGET.search(name) else None
            n_weak += current is not None
        elif current and BEYOND_BASELINE.search(line):
            leaks.setdefault(current, line.strip())
    if disassembly.wait() != 0:
        print("objdump failed")
        return 1
    for name, line in sorted(leaks.items()):
        print(f"{name}: {line}")
    print(f"{n_weak} mergeable functions, {len(leaks)} with vector code beyond the baseline")
    return 1 if leaks else 0


if __name__ == "__main__":
    sys.exit(main())
