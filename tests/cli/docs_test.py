#!/usr/bin/env python3
"""What README.md and the guides show is run: shell blocks from top to bottom in an empty folder, C++ and C compiled against the
built library and run; so are the examples that every `kpd COMMAND --help` ends with. docs_blocks.py says how a page marks what is
not run. A command that needs MPI or training is left out where that is missing, and said to be; what needs the 100 MB model of
scripts/get_smollm2.sh is run by model_smollm2_docs_test.py.
"""
import functools
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.request

import docs_blocks
from run_cli_tests import HERE, Skip, run_cases
from task_items import HELLASWAG, LAMBADA, PIQA

ROOT = HERE.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
MODEL = ROOT / "build" / "models" / "smollm2.gguf"
TINY_MODEL = HERE.parent / "golden" / "models" / "chat" / "model.gguf"
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-variable", "-Wno-unused-but-set-variable", "-Wno-unused-parameter"]
SERVER_SECONDS = 300  # a server that is not up by then is a failure, not a slow one


# ---- what this build can do ----

def build_folder(t):
    return pathlib.Path(t.program).resolve().parent.parent


def cached(t, name):
    """A value of the build's CMakeCache.txt."""
    match = re.search(rf"^{name}:\w+=(.*)$", (build_folder(t) / "CMakeCache.txt").read_text(), re.MULTILINE)
    return match.group(1) if match else ""


def missing(t, command):
    """Why this build or machine cannot run a command; empty if it can."""
    if "build/models/" in command and not t.path("build").exists():
        return "it is in model_smollm2_docs_test.py"
    if ("kpd federate" in command or "--comm gloo" in command) and not (pathlib.Path(t.program).parent / "kpd-train").exists():
        return "this build has no training"
    if "mpirun" in command and not (pathlib.Path(t.program).parent / "kpd-mpi").exists():
        return "this build has no MPI"
    if re.search(r"\bcurl\b", command) and shutil.which("curl") is None:
        return "no curl"
    return ""


# ---- shell ----

def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_until_up(port, process, log):
    deadline = time.monotonic() + SERVER_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the server ended with {process.returncode}: {log.read_text()}"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as reply:
                if reply.status == 200:
                    return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(f"no server on port {port} within {SERVER_SECONDS} s")


class Shell:
    """Runs commands one after the other in the case's folder, a server among them in the background until stop()."""

    def __init__(self, t):
        self.t = t
        self.environment = dict(os.environ, PATH=f"{pathlib.Path(t.program).parent}:{os.environ['PATH']}",
                                OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        self.server = None

    def run(self, where, command):
        if re.search(r"^\s*kpd serve\b", command):
            return self.start(where, command)
        if self.server is not None:
            command = command.replace(":8080", f":{self.port}")
        done = subprocess.run(["bash", "-e", "-c", command], cwd=self.t.folder, env=self.environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, errors="replace", timeout=600)
        assert done.returncode == 0, f"{where}: {command}\n  exit {done.returncode}\n  out: {done.stdout}\n  err: {done.stderr}"
        return done

    def start(self, where, command):
        self.stop()
        self.port = free_port()
        command = re.sub(r"--port \d+", "", re.sub(r"\s#.*", "", command)).rstrip() + f" --port {self.port}"
        log = self.t.path("server.log")
        with log.open("w") as sink:
            self.server = subprocess.Popen(["bash", "-c", f"exec {command.strip()}"], cwd=self.t.folder, env=self.environment,
                                           stdin=subprocess.DEVNULL, stdout=sink, stderr=sink)
        try:
            wait_until_up(self.port, self.server, log)
        except AssertionError as error:
            raise AssertionError(f"{where}: {command}: {error}") from None

    def stop(self):
        if self.server is None:
            return
        self.server.send_signal(signal.SIGTERM)
        code = self.server.wait(timeout=SERVER_SECONDS)
        self.server = None
        assert code == 0, f"the server ended with {code}"


def give_inputs(t):
    """What examples take for the user's own files."""
    text = (ROOT / "docs" / "methods" / "eden.md").read_text()
    for name, size in (("wiki.test.txt", 12000), ("wiki.txt", 12000), ("book.txt", 8000), ("story.txt", 400)):
        t.path(name).write_text(text[:size])
    for name in ("MODEL.gguf", "a.gguf", "b.gguf"):
        t.path(name).symlink_to(TINY_MODEL)
    t.path("folder").symlink_to(TINY_MODEL.parent)
    t.path("hellaswag_val_full.txt").write_text(HELLASWAG)
    for name, items in (("piqa-valid.jsonl", PIQA), ("lambada_test.jsonl", LAMBADA)):
        t.path(name).write_text("".join(json.dumps(item) + "\n" for item in items))
    t.path("piqa-valid-labels.lst").write_text("0\n1\n")


def run_commands(t, commands):
    """(where, command) in their order; says what is left out. Returns how many ran."""
    shell, n = Shell(t), 0
    try:
        for where, command in commands:
            if reason := missing(t, command):
                print(f"     left out: {where}: {reason}")
                continue
            shell.run(where, command)
            n += 1
        shell.stop()
    finally:
        if shell.server is not None:
            shell.server.kill()
            shell.server.wait()
    return n


def shell_blocks(page):
    return [block for block in blocks(page) if block.language == "sh"]


def uses_model(block):
    return "build/models/" in block.text


def commands(page, chosen):
    return [(f"{page.relative_to(ROOT)}:{line}", command) for block in chosen for line, command in docs_blocks.commands_of(block)]


def shell_case(page, t):
    give_inputs(t)
    # A block with a server on the model is left whole: its other lines speak to that server.
    chosen = [block for block in shell_blocks(page) if not (uses_model(block) and "kpd serve " in block.text)]
    if not run_commands(t, commands(page, chosen)):
        raise Skip("none of its commands can run here")


def model_case(page, t):
    if not MODEL.exists():
        raise Skip(f"no {MODEL.relative_to(ROOT)} (scripts/get_smollm2.sh)")
    give_inputs(t)
    (t.path("build") / "models").mkdir(parents=True)
    (t.path("build") / "models" / MODEL.name).symlink_to(MODEL)
    run_commands(t, commands(page, [block for block in shell_blocks(page) if uses_model(block)]))


# ---- C++ and C ----

def compile_and_run(t, page, language, source, name):
    path = t.path(f"{name}.{'cc' if language == 'cpp' else 'c'}")
    path.write_text(source)
    build = build_folder(t)
    sanitize = cached(t, "KPD_SANITIZE")
    flags = [f"-fsanitize={sanitize}"] if sanitize else []
    libraries = [str(build / f"libkpd_{part}.a") for part in ("llm", "io", "core")]
    libraries = [library for library in libraries if os.path.exists(library)]
    compiler = cached(t, "CMAKE_CXX_COMPILER")
    own = [cached(t, "CMAKE_C_COMPILER"), "-std=c99"] if language == "c" else [compiler, "-std=c++20"]
    commands = [[*own, *WARNINGS, *flags, f"-I{ROOT / 'include'}", "-c", path, "-o", f"{path}.o"],
                [compiler, *flags, f"{path}.o", "-Wl,--start-group", *libraries, "-Wl,--end-group", "-lhwy", "-lz", "-lpcre2-8",
                 "-pthread", "-lm", "-o", f"{path}.out"],
                [f"{path}.out"]]
    for command in commands:
        done = subprocess.run(command, cwd=t.folder, capture_output=True, text=True, errors="replace", timeout=300)
        assert done.returncode == 0, f"{page.relative_to(ROOT)}: {pathlib.Path(command[0]).name}\n{done.stdout}{done.stderr}"


def is_example(block):
    """A whole program of examples/, but for its first comment: ctest builds and runs it there."""
    code = block.text.partition("#include")[2]
    return any(code == path.read_text().partition("#include")[2] for path in (ROOT / "examples").iterdir() if path.is_file())


def program_case(page, language, t):
    mine = [block for block in blocks(page) if block.language == language]
    for i, block in enumerate(block for block in mine if docs_blocks.is_program(block)):
        if not is_example(block):
            compile_and_run(t, page, language, f'#line {block.line} "{page.name}"\n{block.text}', f"program{i}")
    source = docs_blocks.program_of(mine, language, page.name)
    if source is not None:
        compile_and_run(t, page, language, source, "page")


# ---- help ----

def examples_of(t, command):
    text = t.run(command, "--help").stdout
    return [line.strip() for line in text.rpartition("Example:\n")[2].splitlines() if line.strip()]


def case_examples_of_help(t):
    give_inputs(t)
    names = re.findall(r"^  (\w+)  ", t.run("--help", out="Commands:").stdout.partition("Commands:")[2].partition("Options:")[0], re.M)
    assert len(names) > 8 and "mean" in names, names
    folder = t.folder
    for name in names:
        examples = examples_of(t, name)
        assert examples and all(line.startswith("kpd ") for line in examples), f"kpd {name} --help ends with {examples}"
        t.folder = os.path.join(folder, name)
        os.mkdir(t.folder)
        give_inputs(t)
        run_commands(t, [(f"kpd {name} --help", line) for line in examples])
    t.folder = folder
    run_commands(t, [("kpd --help", line) for line in examples_of(t, "--help")])


# ---- one case for each page and language ----

@functools.cache
def all_blocks(page):
    try:
        return docs_blocks.blocks_of(page.read_text(encoding="utf-8"))
    except docs_blocks.PageError as error:
        raise AssertionError(f"{page.relative_to(ROOT)}: {error}") from None


def blocks(page):
    return [block for block in all_blocks(page) if not block.skip and not block.needs]


def case_pages_are_marked_as_they_must(t):
    n = 0
    for page in PAGES:
        for block in all_blocks(page):
            n += 1
            if block.skip or block.needs:
                print(f"     not run: {page.relative_to(ROOT)}:{block.line}: {block.skip or 'needs ' + block.needs}")
    assert n >= 20, f"only {n} blocks were found"


def name_of(page):
    return re.sub(r"\W", "_", str(page.relative_to(ROOT).with_suffix("")))


def add_cases():
    for page in PAGES:
        name, text = name_of(page), page.read_text(encoding="utf-8")
        if "```sh" in text:
            globals()[f"case_shell_of_{name}"] = functools.partial(shell_case, page)
        for language in ("cpp", "c"):
            if f"```{language}\n" in text:
                globals()[f"case_{language}_of_{name}"] = functools.partial(program_case, page, language)


add_cases()
if __name__ == "__main__":
    run_cases(globals())
