#!/usr/bin/env python3
"""Help, version, and command lines that make no sense (exit 2): each names the option and, for a typo, the nearest one."""
import pathlib
import re
import shutil
import subprocess

from inputs import numbers, write_npy
from run_cli_tests import Skip, run_cases

VERBS = ("encode", "decode", "inspect", "mean", "codecs", "federate", "eval", "generate", "bench",
         "plan", "export", "serve")
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def case_version(t):
    text = t.run("--version", out=r"^kpd \d+\.\d+\.\d+\ninstruction sets of this machine, best first: [^\n]+\n$").stdout
    isas = text.split(": ")[1].strip().split(", ")
    assert isas[-1] == "scalar", text
    for isa in isas:  # each is a name for KPD_ISA
        t.run("codecs", env={"KPD_ISA": isa})
    wrong = t.run("codecs", exit=2, env={"KPD_ISA": "avx9+vnni"}).stderr
    assert ", ".join(isas) in wrong, wrong


def case_help_lists_every_command(t):
    text = t.run("--help").stdout
    for verb in VERBS:
        assert re.search(rf"^  {verb} +\S", text, re.M), verb


def case_help_by_its_other_names(t):
    help_text = t.run("--help").stdout
    for args in (["-h"], ["help"], ["help", "help"], ["-h", "-h"]):
        assert t.run(*args).stdout == help_text, args
    assert t.run("help", "encode").stdout == t.run("encode", "-h").stdout == t.run("encode", "--help").stdout
    assert t.run("-V").stdout == t.run("--version").stdout


def case_help_of_every_command_goes_to_stdout(t):
    for verb in VERBS:
        done = t.run(verb, "--help", out=r"Example:\n  kpd ")
        assert done.stderr == "", done.stderr


def case_help_examples_run(t):
    skipped = []
    for verb in ("",) + VERBS:
        text = t.run(*filter(None, [verb]), "--help").stdout
        lines = text[text.rindex("Example:"):].splitlines()[1:]
        commands = [line.strip() for line in lines if line.strip()]
        assert commands and all(c.startswith("kpd ") for c in commands), commands
        if verb in ("federate", "serve"):
            skipped.append(verb)  # trains for minutes, serves until it is stopped; tests of their own run them
            continue
        folder = t.path(f"of {verb}")  # an example is there to be pasted, and replaces no file
        folder.mkdir()
        shutil.copy(ROOT / "tests/golden/models/chat/model.gguf", folder / "MODEL.gguf")
        shutil.copy(ROOT / "LICENSE", folder / "wiki.txt")
        for command in commands:
            done = subprocess.run(command.replace("kpd ", f"'{t.program}' ", 1), shell=True, cwd=folder, text=True,
                                  capture_output=True, timeout=120)
            assert done.returncode == 0, f"{command}: exit {done.returncode}: {done.stderr}"


def case_federate_without_torch_says_how_to_get_it(t):
    if "not in this build" not in t.run("--help").stdout:
        raise Skip("this build has the train component")
    t.run("federate", "--task", "fashion-cnn", "--codec", "eden:bits=1", "--rounds", "1", exit=1, err="KPD_WITH_TORCH")


# (command line, what stderr must say)
USAGE = [
    ("", r"command is missing"),
    ("encod a b", r"unknown command encod; did you mean 'encode'\?"),
    ("xyzzy", r"unknown command xyzzy"),
    ("--verison", r"did you mean '--version'\?"),
    ("encode in.npy", r"OUT.*required"),
    ("encode", r"IN.*required"),
    ("encode in.npy out.kpdg --codec eden:bits=1 --codec eden:bits=2", r"--codec eden:bits=1 and --codec eden:bits=2: give one"),
    ("encode in.npy out.kpdg --codec *norm*=flaot32", r"--codec: .*did you mean 'float32'\?"),
    ("encode in.npy out.kpdg --codec =float32", r"--codec: .*the pattern is empty"),
    ("encode in.npy out.kpdg --cdoec eden:bits=1", r"unknown option --cdoec; did you mean '--codec'\?"),
    ("encode in.npy out.kpdg --codec", r"--codec"),
    ("encode in.npy out.kpdg extra --codec eden:bits=1", r"extra"),
    ("encode in.npy out.kpdg --codec edne:bits=1", r"did you mean 'eden'\?"),
    ("encode in.npy out.kpdg --codec eden:bist=1", r"did you mean 'bits'\?"),
    ("encode in.npy out.kpdg --codec eden:bits=99", r"bits"),
    ("encode in.npy out.kpdg --codec eden:bits=1,bits=2", r"bits"),
    ("encode in.npy out.kpdg --codec eden:bits=x", r"--codec"),
    ("encode in.npy out.kpdg --codec eden:", r"--codec"),
    ("encode in.npy out.kpdg --codec :", r"--codec"),
    ("encode in.npy out.kpdg --codec eden:bits=1 --seed x", r"--seed x: expected a whole number"),
    ("encode in.npy out.kpdg --codec eden:bits=1 --seed 18446744073709551616", r"--seed"),
    ("encode in.npy out.kpdg --codec eden:bits=1 --threads 0", r"--threads 0: expected a whole number from 1"),
    ("encode in.npy out.kpdg --codec eden:bits=1 --nonfinite drop", r"refuse, zero or pass"),
    ("encode in.npy out.kpdg --codec eden:bits=1 --nonfinite zer", r"did you mean 'zero'\?"),
    ("encode in.txt out.kpdg --codec eden:bits=1", r"in\.txt.*\.npy, \.safetensors or \.f32"),
    ("encode in.npy out.kpdg --codec eden:bits=1 -j", r"unknown option -j"),
    ("decode in.kpdg", r"OUT.*required"),
    ("decode in.kpdg out.bin", r"out\.bin.*\.npy, \.safetensors or \.f32"),
    ("decode in.kpdg out.npy --codec eden:bits=1", r"unknown option --codec"),
    ("inspect", r"FILE.*required"),
    ("inspect a b", r"b"),
    ("codecs --jsno", r"did you mean '--json'\?"),
    ("codecs edne", r"did you mean 'eden'\?"),
    ("codecs --format cvs", r"did you mean 'csv'\?"),
    ("mean --codec eden:bits=1", r"FILE\.\.\. or --synthetic"),
    ("mean in.npy --format cvs", r"--format cvs: expected text, csv or markdown; did you mean 'csv'\?$"),
    ("mean in.npy --format markdwon", r"--format markdwon: expected text, csv or markdown; did you mean 'markdown'\?"),
    ("mean in.npy --format html", r"--format html: expected text, csv or markdown$"),
    ("mean in.npy --format csv --json", r"--format csv and --json"),
    ("mean in.npy --codec *=float32 --loss .1", r"--loss: packets carry one codec"),
    ("mean in.npy --codec *=float32 --comm inprocess", r"--codec \*=SPEC does not belong to --comm"),
    ("mean in.npy --synthetic normal --codec eden:bits=1", r"--synthetic"),
    ("mean in.npy --dim 10 --codec eden:bits=1", r"--dim belongs to --synthetic"),
    ("mean in.npy --clients 10 --codec eden:bits=1", r"--clients belongs to --synthetic"),
    ("mean in.npy --weights 1,2 --codec eden:bits=1", r"2 weights for 1 client"),
    ("mean in.npy --weights 0 --codec eden:bits=1", r"all are 0"),
    ("mean in.npy --weights=-1 --codec eden:bits=1", r"--weights -1: expected a number"),
    ("mean in.npy --codec eden:bits=1 --codec eden:bits=2 --out m.npy", r"--out.*one --codec"),
    ("mean in.npy --codec eden:bits=1 --trials 2 --out m.npy", r"--out.*--trials"),
    ("mean in.npy --codec eden:bits=1 --out m.txt", r"--out.*m\.txt"),
    ("mean --synthetic lognorml --codec eden:bits=1", r"did you mean 'lognormal'\?"),
    ("mean --synthetic sparse --codec eden:bits=1", r"sparse:K"),
    ("mean --synthetic sparse:2 --correlation .5 --codec eden:bits=1", r"--correlation"),
    ("mean --synthetic normal --correlation 2 --codec eden:bits=1", r"--correlation 2: expected a number from 0 to 1"),
    ("mean --synthetic normal --correlation nan --codec eden:bits=1", r"--correlation nan"),
    ("mean --synthetic normal --dim 0 --codec eden:bits=1", r"--dim 0"),
    ("mean --synthetic normal --dim 1e6 --codec eden:bits=1", r"--dim 1e6"),
    ("mean --synthetic normal --dim 2^64 --codec eden:bits=1", r"--dim 2\^64"),
    ("mean --synthetic normal --clients 0 --codec eden:bits=1", r"--clients 0"),
    ("mean --synthetic normal --trials 0 --codec eden:bits=1", r"--trials 0"),
    ("mean --synthetic normal --loss 1.5 --codec eden:bits=1", r"--loss 1\.5"),
    ("mean --synthetic normal --loss .1,bursts --codec eden:bits=1", r"P or P,burst"),
    ("mean --synthetic normal --loss .1 --codec float32", r"--loss: float32 is not sent in packets"),
    ("mean --synthetic normal --link 5 --codec eden:bits=1", r"--link 5"),
    ("mean --synthetic normal --repeats 9 --codec eden:bits=1", r"--repeats belongs to --speed"),
    ("mean --synthetic normal --repeats 3 --speed --codec eden:bits=1", r"--repeats 3"),
    ("mean in.npy --integers mean", r"--integers.*--out"),
    ("mean in.npy --integers last --out m.npy", r"first or mean"),
    ("mean in.npy --original in.npy", r"--original belongs to compressed files"),
    ("mean - --out -", r"-.*--as npy, safetensors or f32"),
    ("encode in.npy out.kpdg --client x", r"--client x: expected a whole number"),
    ("encode in.npy out.kpdg --as f32", r"--as f32.*in\.npy"),
    ("decode in.kpdg - --as nyp", r"did you mean 'npy'"),
    ("decode in.kpdg -", r"give --as npy, safetensors or f32"),
    ("decode in.kpdg in.npy", r"in\.npy: is there already; --force replaces it"),
    ("mean in.npy --out in2.npy", r"in2\.npy: is there already; --force replaces it"),
]


def case_wrong_command_lines(t):
    write_npy(t.path("in.npy"), numbers(100))
    write_npy(t.path("in2.npy"), numbers(100))
    for line, expected in USAGE:
        done = t.run(*line.split(), exit=2, err=expected)
        assert done.stdout == "", f"{line}: usage errors go to stderr: {done.stdout}"
    assert t.names() == ["in.npy", "in2.npy"], t.names()


def case_wrong_isa_lists_the_valid_ones(t):
    t.run("codecs", exit=2, err=r"KPD_ISA.*scalar", env={"KPD_ISA": "mmx"})
    t.run("codecs", env={"KPD_ISA": "scalar"})


def case_options_and_files_in_any_order(t):
    write_npy(t.path("in.npy"), numbers(100))
    t.run("encode", "--codec=eden:bits=1", "in.npy", "--seed", "1", "out.kpdg")
    t.run("encode", "--codec", "eden:bits=1", "--seed", "1", "--", "in.npy", "out2.kpdg")
    t.run("encode", "--codec", "eden:bits=1", "in.npy", "--seed", "1", "out3.kpdg")
    for name in ("out2.kpdg", "out3.kpdg"):
        assert t.path("out.kpdg").read_bytes() == t.path(name).read_bytes(), name
    t.run("mean", "--codec", "eden:bits=1", "in.npy", "--seed", "1")


if __name__ == "__main__":
    run_cases(globals())
