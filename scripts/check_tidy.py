#!/usr/bin/env python3
"""clang-tidy-14 with the short list of .clang-tidy over src/: check_tidy.py BUILD [FOLDER or FILE...]

Without files it reads those of src that include no JSON header (./check does so), with "json" those that do, which take two to three times as long, and tools
(./check --all). Left out: src/train and what else includes torch (a minute a file, all of it in torch's headers), the tests and the fuzzers.

Most of the time goes into the declarations of the standard library, which every check visits. So files of one folder and one command are read several at a
time, as one source that includes them; those that cannot stand together (two helpers of one name) are read one by one.
"""
import concurrent.futures
import itertools
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
JSON_HEADER = re.compile(r'#include [<"](nlohmann/|io/json(_events)?\.h)')
# Each region of Highway's targets begins the file again, so such a file stands alone.
ALONE = re.compile(r"#include <hwy/foreach_target|#include \"base/foreach_variant|^#define ", re.M)
GROUP = 5
# GCC's own warning flags are unknown to clang. Of Highway's targets one is read: the source is the same for all.
TIDY = ["clang-tidy-14", "--quiet", "--warnings-as-errors=*", "--extra-arg=-Wno-unknown-warning-option", "--extra-arg=-DHWY_COMPILE_ONLY_STATIC"]


def wanted(arguments):
    sources = lambda *folders: sorted(f for folder in folders for f in ([ROOT / folder] if folder.endswith(".cc") else (ROOT / folder).rglob("*.cc")))
    with_json = lambda f: JSON_HEADER.search(f.read_text()) is not None
    if not arguments:
        files = [f for f in sources("src") if not with_json(f)]
    elif arguments == ["json"]:
        files = sources("tools") + [f for f in sources("src") if with_json(f)]
    else:
        files = sources(*arguments)
    return [f for f in files if ROOT / "src/train" not in f.parents and "#include <torch/" not in f.read_text()]


def flags_of(entry):
    """The command without its source and outputs, and without GCC's precompiled header, which clang cannot read."""
    words = shlex.split(entry["command"])
    kept, skip = [], 0
    for i, word in enumerate(words):
        if skip:
            skip -= 1
        elif word in ("-o", "-MF", "-MT", "-c") or (word == "-include" and words[i + 1].endswith("cmake_pch.hxx")):
            skip = 1
        elif word not in ("-MD", "-Winvalid-pch"):
            kept.append(word)
    return kept


def tidy(sources, flags, folder):
    """The output of clang-tidy for one source, or for several as one; None if they cannot stand together."""
    if len(sources) == 1:
        source = sources[0]
    else:
        source = folder / f"{sources[0].stem}_{abs(hash(tuple(sources)))}.cc"
        source.write_text("".join(f'#include "{s}"\n' for s in sources))
    compiler = flags[1:]
    run = subprocess.run([*TIDY, str(source), "--", *compiler], cwd=ROOT, capture_output=True, text=True)
    if run.returncode == 0:
        return ""
    return None if len(sources) > 1 else run.stdout + run.stderr


def check(sources, flags, folder):
    """One by one whatever a group finds, so that what is shown does not depend on the grouping."""
    if len(sources) > 1 and tidy(sources, flags, folder) == "":
        return ""
    return "".join(tidy([source], flags, folder) for source in sources)


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: check_tidy.py BUILD [json | FOLDER or FILE...]")
    if shutil.which(TIDY[0]) is None:
        sys.exit(f"{TIDY[0]} is not installed")
    # Only files that the build compiles have a command there.
    commands = {pathlib.Path(e["file"]): e for e in json.loads((pathlib.Path(sys.argv[1]) / "compile_commands.json").read_text())}
    files = [f for f in wanted(sys.argv[2:]) if f in commands]
    if not files:
        sys.exit(f"no file of src or tools is in {sys.argv[1]}/compile_commands.json")
    key = lambda f: (str(f) if ALONE.search(f.read_text()) else str(f.parent), flags_of(commands[f]))
    groups = []
    for (_, flags), same in itertools.groupby(sorted(files, key=lambda f: (key(f), f)), key=key):
        for some in iter(lambda it=same: list(itertools.islice(it, GROUP)), []):
            groups.append((some, flags))
    groups.sort(key=lambda g: -len(g[0]))
    failed = 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(int(os.environ.get("KPD_JOBS") or os.cpu_count())) as pool:
        for output in pool.map(lambda g: check(*g, pathlib.Path(folder)), groups):
            failed += output != ""
            print(output, end="", flush=True)
    print(f"{len(files)} files, {len(groups)} runs, {failed} with findings")
    sys.exit(1 if failed else 0)


main()
