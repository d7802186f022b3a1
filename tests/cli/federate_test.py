#!/usr/bin/env python3
"""kpd federate as a user runs it: JSON lines, table, updates, plot, Ctrl-C and --resume, damaged checkpoints. On small images made here."""
import csv
import io
import json
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import time

from mpi_ranks import mpirun
from run_cli_tests import Skip, changed, run_cases

EVALUATION = ["codec", "seed", "task", "round", "accuracy", "loss", "uplink_bytes", "downlink_bytes", "clients_ok", "dropped", "refused",
              "seconds"]
FINAL = ["codec", "seed", "task", "rounds", "final_accuracy", "uplink_bytes", "downlink_bytes", "float32_bytes", "ratio", "total_ratio"]
SMALL = ["--data", "images", "--clients", "4", "--examples-per-client", "10", "--clients-per-round", "2", "--batch", "10", "--seed", "7",
         "--threads", "2"]


def write_idx(path, shape, data):
    path.write_bytes(bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + data)


def make_images(t):
    """40 training and 10 test images whose class is the place of a bright row."""
    rng = random.Random(1)
    folder = t.path("images")
    folder.mkdir()
    for name, n in (("train", 40), ("t10k", 10)):
        labels = bytes(i % 10 for i in range(n))
        pixels = bytearray()
        for label in labels:
            for row in range(28):
                pixels += bytes(rng.randrange(60) + (150 if row // 2 == label else 0) for _ in range(28))
        write_idx(folder / f"{name}-images-idx3-ubyte", (n, 28, 28), bytes(pixels))
        write_idx(folder / f"{name}-labels-idx1-ubyte", (n,), labels)


def need_train(t):
    done = subprocess.run([t.program, "federate", "--help"], capture_output=True, text=True)
    if "KPD_WITH_TORCH" in done.stdout:
        raise Skip("this build has no train component")
    make_images(t)


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def without_seconds(objects):
    return [{k: v for k, v in o.items() if k != "seconds"} for o in objects]


def case_federate_prints_a_line_an_evaluation_and_one_a_codec(t):
    need_train(t)
    done = t.run("federate", *SMALL, "--codec", "float32", "--codec", "eden:bits=1", "--rounds", 2, "--json")
    objects = lines(done.stdout)
    assert len(objects) == 6, done.stdout
    for i, codec in enumerate(["float32"] * 3 + ["eden:bits=1"] * 3):
        assert objects[i]["codec"] == codec and objects[i]["seed"] == 7 and objects[i]["task"] == "fashion-cnn", objects[i]
        keys = FINAL if i % 3 == 2 else EVALUATION
        assert [k for k in keys if k not in objects[i]] == [], objects[i]
    floats, eden = objects[2], objects[5]
    assert floats["float32_bytes"] == 2 * 2 * 1199882 * 4 and floats["ratio"] < 1 < 30 < eden["ratio"], (floats, eden)
    assert abs(objects[0]["accuracy"] + objects[1]["accuracy"] - 2 * floats["final_accuracy"]) < 1e-9, objects
    assert floats["uplink_bytes"] == objects[1]["uplink_bytes"] == floats["downlink_bytes"], objects


def case_federate_table_updates_and_plot(t):
    need_train(t)
    plot = ["--plot", "accuracy.png"] if shutil.which("gnuplot") else []
    t.path("updates").mkdir()
    t.path("updates/client-000099.safetensors").write_bytes(b"of an earlier run")
    run = ["federate", *SMALL, "--codec", "eden:bits=2", "--rounds", 1, "--save-updates", "updates"]
    t.run(*run, exit=2, err="--force")
    t.run(*run, "--force", *plot, out=r"eden:bits=2\s+[01]\.\d{4}\s")
    updates = sorted(str(p) for p in t.path("updates").iterdir())
    assert len(updates) == 2 and "client-000099" not in "".join(updates), updates
    done = t.run("mean", *updates, "--codec", "eden:bits=1", "--seed", 1, "--json")
    figures = lines(done.stdout)[0]
    assert figures["dim"] == 1199882 and figures["clients"] == 2 and 0.3 < figures["vnmse"] < 0.6, figures
    if plot:
        assert t.path("accuracy.png").read_bytes().startswith(b"\x89PNG"), "no plot"
    assert [n for n in t.names() if ".part" in n] == []


def case_federate_says_what_it_does_and_what_it_wrote(t):
    need_train(t)
    plot = ["--plot", "accuracy.png"] if shutil.which("gnuplot") else []
    text = t.run("federate", *SMALL, "--codec", "float32", "--codec", "eden:bits=2", "--rounds", 2, "--save-updates", "updates", "--checkpoint", "run.ckpt",
                 *plot).stdout
    head = " ".join(text.split("\n\n")[0].split())
    for part in ("fashion-cnn: 1199882 parameters, 40 training and 10 test examples", "4 clients of 10 examples, Dirichlet alpha 0.3", "2 rounds of 2 clients",
                 "client SGD 0.1, server Adam 0.00316", "downlink float32", "seed 7, 2 threads"):
        assert part in head, (part, head)
    # A message of float32 is a little longer than its numbers.
    assert "-0.00" not in text and re.search(r"(?m)^float32 +[01]\.\d{4} +\d+\.\d\d +0\.00 ", text), text
    assert "mean after each of the last 2 rounds" in " ".join(text.split()), text
    for name in ("updates: 2 updates of round 2", "run.ckpt", *plot[1:]):
        assert f"\nwrote {name}\n" in text, (name, text)
    assert max(map(len, text.splitlines())) <= 100, text


def case_federate_as_csv_and_markdown(t):
    need_train(t)
    run = ["federate", *SMALL, "--codec", "float32", "--codec", "eden:bits=0.5,code=entropy", "--rounds", 1]
    exact = [o for o in lines(t.run(*run, "--json").stdout) if "final_accuracy" in o]
    done = t.run(*run, "--format", "csv", "--checkpoint", "run.ckpt", err=r"(?m)^wrote run\.ckpt$")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [r["codec"] for r in rows] == ["float32", "eden:bits=0.5,code=entropy"], rows
    for row, want in zip(rows, exact):
        for key in ("final_accuracy", "uplink_bytes", "downlink_bytes", "float32_bytes", "ratio", "total_ratio", "update_vnmse", "seed", "rounds", "clients_ok"):
            assert float(row[key]) == want[key], (key, row, want)
    text = t.run(*run, "--format", "markdown").stdout
    assert re.search(r"(?m)^fashion-cnn: .*\n\n\| codec \| accuracy \| up, MB .*\|\n\|---\|---:.*\n\| float32 \|.*\n\| eden:bits=0.5,code=entropy \|.*\n\naccuracy: ", text), text


def case_federate_codec_by_default_and_by_the_names_of_tensors(t):
    need_train(t)
    run = ["federate", *SMALL, "--rounds", "1", "--json"]
    floats, default = [lines(t.run(*run, *codec).stdout)[-1] for codec in (["--codec", "*=float32", "--checkpoint", "run.ckpt"], [])]
    assert default["codec"] == "eden:bits=1" and default["ratio"] > 30, default
    assert floats["codec"] == "*=float32 eden:bits=1" and floats["update_vnmse"] == 0 and .99 < floats["ratio"] < 1, floats
    resumed = lines(t.run(*changed(run, "--rounds", "2"), "--codec", "*=float32", "--checkpoint", "run.ckpt", "--resume").stdout)[-1]
    assert resumed["rounds"] == 2, resumed
    over = lines(t.run(*run, "--codec", "*=float32", "--comm", "inprocess", "--ranks", 2).stdout)[-1]
    assert over["uplink_bytes"] == floats["uplink_bytes"] and over["final_accuracy"] == floats["final_accuracy"], (over, floats)


def case_federate_runs_of_the_bench_are_not_repeated(t):
    need_train(t)
    script = [pathlib.Path(__file__).resolve().parent.parent.parent / "bench/federate_runs.sh", "out", "-", *SMALL[:-4], "--rounds", "1", "--threads", "2"]

    def runs(text):
        done = subprocess.run(list(map(str, script)), input=text, cwd=t.folder, env={**os.environ, "KPD": t.program}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return [line for line in done.stderr.splitlines() if "seed" in line], [json.loads(line)["codec"] for line in done.stdout.splitlines()]

    assert runs("7 float32\n") == (["float32, seed 7"], ["float32"])
    before = t.path("out/float32-7.jsonl").read_bytes()
    names, ended = runs("7 float32\n7 eden:bits=1,code=entropy\n")
    assert names == ["eden:bits=1,code=entropy, seed 7"] and sorted(ended) == ["eden:bits=1,code=entropy", "float32"], (names, ended)
    assert t.path("out/float32-7.jsonl").read_bytes() == before and not [n for n in os.listdir(t.path("out")) if "checkpoint" in n], os.listdir(t.path("out"))
    t.path("out/machine").write_text("another\n")
    done = subprocess.run(list(map(str, script)), input="7 bf16\n", cwd=t.folder, env={**os.environ, "KPD": t.program}, capture_output=True, text=True)
    assert done.returncode == 1 and "another machine" in done.stderr, done


def case_federate_notices_an_unwritable_folder_before_it_trains(t):
    need_train(t)
    t.path("file").write_text("no folder")
    for folder in ("file", "file/updates", "/proc/updates"):
        done = t.run("federate", *SMALL, "--codec", "float32", "--rounds", 100000, "--save-updates", folder, exit=1, err="--save-updates " + folder)
        assert done.stdout == "", done.stdout


def case_federate_plot_executes_nothing(t):
    """Gnuplot runs what stands in back-ticks between double quotes."""
    need_train(t)
    if not shutil.which("gnuplot"):
        raise Skip("no gnuplot")
    name = "a`touch canary`'\"$(touch canary).png"
    t.run("federate", *SMALL, "--codec", "float32", "--rounds", 1, "--plot", name)
    assert t.names() == sorted([name, "images"]), t.names()


def case_federate_refuses_a_second_run_with_one_checkpoint(t):
    need_train(t)
    args = ["federate", *SMALL, "--codec", "float32", "--rounds", "1000", "--checkpoint", "run.ckpt"]
    process = subprocess.Popen([t.program, *args, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=t.folder)
    try:
        deadline = time.monotonic() + 60
        while not t.path("run.ckpt.lock").exists() and time.monotonic() < deadline:
            time.sleep(.01)
        t.run(*args, exit=1, err=r"run\.ckpt: another run is writing it")
        t.run(*args, "--resume", exit=1, err=r"run\.ckpt: another run is writing it")
        process.stdout.readline()
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=100)
    assert t.names() == ["images", "run.ckpt"], t.names()


def case_federate_ctrl_c_leaves_a_checkpoint_that_continues_with_the_same_numbers(t):
    need_train(t)
    args = ["federate", *SMALL, "--codec", "eden:bits=1", "--codec", "eden:bits=2", "--rounds", "8", "--eval-every", "2", "--json"]
    straight = without_seconds(lines(t.run(*args).stdout))
    args += ["--checkpoint", "run.ckpt"]
    process = subprocess.Popen([t.program, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=t.folder)
    first = [process.stdout.readline() for _ in range(3)]
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 130, (process.returncode, err)
    assert "--resume" in err and t.names() == ["images", "run.ckpt"], (err, t.names())
    seen = without_seconds(lines("".join(first) + out))
    assert seen == straight[:len(seen)], (seen, straight)
    resumed = without_seconds(lines(t.run(*args, "--resume").stdout))
    finals = [o for o in resumed if "final_accuracy" in o]
    assert finals == [o for o in straight if "final_accuracy" in o], (finals, straight)
    assert [o for o in seen + resumed if "round" in o] == [o for o in straight if "round" in o], (seen, resumed)
    t.run(*args, "--resume", "--save-updates", "updates", exit=3, err="its updates were not kept")
    # Other options, and no seed given: it is the checkpoint's.
    t.run(*args, "--resume", "--alpha", "0.5", exit=3, err="alpha 0.3, not 0.5")
    args[args.index("--seed"):args.index("--seed") + 2] = []
    t.run(*args, "--resume")


def case_federate_refuses_damaged_checkpoints(t):
    need_train(t)
    args = ["federate", *SMALL, "--codec", "float32", "--rounds", "1", "--checkpoint", "run.ckpt"]
    t.run(*args)
    good = t.path("run.ckpt").read_bytes()
    for bad in (b"", good[:-1], good + b"x", good[:500] + bytes([good[500] ^ 1]) + good[501:], b"x" * 100):
        t.path("run.ckpt").write_bytes(bad)
        t.run(*args, "--resume", exit=3, err=r"run\.ckpt: byte \d+")
    t.path("run.ckpt").unlink()
    t.run(*args, "--resume", exit=1, err=r"run\.ckpt")


def case_federate_keeps_what_a_biased_code_lost(t):
    need_train(t)
    t.run("federate", *SMALL, "--rounds", "1", "--codec", "drive:scale=biased", "--error-feedback", "--sampling", "weighted")


def case_federate_refuses_what_cannot_train(t):
    need_train(t)
    start = ["federate", *SMALL, "--rounds", "1"]
    t.run(*start, "--codec", "eden:bits=1,scale=biased", exit=2, err="error feedback")
    t.run(*start, "--codec", "eden:bits=0.1", "--error-feedback", exit=2, err="codec: error feedback: .* would grow without end")
    for other in (["--comm", "inprocess"], ["--checkpoint", "kept"]):
        t.run(*start, "--codec", "drive:scale=biased", "--error-feedback", *other, exit=2, err="error-feedback")
    twice = ["--sampling", "weighted", "--weights", "examples"]
    t.run(*start, "--codec", "float32", *twice, exit=2, err="counts sizes twice")
    t.run(*start, "--codec", "float32", "--downlink", "eden:bits=0.1", exit=2, err="without end")
    t.run(*start, "--codec", "*=eden:bits=1,scale=biased", exit=2, err="error feedback")
    t.run(*start, "--format", "cvs", exit=2, err="did you mean 'csv'")
    t.run(*start, "--format", "csv", "--json", exit=2, err="give one of them")
    t.run(*changed(start, "--clients-per-round", "5"), "--codec", "float32", exit=2, err="clients-per-round: 5")
    t.run(*changed(start, "--examples-per-client", "11"), "--codec", "float32", exit=2, err="40 training images, enough for 3 clients of 11")
    for option, value in (("alpha", "0"), ("client-lr", "-1"), ("server-lr", "-2"), ("server-beta1", "1"), ("server-eps", "0"),
                          ("drop", "1.5"), ("clip", "-1"), ("eval-every", "0"), ("local-epochs", "0")):
        t.run(*start, "--codec", "float32", "--" + option, value, exit=2, err=f"--{option}: {value}.*, expected an? (number|integer) from")
    t.run(*start, "--codec", "float32", "--resume", exit=2, err="--checkpoint")
    t.run(*start, "--codec", "float32", "--server", "adm", exit=2, err="did you mean 'adam'")
    t.run(*start, "--codec", "float32", "--server", "sgd", "--server-eps", "1e-3", exit=2, err="--server-eps belongs to --server adam")
    t.run(*start, "--codec", "float32", "--plot", "x.jpg", exit=2, err=r"\.png")
    t.run(*start, "--codec", "float32", "--checkpoint", "images", exit=1, err="--checkpoint images: is a folder")
    t.run(*start, "--codec", "float32", "--checkpoint", "no/run.ckpt", exit=1, err="--checkpoint no/run.ckpt: there is no folder no")
    if shutil.which("gnuplot"):
        t.run(*start, "--codec", "float32", "--plot", "no/x.png", exit=1, err="--plot no/x.png: there is no folder no")
    t.path("mine").write_text("mine")
    t.run(*start, "--codec", "float32", "--checkpoint", "mine", exit=2, err="--resume")
    assert t.path("mine").read_text() == "mine"


def case_federate_names_missing_and_wrong_data(t):
    need_train(t)
    args = ["federate", "--codec", "float32", "--rounds", "1", "--seed", "1", "--data"]
    t.run(*args, "nowhere", exit=1, err="nowhere")
    t.path("images/t10k-labels-idx1-ubyte").unlink()
    t.run(*args, "images", exit=1, err="t10k-labels-idx1-ubyte")
    t.path("images/t10k-labels-idx1-ubyte").write_bytes(b"\x00\x00\x08\x01\xff\xff\xff\xff")
    t.run(*args, "images", exit=3, err="t10k-labels-idx1-ubyte")


def case_federate_over_ranks_has_the_same_numbers(t):
    need_train(t)
    run = ["federate", *SMALL[:-2], "--codec", "eden:bits=2", "--rounds", 2, "--json"]
    alone = lines(t.run(*run).stdout)
    for ranks in (2, 3):
        over = lines(t.run(*run, "--comm", "inprocess", "--ranks", ranks).stdout)
        for row in alone + over:
            for key in ("seconds", "update_vnmse", "threads"):
                row.pop(key, None)
        assert over == alone, (over, alone)
    t.run(*run, "--comm", "inprocess", "--ranks", 1, exit=2, err="2 ranks or more")
    t.run(*run, "--ranks", 2, exit=2, err="--ranks belongs to --comm")
    t.run(*run, "--comm", "inprocess", "--save-updates", "u", exit=2, err="--save-updates does not belong to --comm")


def case_federate_over_ranks_continues_after_ctrl_c(t):
    need_train(t)
    run = ["federate", *SMALL[:-2], "--codec", "eden:bits=2", "--rounds", 8, "--eval-every", 2, "--json", "--comm", "inprocess", "--ranks", 3]
    straight = without_seconds(lines(t.run(*run).stdout))
    run += ["--checkpoint", "run.ckpt"]
    process = subprocess.Popen([t.program, *map(str, run)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=t.folder)
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=100)
    assert process.returncode == 130 and "dropped" not in err, (process.returncode, err)
    resumed = without_seconds(lines(t.run(*run, "--resume").stdout))
    assert resumed[-1] == straight[-1], (resumed, straight)


def case_federate_over_mpi_says_why_the_server_failed(t):
    need_train(t)
    run = [*SMALL[:-2], "--codec", "eden:bits=1", "--rounds", "2", "--timeout", "60", "--checkpoint", "nowhere.ckpt", "--resume"]
    done = mpirun(t, 2, "federate", "--comm", "mpi", *run, timeout=50)
    assert done.returncode != 0 and "kpd federate: nowhere.ckpt: " in done.stderr, done


def case_federate_over_mpi_ends_well_with_a_late_rank(t):
    need_train(t)
    run = [*changed(SMALL[:-2], "--clients-per-round", "1"), "--codec", "eden:bits=1", "--rounds", "1", "--local-epochs", "60", "--timeout", ".2"]
    done = mpirun(t, 2, "federate", "--comm", "mpi", *run, timeout=100)
    assert done.returncode == 0 and "1 vanished" in done.stdout, done


def case_federate_on_roles(t):
    need_train(t)
    with open(t.path("roles.jsonl"), "w") as roles:
        for name in "ABC":
            roles.write(json.dumps({"client": name, "text": f"{name} says: the quick brown fox. " * 8}) + "\n")
    run = ["federate", "--task", "shakespeare-lstm", "--clients-per-round", 2, "--codec", "eden:bits=1", "--rounds", 1, "--seed", 1, "--json"]
    rows = lines(t.run(*run, "--data", "roles.jsonl").stdout)
    assert rows[-1]["float32_bytes"] == 2 * 820522 * 4 and rows[-1]["ratio"] > 30, rows
    t.run(*run, exit=2, err="needs --data FILE")
    t.run(*run, "--data", "roles.jsonl", "--alpha", ".5", exit=2, err="its clients are the roles")
    t.path("roles.jsonl").write_text("{}\n")
    t.run(*run, "--data", "roles.jsonl", exit=3, err="roles.jsonl: line 1: expected a JSON object")


if __name__ == "__main__":
    run_cases(globals())
