#!/usr/bin/env python3
"""kpd eval, generate, bench, inspect, plan and export on the tiny chat model of tests/golden/models/chat."""
import json
import pathlib
import re
import shutil
import signal
import subprocess
import time

from run_cli_tests import run_cases

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden"
FOLDER = GOLDEN / "models" / "chat"
GGUF = FOLDER / "model.gguf"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())
TEXT = GOLDEN.parent.parent / "LICENSE"
EVAL_KEYS = ["model", "protocol", "ctx", "windows", "tokens", "arithmetic", "kv", "threads", "ppl", "ppl_stderr"]
COMPARED_KEYS = ["kld_mean", "kld_stderr", "kld_median", "kld_p90", "kld_p99", "kld_p999", "kld_max", "same_top1", "ln_ppl_ratio"]
TIMES = ["seconds", "tokens_per_s"]


def rows(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def evaluate(t, *args):
    return rows(t.run("eval", *args, "--text", TEXT, "--ctx", "64", "--windows", "4", "--json"))


def generate(t, *args, model=GGUF):
    row, = rows(t.run("generate", model, "--arithmetic", "exact", "--json", *args))
    return row


def figures(row):
    return {k: v for k, v in row.items() if k not in TIMES + ["threads", "model"]}


def case_eval_json_has_every_key(t):
    paper, llama = evaluate(t, GGUF, "--protocol", "paper", "--protocol", "llama.cpp")
    for row, protocol, tokens in ((paper, "paper", 4 * 63), (llama, "llama.cpp", 4 * 31)):
        assert list(row) == EVAL_KEYS + ["buckets"] + TIMES, list(row)
        assert (row["protocol"], row["tokens"], row["windows"], row["ctx"]) == (protocol, tokens, 4, 64), row
        # Chance would be 260; it was trained on this text without its line breaks.
        assert 1 < row["ppl"] < 130 and row["ppl_stderr"] > 0, row
        assert sum(b["tokens"] for b in row["buckets"]) == tokens, row
    assert paper["ppl"] != llama["ppl"]


def case_eval_reads_special_tokens_as_the_protocol_does(t):
    # One token each for transformers, ten bytes for llama-perplexity, which tokenizes with parse_special = false.
    t.path("special.txt").write_text("<|im_end|>" * 8)
    done = t.run("eval", GGUF, "--text", "special.txt", "--ctx", "8", "--protocol", "paper", "--protocol", "llama.cpp", "--protocol", "paper",
                 "--json")
    assert [(row["protocol"], row["windows"]) for row in rows(done)] == [("paper", 1), ("llama.cpp", 10), ("paper", 1)], done.stdout


def case_eval_text_names_the_protocol(t):
    t.run("eval", GGUF, "--text", TEXT, "--ctx", "64", "--windows", "2", out=r"paper: .*\n +perplexity [\d.]+ \+- ", err=r"llama, 2 layers")


def case_eval_against_itself_is_zero(t):
    row, = evaluate(t, GGUF, "--reference", FOLDER)
    assert list(row) == EVAL_KEYS + COMPARED_KEYS + ["buckets"] + TIMES, list(row)
    assert row["arithmetic"] == "exact" and row["same_top1"] == 1, row
    assert all(abs(row[k]) < 1e-9 for k in COMPARED_KEYS if k != "same_top1"), row
    assert [list(b) for b in row["buckets"]] == [["from", "to", "tokens", "ppl", "kld_mean"]] * 4, row


def case_eval_of_the_folder_and_of_gguf_are_the_same(t):
    a, b = evaluate(t, GGUF, FOLDER)
    assert figures(a) == figures(b) and (a["model"], b["model"]) == (str(GGUF), str(FOLDER)), (a, b)


def case_eval_does_not_depend_on_threads(t):
    for arithmetic in ("exact", "fast"):
        first, *others = [evaluate(t, GGUF, "--arithmetic", arithmetic, "--threads", n)[0] for n in (1, 2, 5)]
        assert all(figures(first) == figures(o) for o in others), (first, others)


def case_eval_of_caches(t):
    f32, f16 = evaluate(t, GGUF, "--kv", "f32", "--kv", "f16")
    assert (f32["kv"], f16["kv"]) == ("f32", "f16") and f32["arithmetic"] == "exact", f32
    assert abs(f32["ppl"] - f16["ppl"]) < .01 * f32["ppl"], (f32, f16)


USAGE = [
    (["eval"], r"MODEL is required"),
    (["eval", GGUF], r"--text FILE is required"),
    (["eval", GGUF, "--text", TEXT, "--ctx", "3"], r"--ctx 3"),
    (["eval", GGUF, "--text", TEXT, "--protocol", "papr"], r"--protocol.*paper, llama\.cpp"),
    (["eval", GGUF, "--text", TEXT, "--kv", "f8"], r"--kv.*f8"),
    (["eval", GGUF, "--text", TEXT, "--arithmetic", "exat"], r"did you mean 'exact'"),
    (["eval", GGUF, "--text", TEXT, "--windws", "1"], r"did you mean '--windows'"),
    (["eval", GGUF, "--text", TEXT, "--windows", "0"], r"--windows 0"),
    (["eval", GGUF, "--text", TEXT, "--ctx", "100000"], r"--ctx.*less than one window of 100000"),
    (["generate"], r"MODEL is required"),
    (["generate", GGUF], r"--prompt TEXT or --prompt-file FILE is required"),
    (["generate", GGUF, "--prompt", "a", "--prompt-file", "b"], r"give one of them"),
    (["generate", GGUF, "--prompt", "a", "--system", "b"], r"--system belongs to --chat"),
    (["generate", GGUF, "--prompt", "a", "--temperature", "-1"], r"--temperature -1"),
    (["generate", GGUF, "--prompt", "a", "--top-p", "2"], r"--top-p 2"),
    (["generate", GGUF, "--prompt", "a", "--top-p", "0.9"], r"--top-p 0\.9: needs --temperature above 0"),
    (["generate", GGUF, "--prompt", "a", "--top-k", "5", "--temperature", "0"], r"--top-k 5: needs --temperature above 0"),
    (["generate", FOLDER, "--prompt", "a", "--min-p", ".1"], r"--min-p \.1: needs --temperature above 0"),
    (["generate", GGUF, "--prompt", "a", "--max-tokens", "0"], r"--max-tokens 0"),
    (["generate", GGUF, "--prompt", ""], r"--prompt"),
    (["generate", GGUF, "--prompt", "x" * 40, "--ctx", "32"], r"--prompt"),
    (["generate", GGUF, "--chat", "--prompt", "a", "--chat-template", "chatm"], r"--chat-template.*chatml"),
    (["bench"], r"MODEL is required"),
    (["bench", GGUF, "--prompt", "0", "--generate", "0"], r"nothing to measure"),
    (["eval", GGUF, "--task", "helaswag", "--data", "x"], r"--task.*hellaswag, piqa, lambada"),
    (["eval", GGUF, "--task", "piqa"], r"--data FILE is required"),
    (["eval", GGUF, "--task", "piqa", "--data", "x", "--text", TEXT], r"--text.*belong to perplexity"),
    (["eval", GGUF, "--text", TEXT, "--limit", "5"], r"--limit belongs to --task"),
    (["eval", GGUF, "--task", "lambada", "--data", "x", "--labels", "y"], r"--labels belongs to --task piqa"),
    (["plan"], r"either MODEL .* or --params N"),
    (["plan", GGUF, "--params", "1B"], r"either MODEL .* or --params N"),
    (["plan", "--params", "1X"], r"--params 1X: expected a number of parameters"),
    (["plan", "--params", "1B", "--memory", "80"], r"--memory 80: expected a size"),
    (["plan", "--params", "1B", "--memory", "80GBx0"], r"--memory 0"),
    (["plan", GGUF, "--batch", "0"], r"--batch 0"),
    (["export", GGUF], r"--tokenizer DIR is required"),
    (["export", GGUF, "--tokenizer", TEXT], r"--tokenizer .*LICENSE: is a file"),
    (["inspect", TEXT, "--tensor", "a"], r"--tensor belongs to .safetensors files and models"),
    (["inspect", GGUF, "--tensor", "token_embd.weigt"], r"did you mean 'token_embd\.weight'"),
]


def case_wrong_command_lines(t):
    for line, expected in USAGE:
        done = subprocess.run([t.program, *map(str, line)], capture_output=True, text=True, cwd=t.folder, timeout=60)
        last = (done.stderr.strip().splitlines() or [""])[-1]
        assert done.returncode == 2 and done.stdout == "", (line, done)
        assert re.search(expected, last), (line, last)


def case_missing_files(t):
    t.run("eval", GGUF, "--text", "no.txt", exit=1, err=r"no\.txt")
    t.run("eval", "no.gguf", "--text", TEXT, exit=1, err=r"no\.gguf")
    t.run("generate", "no.gguf", "--prompt", "a", exit=1, err=r"no\.gguf")
    t.run("inspect", "no.gguf", exit=1, err=r"no\.gguf")


def case_damaged_models(t):
    data = GGUF.read_bytes()
    for size in (10, 1000, 20000, len(data) - 1):
        t.path("cut.gguf").write_bytes(data[:size])
        t.run("eval", "cut.gguf", "--text", TEXT, exit=3, err=r"cut\.gguf")
        t.run("generate", "cut.gguf", "--prompt", "a", exit=3, err=r"cut\.gguf")
    t.path("other.gguf").write_bytes(data.replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0lhama", 1))
    t.run("eval", "other.gguf", "--text", TEXT, exit=3, err=r"other\.gguf.*lhama")
    t.path("hf").mkdir()
    config = json.loads((FOLDER / "config.json").read_text())
    config.update(architectures=["NoSuchForCausalLM"], model_type="nosuch")
    t.path("hf/config.json").write_text(json.dumps(config))
    t.path("hf/model.safetensors").write_bytes((FOLDER / "model.safetensors").read_bytes())
    t.run("eval", "hf", "--text", TEXT, exit=3, err=r"hf/config\.json.*(nosuch|NoSuch)")


def case_a_model_that_gives_no_numbers(t):
    shutil.copytree(FOLDER, t.path("hf"))
    data = bytearray((FOLDER / "model.safetensors").read_bytes())
    size = int.from_bytes(data[:8], "little")
    at = 8 + size + json.loads(data[8:8 + size])["model.norm.weight"]["data_offsets"][0]
    data[at:at + 2] = b"\xc0\x7f"  # bfloat16's NaN
    t.path("hf/model.safetensors").write_bytes(data)
    for hot in ("0", "1"):
        done = subprocess.run([t.program, "generate", "hf", "--prompt", "a", "--temperature", hot, "--seed", "1"], capture_output=True,
                              text=True, cwd=t.folder, timeout=60)
        assert done.returncode == 3 and "token 0 the logit NaN" in done.stderr.splitlines()[-1], done


def case_eval_reports_what_it_has_on_interrupt(t):
    t.path("long.txt").write_text(TEXT.read_text() * 400)
    process = subprocess.Popen([t.program, "eval", str(GGUF), "--text", "long.txt", "--ctx", "64", "--json"], cwd=t.folder, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stderr.readline()  # the model is loaded
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, (process.returncode, err)
    row = json.loads(out)
    assert row["windows"] >= 1 and row["ppl"] > 1, row
    assert f"interrupted: {row['windows']} of " in err, err


def case_greedy_equals_transformers(t):
    assert {e["finish_reason"] for e in EXPECTED} == {"stop", "length"}
    for expected in EXPECTED:
        for model in (GGUF, FOLDER):
            done = generate(t, *(["--chat"] if expected["chat"] else []), "--prompt", expected["prompt"], "--max-tokens",
                            len(expected["ids"]), model=model)
            assert done["text"] == expected["text"], (done, expected)
            assert done["prompt_tokens"] == expected["n_prompt"], (done, expected)
            assert done["finish_reason"] == expected["finish_reason"], (done, expected)
            # the token that ended it is not counted
            assert done["tokens"] == len(expected["ids"]) - (expected["finish_reason"] == "stop"), (done, expected)


def case_generate_json_keys_and_streamed_text(t):
    continued = EXPECTED[0]
    row = generate(t, "--prompt", continued["prompt"], "--max-tokens", "20")
    assert list(row) == ["text", "prompt_tokens", "tokens", "finish_reason", "prefill_tokens_per_s", "decode_tokens_per_s",
                         "load_seconds", "peak_rss_bytes"], list(row)
    assert row["tokens"] == 20 and row["finish_reason"] == "length" and row["peak_rss_bytes"] > 2 ** 20, row
    done = t.run("generate", GGUF, "--prompt", continued["prompt"], "--max-tokens", "20", "--arithmetic", "exact",
                 err=r"20 tokens at [\d.]+ tokens/s, ended by length")
    assert done.stdout == row["text"] + "\n", done.stdout
    t.path("p.txt").write_text(continued["prompt"])
    assert generate(t, "--prompt-file", "p.txt", "--max-tokens", "20")["text"] == row["text"]


def case_stop_text_ends_before_it(t):
    continued = EXPECTED[0]
    stop = continued["text"][12:16]
    row = generate(t, "--prompt", continued["prompt"], "--stop", "no such text", "--stop", stop)
    assert row["text"] == continued["text"][:continued["text"].index(stop)] and row["finish_reason"] == "stop", row


def case_seeds_repeat(t):
    hot = ["--prompt", "The", "--temperature", "1.5", "--max-tokens", "40"]
    a, b, c = (generate(t, *hot, "--seed", seed)["text"] for seed in ("1", "1", "2"))
    assert a == b != c, (a, b, c)
    t.run("generate", GGUF, *hot, err=r"seed \d+ \(repeat with --seed")


def case_cuts_are_the_folders_or_need_a_temperature(t):
    shutil.copytree(FOLDER, t.path("hf"))
    t.path("hf/generation_config.json").write_text(json.dumps({"do_sample": True, "temperature": 1.5, "top_k": 1, "top_p": .9}))
    a = ["--prompt", "The", "--max-tokens", "20"]
    greedy = generate(t, *a)["text"]
    # What the folder asks for gives way to a temperature of 0; what the command line asks for does not.
    assert generate(t, *a, "--temperature", "0", model="hf")["text"] == greedy
    t.run("generate", "hf", *a, "--temperature", "0", "--top-p", "0.9", exit=2, err=r"--top-p 0\.9: needs --temperature above 0")
    assert generate(t, *a, "--seed", "1", model="hf")["text"] == greedy  # the likeliest of one
    assert generate(t, *a, "--seed", "1", "--top-k", "0", "--top-p", "1", model="hf")["text"] != greedy


def case_full_context_ends_by_length(t):
    prompt = EXPECTED[0]["prompt"]
    row = generate(t, "--prompt", prompt, "--ctx", "32", "--ignore-eos")
    assert row["finish_reason"] == "length" and row["prompt_tokens"] + row["tokens"] <= 33, row
    shifted = generate(t, "--prompt", prompt, "--ctx", "32", "--ignore-eos", "--context-shift", "--max-tokens", "60")
    assert shifted["tokens"] == 60 and shifted["text"].startswith(row["text"][:8]), (row, shifted)


def case_conversation(t):
    answered = EXPECTED[3]
    done = t.run("generate", GGUF, "--chat", "--arithmetic", "exact", "--max-tokens", len(answered["ids"]),
                 input=answered["prompt"] + "\n\nAnd then?\n")
    assert done.stdout.startswith(answered["text"]), done.stdout
    assert done.stderr.count("> ") == 4, done.stderr


def case_bench_keys(t):
    done = t.run("bench", GGUF, "--prompt", "32", "--generate", "4", "--depth", "16", "--repetitions", "2", "--threads", "2", "--json")
    prompt, one_by_one = rows(done)
    for row, n_prompt, n_gen in ((prompt, 32, 0), (one_by_one, 0, 4)):
        assert (row["n_prompt"], row["n_gen"], row["n_depth"], row["n_threads"]) == (n_prompt, n_gen, 16, 2), row
        assert row["avg_ts"] > 0 and row["stddev_ts"] >= 0 and row["model_n_params"] > 20000, row


HELLASWAG = """Law: The License [title] You may [step] reproduce and distribute
3
copies of the Work.
soup.
the the th\u00e9 the.
copies of the Work or Derivative Works.
Cooking. Add the""" + " term or condition" * 15 + """
0
salt.
Work
entity.
or any of the Work
"""
PIQA = [{"goal": "What shall a License mean?", "sol1": "the terms and conditions ", "sol2": "a ladder"},
        {"goal": "dresser", "sol1": "any of the Work", "sol2": "any of the Work, twice"}]
LAMBADA = [{"text": "Derivative Works or Derivative Works"}, {"text": "and distribute the   Work."}]


def write_tasks(t):
    t.path("hellaswag.txt").write_text(HELLASWAG)
    t.path("piqa.jsonl").write_text("".join(json.dumps(item) + "\n" for item in PIQA))
    t.path("piqa-labels.lst").write_text("0\n1\n")
    t.path("lambada.jsonl").write_text("".join(json.dumps(item) + "\n" for item in LAMBADA))
    return {"hellaswag": "hellaswag.txt", "piqa": "piqa.jsonl", "lambada": "lambada.jsonl"}


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
            ("piqa", '{"goal": "a", "sol1": "b"}\n', r"line 1: expected a text 'sol2'"),
            ("piqa", '{"goal": "a", "sol1": "b", "sol2": "c"}\n', r"line 1: expected a label"),
            ("piqa", "[1]\n", r"line 1: expected a JSON object"),
            ("lambada", '{"text": "word"}\n', r"line 1: .*after a space")]:
        t.path("bad.jsonl").write_text(text)
        t.run("eval", GGUF, "--task", task, "--data", "bad.jsonl", exit=3, err=r"bad\.jsonl.*" + expected)
    t.run("eval", GGUF, "--task", "piqa", "--data", "no.jsonl", exit=1, err=r"no\.jsonl")


def case_inspect_a_model(t):
    gguf, = rows(t.run("inspect", GGUF, "--json"))
    folder, = rows(t.run("inspect", FOLDER, "--json"))
    for key in ("family", "n_layers", "d_model", "n_heads", "n_kv_heads", "context", "parameters", "tokenizer"):
        assert gguf[key] == folder[key], (key, gguf[key], folder[key])
    assert (gguf["format"], folder["format"], gguf["family"], gguf["n_layers"]) == ("GGUF", "safetensors", "llama", 2)
    assert {r["type"] for r in gguf["types"]} == {"BF16", "F32"} and sum(r["tensors"] for r in gguf["types"]) == 20, gguf["types"]
    assert sum(r["bytes"] for r in gguf["types"]) == gguf["bytes"] and len(gguf["tensors"]) == 20
    assert gguf["tokenizer"]["eos"]["token"] == "<|im_end|>" and gguf["tokenizer"]["chat_template"] is True
    t.run("inspect", GGUF, out=r"(?s)llama: 2 layers.*context 256.*BF16 +15 ")


def case_inspect_says_whose_the_head_is(t):
    models = GOLDEN / "models"
    for path, tied in ((GGUF, True), (FOLDER, True), (models / "qwen3" / "model.gguf", False), (models / "qwen3", False), (models / "granite" / "model.gguf", True)):
        shown, = rows(t.run("inspect", path, "--json"))
        assert shown["tied_head"] is tied, (path, shown["tied_head"])
    assert "tied" in t.run("inspect", GGUF).stdout and "tied" not in t.run("inspect", models / "qwen3" / "model.gguf").stdout


def case_inspect_a_model_that_is_left_out(t):
    shutil.copytree(FOLDER, t.path("moe"))
    config = json.loads((FOLDER / "config.json").read_text())
    for change, why in (({"architectures": ["MixtralForCausalLM"]}, "MixtralForCausalLM is a mixture of experts"),
                        ({"quantization_config": {"quant_method": "gptq"}}, "the weights are quantized by gptq"),
                        ({"attention_multiplier": 0.5}, r"attention_multiplier is 0\.5; kpd does not know this key")):
        t.path("moe/config.json").write_text(json.dumps({**config, **change}))
        shown, = rows(t.run("inspect", "moe", "--json"))
        assert re.search(why, shown["problem"]) and len(shown["tensors"]) == 20 and "family" not in shown, shown
        t.run("inspect", "moe", out=r"(?s)kpd cannot run it: moe/config\.json: .*" + why + ".*embed_tokens")
        t.run("generate", "moe", "--prompt", "a", exit=3, err=r"moe/config\.json.*" + why)
    shown, = rows(t.run("inspect", FOLDER, "--json"))
    assert "problem" not in shown


def case_inspect_one_tensor(t):
    a, = rows(t.run("inspect", GGUF, "--tensor", "output_norm.weight", "--json"))
    b, = rows(t.run("inspect", FOLDER, "--tensor", "model.norm.weight", "--json"))
    for key in ("count", "min", "max", "mean", "rms", "zeros", "nonfinite"):
        assert a[key] == b[key], (key, a, b)
    assert (a["type"], b["type"], a["bits_per_weight"], b["bits_per_weight"], a["shape"]) == ("F32", "BF16", 32, 16, [32]), (a, b)
    assert a["min"] <= a["mean"] <= a["rms"] <= a["max"], a
    t.run("inspect", GGUF, "--tensor", "output_norm.weight", out=r"min .*rms")


def plan(t, *args):
    row, = rows(t.run("plan", *args, "--json"))
    return row, {w["format"]: w for w in row["weights"]}


def case_plan_of_340_billion(t):
    row, weights = plan(t, "--params", "340B", "--memory", "80GBx8")
    assert row["parameters"] == 340e9 and row["memory"]["bytes"] == 640e9, row
    assert weights["bf16"]["bytes"] == 680e9 and not weights["bf16"]["fits"] and weights["bf16"]["units_needed"] == 9, weights
    two = weights["2 bits"]
    assert two["bytes"] == 85e9 and two["fits"] and two["held_by"] == "96 GB, or 2 x 80 GB", two
    t.run("plan", "--params", "340B", "--memory", "80GBx8", out=r"bf16 .*680 GB = 633\.\d GiB +does not fit: .*2 nodes of 8 x 80 GB")


def case_plan_of_a_model(t):
    row, weights = plan(t, GGUF, "--ctx", "1000", "--batch", "3")
    assert weights["as stored"]["bytes"] == sum(x["bytes"] for x in rows(t.run("inspect", GGUF, "--json"))[0]["types"])
    # 1000 tokens in blocks of 64, 2 layers, keys and values, 2 heads of 8
    assert [c["bytes"] for c in row["caches"]] == [3 * 1024 * 2 * 2 * 16 * 4, 3 * 1024 * 2 * 2 * 16 * 2], row["caches"]
    assert all(w["fits"] for w in weights.values()), weights
    _, small = plan(t, GGUF, "--memory", "0.05MB", "--ctx", "1")
    assert small["q4_0"]["fits"] and not small["f32"]["fits"], small
    config, _ = plan(t, FOLDER / "config.json")
    assert config["parameters"] == row["parameters"] and config["ctx"] == 256 and config["caches"], config
    folder, _ = plan(t, FOLDER)
    assert folder["parameters"] == row["parameters"] and folder["caches"] == config["caches"], folder


def case_export_a_tokenizer(t):
    t.run("export", GGUF, "--tokenizer", "out", out=r"out: tokenizer\.json")
    assert sorted(p.name for p in t.path("out").iterdir()) == ["tokenizer.json", "tokenizer_config.json"]
    exported = json.loads(t.path("out/tokenizer.json").read_text())["model"]["vocab"]
    original = json.loads((FOLDER / "tokenizer.json").read_text())["model"]["vocab"]
    assert all(exported[token] == id for token, id in original.items()), exported
    # The folder with the exported tokenizer answers as the original does.
    for name in ("config.json", "model.safetensors"):
        t.path("out").joinpath(name).write_bytes((FOLDER / name).read_bytes())
    row = generate(t, "--chat", "--prompt", EXPECTED[3]["prompt"], "--max-tokens", "96", model="out")
    assert (row["text"], row["finish_reason"]) == (EXPECTED[3]["text"], "stop"), row
    t.run("export", FOLDER / "model.safetensors", "--tokenizer", "x", exit=3, err=r"no GGUF file")


def case_the_guides_example_is_the_one_that_is_compiled(t):
    root = GOLDEN.parent.parent
    shown = re.search(r"```cpp\n(.*?)```", (root / "docs/guide/llm.md").read_text(), re.S)[1]
    assert shown == (root / "examples/generate.cc").read_text()


if __name__ == "__main__":
    run_cases(globals())
