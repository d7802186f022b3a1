#!/usr/bin/env python3
"""kpd eval --task on the tiny chat model of tests/golden/models/chat: scores, reports, damaged files."""
import json

from llm_test import FOLDER, GGUF, rows
from run_cli_tests import run_cases
from task_items import write_tasks


def case_tasks_score_as_lm_eval(t):
    golden = json.loads((FOLDER / "tasks.json").read_text())
    for task, path in write_tasks(t).items():
        for chunk in ("512", "5"):
            row, = rows(t.run("eval", GGUF, "--task", task, "--data", path, "--arithmetic", "exact", "--json", "--items", "--chunk", chunk))
            for item, expected in zip(row["scores"], golden[task]):
                sums = [e["log_likelihood"] for e in expected]
                assert len(item["log_likelihoods"]) == len(sums), (item, expected)
                assert all(abs(a - b) < 1e-3 for a, b in zip(item["log_likelihoods"], sums)), (task, item, expected)
                assert sums[item["pick"]] == max(sums), (item, expected)
            assert row["items"] == len(row["scores"]) == len(golden[task]) == 2, row
    assert [item["greedy"] for item in row["scores"]] == [e["greedy"] for e, in golden["lambada"]], row


def case_tasks_report(t):
    data = write_tasks(t)
    row, = rows(t.run("eval", GGUF, "--task", "piqa", "--data", data["piqa"], "--json"))
    assert list(row) == ["model", "task", "items", "arithmetic", "kv", "threads", "acc", "stderr", "acc_norm", "acc_norm_stderr", "tokens",
                         "seconds", "tokens_per_s"], list(row)
    assert row["acc"] in (0, .5, 1) and row["items"] == 2, row
    row, = rows(t.run("eval", GGUF, "--task", "lambada", "--data", data["lambada"], "--json"))
    assert row["acc"] in (0, .5, 1) and row["ppl"] > 1 and "acc_norm" not in row, row
    row, = rows(t.run("eval", FOLDER, "--task", "hellaswag", "--data", data["hellaswag"], "--limit", "1", "--json"))
    assert row["items"] == 1 and row["stderr"] == 0, row
    t.run("eval", GGUF, "--task", "hellaswag", "--data", data["hellaswag"], out=r"hellaswag, 2 items: acc [\d.]+ \+- [\d.]+, acc_norm")


def case_damaged_task_files(t):
    write_tasks(t)
    for task, text, expected in [
            ("hellaswag", "context\n4\na\nb\nc\nd\n", r"line 2: expected the number"),
            ("hellaswag", "context\n1\na\nb\n", r"ends within an item"),
            ("hellaswag", "", r"holds no item"),
            ("hellaswag", "BZh91AY", r"bunzip2"),
            ("piqa", '{"goal": "a", "sol1": "b"}\n', r"line 1: expected a string 'sol2'"),
            ("piqa", '{"goal": "a", "sol1": "b", "sol2": "c"}\n', r"line 1: expected a label"),
            ("piqa", "[1]\n", r"line 1: expected a JSON object"),
            ("lambada", '{"text": "word"}\n', r"line 1: .*after a space")]:
        t.path("bad.jsonl").write_text(text)
        t.run("eval", GGUF, "--task", task, "--data", "bad.jsonl", exit=3, err=r"bad\.jsonl.*" + expected)
    t.run("eval", GGUF, "--task", "piqa", "--data", "no.jsonl", exit=1, err=r"no\.jsonl")


if __name__ == "__main__":
    run_cases(globals())
