#!/usr/bin/env python3
"""Runs the program `kpd` as a user would: every exit code, wrong command lines, damaged inputs, full disks, Ctrl-C.

Usage: run_cli_tests.py PROGRAM [PATTERN]     PATTERN: run only the cases whose name contains it

Runs all of *_test.py; each of them also runs alone, which is how ctest does it. A case is a function case_NAME(t); it runs in an
empty folder of its own, fails by AssertionError and is skipped, visibly, by Skip. Only the standard library is needed.
"""
import importlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent


class Skip(Exception):
    """The machine lacks what a case needs."""


class Tester:
    """What a case gets: the program, and its own folder as the current one."""

    def __init__(self, program):
        self.program = program
        self.folder = None

    def run(self, *args, exit=0, out=None, err=None, env=None, **options):
        """Runs kpd; checks the exit code and that `out`/`err` (regular expressions) are found. Returns the finished process."""
        environment = dict(os.environ, **(env or {}))
        done = subprocess.run([self.program, *map(str, args)], capture_output=True, text=True, timeout=120, cwd=self.folder,
                              env=environment, errors="replace", **options)
        shown = f"kpd {' '.join(map(str, args))}\n  exit {done.returncode}\n  out: {done.stdout}\n  err: {done.stderr}"
        assert done.returncode == exit, f"expected exit {exit}: {shown}"
        if exit != 0:
            lines = done.stderr.strip().splitlines()
            assert lines and lines[-1].startswith("kpd"), f"expected one line on stderr: {shown}"
            assert len([line for line in lines if not line.startswith(("seed ", "sampling: "))]) == 1, f"more than one line: {shown}"
        if out is not None:
            assert re.search(out, done.stdout), f"stdout lacks {out!r}: {shown}"
        if err is not None:
            assert re.search(err, done.stderr), f"stderr lacks {err!r}: {shown}"
        return done

    def path(self, name):
        return pathlib.Path(self.folder) / name

    def names(self):
        return sorted(p.name for p in pathlib.Path(self.folder).iterdir())


def changed(args, option, value):
    """The command line with another value of an option."""
    i = args.index(option)
    return args[:i + 1] + [value] + args[i + 2:]


def run_case(tester, name, function):
    tester.folder = tempfile.mkdtemp(prefix="kpd-cli-")
    start = time.monotonic()
    try:
        function(tester)
        verdict, text = "ok", ""
    except Skip as skip:
        verdict, text = "SKIP", f": {skip}"
    except AssertionError as error:
        verdict, text = "FAIL", f": {error}\n{traceback.format_exc(limit=-1).splitlines()[1]}"
    except Exception:  # a defect of the case itself
        verdict, text = "FAIL", f": {traceback.format_exc()}"
    finally:
        shutil.rmtree(tester.folder, ignore_errors=True)
    print(f"{verdict:4} {name} ({time.monotonic() - start:.2f} s){text}", flush=True)
    return verdict


def run_cases(cases):
    """Runs the functions case_NAME of a module on the program that the command line names; ends the process."""
    if len(sys.argv) < 2 or not os.access(sys.argv[1], os.X_OK):
        sys.exit(__doc__)
    tester = Tester(os.path.abspath(sys.argv[1]))
    pattern = sys.argv[2] if len(sys.argv) > 2 else ""
    verdicts = [run_case(tester, name.removeprefix("case_"), function) for name, function in list(cases.items())
                if name.startswith("case_") and pattern in name]
    print(f"{verdicts.count('ok')} passed, {verdicts.count('FAIL')} failed, {verdicts.count('SKIP')} skipped")
    sys.exit(1 if "FAIL" in verdicts or not verdicts else 0)


def main():
    cases = {}
    for path in sorted(HERE.glob("*_test.py")):
        cases.update(vars(importlib.import_module(path.stem)))
    run_cases(cases)


if __name__ == "__main__":
    sys.modules["run_cli_tests"] = sys.modules["__main__"]  # the cases raise this module's Skip
    main()
