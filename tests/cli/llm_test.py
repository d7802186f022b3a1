#!/usr/bin/env python3
"""kpd eval, generate, bench, inspect and export on the tiny chat model of tests/golden/models/chat."""
import csv
import io
import json
import pathlib
import re
import shutil
import signal
import subprocess

from processes import PATIENCE_S, until_working
from run_cli_tests import run_cases
from task_items import write_tasks

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden"
FOLDER = GOLDEN / "models" / "chat"
GGUF = FOLDER / "model.gguf"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())
TEXT = GOLDEN.parent.parent / "LICENSE"
EVAL_KEYS = ["model", "protocol", "ctx", "windows", "tokens", "arithmetic", "kv", "threads", "ppl", "ppl_stderr"]
COMPARED_KEYS = ["kld_mean", "kld_stderr", "kld_median", "kld_p90", "kld_p99", "kld_p999", "kld_max", "same_top1", "ln_ppl_ratio"]
LAYERS = json.loads((FOLDER / "config.json").read_text())["num_hidden_layers"]
TIMES = ["seconds", "tokens_per_s"]


def rows(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def evaluate(t, *args):
    return rows(t.run("eval", *args, "--text", TEXT, "--ctx", "64", "--windows", "4", "--json"))


def generate(t, *args, model=GGUF):
    """Greedy unless `args` say otherwise."""
    greedy = [] if {"--seed", "--temperature"} & set(args) else ["--temperature", "0"]
    row, = rows(t.run("generate", model, "--arithmetic", "exact", "--json", *greedy, *args))
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


def case_eval_of_layers_with_other_caches(t):
    """All layers named are the cache of that name; one of them lies between the two."""
    bf16, mixed, named, f32 = (evaluate(t, GGUF, "--kv", *args)[0] for args in (
        ("bf16",), ("bf16", "--kv-layer", "1=f32"), ("bf16", "--kv-layer", f"0-{LAYERS - 1}=f32"), ("f32",)))
    assert mixed["kv"] == "bf16 (1=f32)" and mixed["arithmetic"] == "exact", mixed
    assert named["ppl"] == f32["ppl"] and len({bf16["ppl"], mixed["ppl"], f32["ppl"]}) == 3, (bf16, mixed, named, f32)
    twice = evaluate(t, GGUF, "--kv", "f32", "--kv-layer", "0=bf16", "--kv-layer", f"1-{LAYERS - 1}=bf16")[0]
    assert twice["ppl"] == bf16["ppl"] and twice["kv"] == f"f32 (0=bf16 1-{LAYERS - 1}=bf16)", twice
    assert ",f16 (0=f32)," in t.run("eval", GGUF, "--text", TEXT, "--ctx", "64", "--windows", "1", "--kv", "f16", "--kv-layer", "0=f32",
                                    "--format", "csv").stdout


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
    (["eval", GGUF, "--text", TEXT, "--kv-layer", "f32"], r"--kv-layer: 'f32', expected LAYERS=SPEC"),
    (["generate", GGUF, "-p", "a", "-ctk", "q9"], r"--cache-type: .*k=q9"),
    (["generate", GGUF, "-p", "a", "-ctk", "q8_0", "--kv", "f16"], r"--kv and --cache-type-k: give one of them"),
    (["eval", GGUF, "--text", TEXT, "--kv-layer", "0=f8"], r"--kv-layer.*'f8' is unknown"),
    (["eval", GGUF, "--text", TEXT, "--kv-layer", "3-1=f32"], r"--kv-layer: '3-1=f32': '3-1', expected the number of a layer"),
    (["eval", GGUF, "--text", TEXT, "--kv-layer", "0,0=f32"], r"--kv-layer: '0,0=f32': layer 0 is named twice"),
    (["eval", GGUF, "--text", TEXT, "--kv-layer", f"{LAYERS}=f32"], rf"--kv-layer: '{LAYERS}=f32': layer {LAYERS}, there are {LAYERS}, from 0 on"),
    (["eval", GGUF, "--text", TEXT, "--arithmetic", "exat"], r"did you mean 'exact'"),
    (["eval", GGUF, "--text", TEXT, "--windws", "1"], r"did you mean '--windows'"),
    (["eval", GGUF, "--text", TEXT, "--windows", "0"], r"--windows 0"),
    (["eval", GGUF, "--text", TEXT, "--ctx", "100000"], r"--ctx.*less than one window of 100000"),
    (["generate"], r"MODEL is required"),
    (["generate", GGUF], r"a prompt is required: --prompt TEXT, --prompt-file FILE or a text on standard input"),
    (["generate", GGUF, "--prompt", "a", "--prompt-file", "b"], r"give one of them"),
    (["generate", GGUF, "a", "--prompt", "b"], r"--prompt and a prompt behind MODEL: give one of them"),
    (["generate", GGUF, "two", "words"], r"'words': one prompt, please; text with blanks needs quotes"),
    (["generate", "-m", GGUF, "two", "words"], r"'words': one prompt, please"),
    (["generate", "-m", GGUF, "-m", FOLDER, "-p", "a"], r"one model, please"),
    (["generate", "-m", GGUF, "-q", "a"], r"unknown option -q"),
    (["generate", GGUF, "-p", "a", "--temp", "0"], r"unknown option --temp; did you mean '--temperature'\?"),
    (["generate", GGUF, "--n-predict", "4"], r"unknown option --n-predict; did you mean '--max-tokens'\?"),
    (["generate", GGUF, "-f", "a.txt"], r"unknown option -f; did you mean '--prompt-file'\?"),
    (["serve", GGUF, "-np", "2"], r"unknown option -np; did you mean '--parallel'\?"),
    (["generate", GGUF, "-p", "- a", "--bogus"], r"unknown option --bogus$"),
    (["generate", GGUF, "-p"], r"--prompt: a value is missing behind it"),
    (["generate", GGUF, "-p", "a", "-p", "b"], r"--prompt: given more than once"),
    (["generate", GGUF, "-p", "a", "-n", "-2"], r"--max-tokens -2: expected an integer"),
    (["generate", GGUF, "-c", "x", "-p", "a"], r"--ctx x: expected an integer"),
    (["generate", GGUF, "--prompt", "a", "--system", "b"], r"--system belongs to --chat"),
    (["generate", GGUF, "--prompt", "a", "--temperature", "-1"], r"--temperature -1"),
    (["generate", GGUF, "--prompt", "a", "--top-p", "2"], r"--top-p 2"),
    (["generate", GGUF, "--prompt", "a", "--top-k", "5", "--temperature", "0"], r"--top-k 5: needs --temperature above 0"),
    (["generate", FOLDER, "--prompt", "a", "--temperature", "0", "--min-p", ".1"], r"--min-p \.1: needs --temperature above 0"),
    (["generate", GGUF, "--prompt", "a", "--max-tokens", "0"], r"--max-tokens 0"),
    (["generate", GGUF, "--prompt", ""], r"--prompt"),
    (["generate", GGUF, "--prompt", "x" * 40, "--ctx", "32"], r"--prompt: the prompt has \d+ tokens, the context of 32 has to hold the answer too; --ctx \d+ and more does"),
    (["generate", GGUF, "-p", "a", "-n", "4", "--format", "csv"], r"unknown option --format"),
    (["eval", GGUF, "--text", TEXT, "--format", "cvs"], r"did you mean 'csv'"),
    (["eval", GGUF, "--text", TEXT, "--format", "csv", "--json"], r"--format csv and --json"),
    (["bench", GGUF, "--format", "csv", "--json"], r"--format csv and --json"),
    (["bench", GGUF, FOLDER], r"there is no more to give than MODEL"),
    (["generate", GGUF, "--chat", "--prompt", "a", "--chat-template", "chatm"], r"--chat-template.*chatml"),
    (["bench"], r"MODEL is required"),
    (["bench", GGUF, "--prompt", "0", "--generate", "0"], r"nothing to measure"),
    (["eval", GGUF, "--task", "helaswag", "--data", "x"], r"--task.*hellaswag, piqa, lambada"),
    (["eval", GGUF, "--task", "piqa"], r"--data FILE is required"),
    (["eval", GGUF, "--task", "piqa", "--data", "x", "--text", TEXT], r"--text.*belong to perplexity"),
    (["eval", GGUF, "--text", TEXT, "--limit", "5"], r"--limit belongs to --task"),
    (["eval", GGUF, "--task", "lambada", "--data", "x", "--labels", "y"], r"--labels belongs to --task piqa"),
    (["export", GGUF], r"OUT is required: where to write, or --tokenizer DIR"),
    (["export", GGUF, "out"], r"--to safetensors\|gguf is required"),
    (["export", GGUF, "out", "--to", "safetensor"], r"--to.*safetensors"),
    (["export", GGUF, "out.gguf", "--dtype", "f8"], r"--dtype.*f32"),
    (["export", GGUF, "out", "--tokenizer", "x"], r"--tokenizer writes the tokenizer alone"),
    (["export", GGUF, TEXT, "--to", "safetensors"], r"OUT .*LICENSE: is a file"),
    (["export", FOLDER, FOLDER, "--to", "safetensors", "--force"], r"is MODEL, of which this would take the only copy"),
    (["export", GGUF, "--tokenizer", TEXT], r"--tokenizer .*LICENSE: is a file"),
    (["inspect", TEXT, "--tensor", "a"], r"--tensor belongs to .safetensors files and models"),
    (["inspect", GGUF, "--tensor", "token_embd.weigt"], r"did you mean 'token_embd\.weight'"),
]


def case_wrong_command_lines(t):
    for line, expected in USAGE:
        done = subprocess.run([t.program, *map(str, line)], capture_output=True, text=True, cwd=t.folder, timeout=60, stdin=subprocess.DEVNULL)
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
    until_working(process, signal.SIGINT, 1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
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
    assert list(row) == ["text", "prompt_tokens", "tokens", "finish_reason", "temperature", "repeat_penalty", "prefill_tokens_per_s",
                         "decode_tokens_per_s", "load_seconds", "peak_rss_bytes"], list(row)
    assert row["tokens"] == 20 and row["finish_reason"] == "length" and row["peak_rss_bytes"] > 2 ** 20, row
    assert row["temperature"] == 0 and row["repeat_penalty"] == 1, row
    done = t.run("generate", GGUF, "--prompt", continued["prompt"], "--max-tokens", "20", "--arithmetic", "exact", "--temperature", "0",
                 err=r"20 tokens at [\d.]+ tokens/s, ended by length: --max-tokens 20")
    assert done.stdout == row["text"] + "\n", done.stdout
    # As llama.cpp's users type it.
    for line in (["-m", GGUF, "-p", continued["prompt"], "-n", "20", "-c", "200", "-t", "1"], [GGUF, continued["prompt"], "-n20", "-t2"],
                 ["-m", GGUF, continued["prompt"], "-n", "20"]):
        assert t.run("generate", *line, "--arithmetic", "exact", "--temperature", "0").stdout == done.stdout, line
    # The word behind an option is its value, whatever it begins with.
    for prompt in ("- one", "--two"):
        assert t.run("generate", GGUF, "-p", prompt, "-n", "4", "--temperature", "0").stdout == \
            t.run("generate", GGUF, f"--prompt={prompt}", "-n", "4", "--temperature", "0").stdout
    t.run("generate", GGUF, "-p", "a", "-n", "-1", "-c", "40", "--ignore-eos", "--temperature", "0",
          err=r"ended by length: the full context of 40 tokens \(--ctx\)")
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


def first_line(t, *args, model=GGUF):
    return t.run("generate", model, "--prompt", "The", "--max-tokens", "2", *args).stderr.splitlines()[0]


def case_the_first_line_says_how_tokens_are_chosen(t):
    drawn = "sampling: temperature 0.8, top-k 40, top-p 0.95, min-p 0.05 (kpd's defaults); seed 5"
    assert first_line(t, "--seed", "5") == drawn, first_line(t, "--seed", "5")
    assert re.fullmatch(r"sampling: temperature 0\.8, .*; seed (\d+) \(repeat with --seed \1\)", first_line(t))
    assert first_line(t, "--temperature", "0") == "sampling: greedy (--temperature 0)"
    line = first_line(t, "--temperature", "1.5", "--top-k", "3", "--seed", "5")
    assert line == "sampling: temperature 1.5, top-k 3 (command line), top-p 0.95, min-p 0.05 (kpd's defaults); seed 5", line
    row = generate(t, "--prompt", "The", "--max-tokens", "2", "--seed", "5")
    assert {k: row[k] for k in ("temperature", "top_k", "top_p", "min_p", "seed")} == \
        {"temperature": .8, "top_k": 40, "top_p": .95, "min_p": .05, "seed": 5}, row
    assert generate(t, "--prompt", "The", "--seed", row["seed"])["text"] == generate(t, "--prompt", "The", "--seed", 5)["text"]


def case_sampling_is_the_files_own(t):
    shutil.copytree(FOLDER, t.path("hf"))
    t.path("hf/generation_config.json").write_text(json.dumps({"do_sample": True, "temperature": 1.5, "top_k": 1, "top_p": .9}))
    line = first_line(t, "--seed", "1", model="hf")
    assert line == "sampling: temperature 1.5, top-k 1, top-p 0.9 (generation_config.json); seed 1", line
    a = ["--prompt", "The", "--max-tokens", "20"]
    greedy = generate(t, *a)["text"]
    # What the folder asks for gives way to a temperature of 0; what the command line asks for does not.
    assert generate(t, *a, "--temperature", "0", model="hf")["text"] == greedy
    t.run("generate", "hf", *a, "--temperature", "0", "--top-p", "0.9", exit=2, err=r"--top-p 0\.9: needs --temperature above 0")
    assert generate(t, *a, "--seed", "1", model="hf")["text"] == greedy  # the most probable of one
    assert generate(t, *a, "--seed", "1", "--top-k", "0", "--top-p", "1", model="hf")["text"] != greedy
    t.path("hf/generation_config.json").write_text(json.dumps({"do_sample": False}))
    line = first_line(t, model="hf")
    assert line == "sampling: greedy (generation_config.json)", line
    t.run("generate", "hf", *a, "--top-p", "0.9", exit=2, err=r"--top-p 0\.9: needs --temperature above 0")


def case_full_context_ends_by_length(t):
    prompt = EXPECTED[0]["prompt"]
    row = generate(t, "--prompt", prompt, "--ctx", "32", "--ignore-eos")
    assert row["finish_reason"] == "length" and row["prompt_tokens"] + row["tokens"] <= 33, row
    shifted = generate(t, "--prompt", prompt, "--ctx", "32", "--ignore-eos", "--context-shift", "--max-tokens", "60")
    assert shifted["tokens"] == 60 and shifted["text"].startswith(row["text"][:8]), (row, shifted)


def case_bench_keys(t):
    done = t.run("bench", GGUF, "--prompt", "32", "--generate", "4", "--depth", "16", "--repetitions", "2", "--threads", "2", "--json")
    prompt, one_by_one = rows(done)
    for row, n_prompt, n_gen in ((prompt, 32, 0), (one_by_one, 0, 4)):
        assert (row["n_prompt"], row["n_gen"], row["n_depth"], row["n_threads"]) == (n_prompt, n_gen, 16, 2), row
        assert row["avg_ts"] > 0 and row["stddev_ts"] >= 0 and row["model_n_params"] > 20000, row
        assert row["model_type"] == "llama 0.0M BF16", row


def tables(done):
    """The rows of csv, or of a markdown table as dictionaries of texts."""
    if not done.stdout.startswith("|"):
        return list(csv.DictReader(io.StringIO(done.stdout)))
    lines = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in done.stdout.split("\n\n")[0].splitlines()]
    return [dict(zip(lines[0], line)) for line in lines[2:]]


def case_bench_tables(t):
    line = ["bench", "-m", GGUF, "-p", "32", "-n", "4", "-r", "2", "-d", "16", "-t", "2", "--format"]
    done = t.run(*line, "markdown", out=r"(?s)^\| model \| size \| params \| backend \| threads \| test \| t/s \|\n\|---\|---:\|.*\n\nbuild: kpd ")
    prompt, one_by_one = tables(done)
    assert (prompt["test"], one_by_one["test"], prompt["threads"], prompt["backend"]) == ("pp32 @ d16", "tg4 @ d16", "2", "CPU"), done.stdout
    assert re.fullmatch(r"[\d.]+ \u00b1 [\d.]+", prompt["t/s"]) and re.fullmatch(r"[\d.]+ KiB", prompt["size"]), prompt
    exact, = [r for r in tables(t.run(*line, "csv")) if r["n_prompt"] == "32"]
    json_row = rows(t.run(*line[:-1], "--json"))[0]
    assert set(json_row) < set(exact) and float(exact["avg_ts"]) > 0, (exact, json_row)
    for key in ("model_n_params", "model_size", "n_depth", "n_threads", "n_batch"):
        assert int(exact[key]) == json_row[key], (key, exact, json_row)


def case_eval_tables(t):
    line = ["eval", GGUF, "--text", TEXT, "-c", "64", "--windows", "4", "--protocol", "paper", "--protocol", "llama.cpp"]
    want = rows(t.run(*line, "--json"))
    for got, row in zip(tables(t.run(*line, "--format", "csv")), want):
        assert set(got) == set(row) - {"buckets"}, got
        for key in ("ctx", "windows", "tokens", "ppl", "ppl_stderr"):
            assert float(got[key]) == row[key], (key, got, row)
    markdown = tables(t.run(*line, "--format", "markdown"))
    assert [(r["protocol"], r["ppl"]) for r in markdown] == [(r["protocol"], f"{r['ppl']:.4f}") for r in want], markdown
    compared, = tables(t.run("eval", GGUF, "--text", TEXT, "-c", "64", "--windows", "1", "--reference", FOLDER, "--format", "csv"))
    assert all(abs(float(compared[k])) < 1e-9 for k in COMPARED_KEYS if k != "same_top1") and float(compared["same_top1"]) == 1, compared
    data = write_tasks(t)
    for task in ("piqa", "lambada"):
        task_line = ["eval", GGUF, "--task", task, "--data", data[task]]
        row, = rows(t.run(*task_line, "--json"))
        got, = tables(t.run(*task_line, "--format", "csv"))
        assert set(got) == set(row) and float(got["acc"]) == row["acc"], (got, row)


def case_eval_reads_standard_input(t):
    line = ["-c", "64", "--windows", "2", "--json"]
    a, = rows(t.run("eval", GGUF, "--text", TEXT, *line))
    for name in ("-", "/dev/stdin"):
        b, = rows(t.run("eval", "-m", GGUF, "--text", name, *line, input=TEXT.read_text()))
        assert figures(a) == figures(b), (a, b)


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


def case_export_a_tokenizer(t):
    t.run("export", GGUF, "--tokenizer", "out", out=r"out: tokenizer\.json")
    assert sorted(p.name for p in t.path("out").iterdir()) == ["tokenizer.json", "tokenizer_config.json"]
    before = t.path("out/tokenizer_config.json").read_bytes()
    t.path("out/tokenizer.json").unlink()
    t.path("out/tokenizer_config.json").write_bytes(b"mine")  # neither is replaced unasked, nor the other written beside it
    t.run("export", GGUF, "--tokenizer", "out", exit=2, err=r"out/tokenizer_config\.json: is there already; --force replaces it")
    assert t.path("out/tokenizer_config.json").read_bytes() == b"mine" and not t.path("out/tokenizer.json").exists()
    t.run("export", GGUF, "--tokenizer", "out", "--force")
    assert t.path("out/tokenizer_config.json").read_bytes() == before
    exported = json.loads(t.path("out/tokenizer.json").read_text())["model"]["vocab"]
    original = json.loads((FOLDER / "tokenizer.json").read_text())["model"]["vocab"]
    assert all(exported[token] == id for token, id in original.items()), exported
    # The folder with the exported tokenizer answers as the original does.
    for name in ("config.json", "model.safetensors"):
        t.path("out").joinpath(name).write_bytes((FOLDER / name).read_bytes())
    row = generate(t, "--chat", "--prompt", EXPECTED[3]["prompt"], "--max-tokens", "96", model="out")
    assert (row["text"], row["finish_reason"]) == (EXPECTED[3]["text"], "stop"), row
    t.run("export", FOLDER / "model.safetensors", "--tokenizer", "x", exit=3, err=r"no GGUF file")


def case_export_a_model_both_ways(t):
    prompt = ("--chat", "--prompt", EXPECTED[3]["prompt"], "--max-tokens", "96")
    t.run("export", FOLDER, "m.gguf", out=r"m\.gguf: written, .* of tensors in BF16")
    t.run("export", "m.gguf", "folder", "--to", "safetensors", "--dtype", "f32", out=r"folder: written, .* of tensors in F32")
    assert {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"} == {p.name for p in t.path("folder").iterdir()}
    for model in ("m.gguf", "folder"):
        row = generate(t, *prompt, model=model)
        assert (row["text"], row["finish_reason"]) == (EXPECTED[3]["text"], "stop"), row
    t.run("export", "m.gguf", "folder", "--to", "safetensors", exit=2, err=r"folder: is there already; --force replaces it")
    t.run("export", "m.gguf", "folder", "--to", "safetensors", "--dtype", "f16", "--shard", "20kB", "--force")
    assert t.path("folder/model.safetensors.index.json").exists() and not t.path("folder/model.safetensors").exists()
    t.path("folder/notes.txt").write_text("mine")
    t.run("export", "m.gguf", "folder", "--to", "safetensors", "--force", exit=2, err=r"OUT: folder: holds 'notes\.txt'")
    t.run("export", FOLDER, "/dev/full", "--to", "gguf", exit=1, err=r"no space left")
    t.run("export", GOLDEN / "models/gemma2", "no.gguf", "--dtype", "f32", exit=3, err=r"GGUF's gemma2 has no key that says the scale of attention")
    assert sorted(p.name for p in t.path(".").iterdir()) == ["folder", "m.gguf"], list(t.path(".").iterdir())


def case_the_guides_example_is_the_one_that_is_compiled(t):
    root = GOLDEN.parent.parent
    shown = re.search(r"```cpp\n(.*?)```", (root / "docs/guide/llm.md").read_text(), re.S)[1]
    assert shown == (root / "examples/generate.cc").read_text()


if __name__ == "__main__":
    run_cases(globals())
