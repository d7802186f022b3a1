#!/usr/bin/env python3
"""kpd plan: bytes of weights in the formats that people have, of the cache, and what holds them."""
import json
import math
import pathlib
import re
import subprocess

from run_cli_tests import run_cases

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "golden" / "models" / "chat"
GGUF = FOLDER / "model.gguf"
LLAMA_8B = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
            "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "rms_norm_eps": 1e-5,
            "max_position_embeddings": 8192, "rope_theta": 500000.0, "hidden_act": "silu", "tie_word_embeddings": False}
# Bits a weight of Llama 3.1 8B that llama.cpp states (tools/quantize/README.md).
STATED = {"Q2_K_S": 2.9697, "Q2_K": 3.1593, "Q3_K_S": 3.6429, "Q3_K_L": 4.2979, "IQ4_XS": 4.4597, "Q4_K_S": 4.6672, "Q4_K_M": 4.8944, "Q5_K_S": 5.5704,
          "Q5_K_M": 5.7036, "Q6_K": 6.5633, "Q8_0": 8.5008, "F16": 16.0005}
# What the files hold that Qwen and Google publish: tensors' bytes.
QWEN_05B = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
            "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936, "rms_norm_eps": 1e-6, "max_position_embeddings": 32768,
            "rope_theta": 1000000.0, "hidden_act": "silu", "tie_word_embeddings": False}


def plan(t, *args):
    row, = [json.loads(line) for line in t.run("plan", *args, "--json").stdout.splitlines()]
    return row, {w["format"]: w for w in row["weights"]}


def config(t, values):
    t.path("config.json").write_text(json.dumps(values))
    return "config.json"


USAGE = [
    (["plan"], r"either MODEL .* or --params N"),
    (["plan", GGUF, "--params", "1B"], r"either MODEL .* or --params N"),
    (["plan", "--params", "1X"], r"--params 1X: expected a number of parameters"),
    (["plan", "--params", "1B", "--memory", "80"], r"--memory 80: expected a size"),
    (["plan", "--params", "1B", "--memory", "80GBx0"], r"--memory 0"),
    (["plan", "--params", "1B", "--system", "1"], r"--system 1: expected a size"),
    (["plan", GGUF, "--batch", "0"], r"--batch 0"),
]


def case_wrong_command_lines(t):
    for line, expected in USAGE:
        done = subprocess.run([t.program, *map(str, line)], capture_output=True, text=True, cwd=t.folder, timeout=60)
        assert done.returncode == 2 and done.stdout == "" and re.search(expected, done.stderr.splitlines()[-1]), (line, done)


def case_mixes_have_the_bits_that_llama_cpp_states(t):
    _, weights = plan(t, config(t, LLAMA_8B))
    for name, bits in STATED.items():
        assert abs(weights[name]["bits"] - bits) < 6e-5, (name, bits, weights[name])
    # A bare number of parameters has the bits of such a model.
    _, like = plan(t, "--params", "8B")
    assert all(math.isclose(like[n]["bits"], weights[n]["bits"], rel_tol=1e-3) for n in STATED), like


def case_mixes_of_rows_that_are_no_whole_blocks(t):
    # qwen2.5-coder-0.5b-instruct-q4_k_m.gguf: 462.96 MiB of tensors, a head of its own.
    _, weights = plan(t, config(t, QWEN_05B))
    assert weights["Q4_K_M"]["bytes"] == 485452288, weights["Q4_K_M"]


def case_340_billion(t):
    row, weights = plan(t, "--params", "340B", "--memory", "80GBx8")
    t.run("plan", "--params", "340B", "--memory", "80GBx8", out=r"^340B parameters; memory: 80GBx8,")
    assert row["parameters"] == 340e9 and row["memory"]["bytes"] == 640e9, row
    assert weights["BF16"]["bytes"] == 680e9 and not weights["BF16"]["fits"] and weights["BF16"]["units_needed"] == 9, weights
    two = weights["2 bits"]
    assert two["bytes"] == 85e9 and two["fits"] and two["held_by"] == "96 GB, or 2 x 80 GB", two
    t.run("plan", "--params", "340B", "--memory", "80GBx8", out=r"BF16 .*680 GB = 633\.\d GiB +does not fit: .*2 nodes of 8 x 80 GB")


def case_of_a_model(t):
    row, weights = plan(t, GGUF, "--ctx", "1000", "--batch", "3")
    inspected = json.loads(t.run("inspect", GGUF, "--json").stdout)
    assert weights["as stored"]["bytes"] == sum(x["bytes"] for x in inspected["types"])
    # 1000 tokens in blocks of 64, 2 layers, keys and values, 2 heads of 8
    half = 3 * 1024 * 2 * 2 * 16 * 2
    assert {c["kv"]: c["bytes"] for c in row["caches"]} == {"f32": 2 * half, "f16": half, "bf16": half}, row["caches"]
    assert all(w["fits"] for w in weights.values()), weights
    of_config, _ = plan(t, FOLDER / "config.json")
    assert of_config["parameters"] == row["parameters"] and of_config["ctx"] == 256 and of_config["caches"], of_config
    folder, _ = plan(t, "-m", FOLDER, "-c", "256")
    assert folder["parameters"] == row["parameters"] and folder["caches"] == of_config["caches"], folder
    # The cache that generate announces.
    said = t.run("generate", GGUF, "--prompt", "a", "--temperature", "0", "-n", "1", "-c", "200").stderr
    kib = plan(t, GGUF, "-c", "200")[0]["caches"][1]["bytes"] / 1024
    assert f"cache of keys and values: f16, 200 tokens, {kib:.1f} KiB when full\n" in said, (said, kib)


def case_the_system_has_its_share(t):
    _, tight = plan(t, "--params", "1B", "--memory", "2GB", "--system", "0GB")
    _, usual = plan(t, "--params", "1B", "--memory", "2GB")
    assert tight["BF16"]["fits"] and not usual["BF16"]["fits"] and usual["Q6_K"]["fits"], usual
    assert usual["BF16"]["held_by"] == "4 GB", usual
    _, small = plan(t, GGUF, "--memory", "0.05MB", "--system", "0MB", "--ctx", "1")
    assert small["Q4_0"]["fits"] and not small["F32"]["fits"], small
    here, _ = plan(t, "--params", "1B")
    assert 0 < here["memory"]["system_bytes"] < here["memory"]["bytes"], here


def case_sliding_windows(t):
    values = dict(LLAMA_8B, architectures=["MistralForCausalLM"], model_type="mistral", sliding_window=1024)
    row, _ = plan(t, config(t, values), "--ctx", "4096")
    f16 = row["caches"][1]
    assert f16["bytes"] == 4096 * 32 * 2 * 8 * 128 * 2 and f16["bytes_in_windows"] == f16["bytes"] / 4, f16
    t.run("plan", "config.json", "--ctx", "4096", out=r"32 of 32 layers see a sliding window only; kpd keeps all of them whole")


if __name__ == "__main__":
    run_cases(globals())
