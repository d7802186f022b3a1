#!/usr/bin/env python3
"""What kpd exports, as transformers and llama.cpp read it: logits and perplexity, as a table.

    python tests/golden/check_export.py build/release/bin/kpd [MODEL ...] [--text wiki.test.txt] [--perplexity llama-perplexity]

Needs torch, transformers, and llama_cpp (llama-cpp-python, its compiled library where LLAMA_CPP_LIB_PATH says; left out visibly without). The golden models
of tests/golden/models are always checked: their logits are transformers' own. Of each MODEL the two exports are compared with each other, and perplexities.
"""
import argparse
import ctypes
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors.torch import load_file

try:
    import llama_cpp
except ImportError as problem:
    llama_cpp = None
    print(f"llama.cpp is left out: {problem}", file=sys.stderr)

MODELS = pathlib.Path(__file__).parent / "models"
# Models that GGUF has no name for as they are, and what makes them so.
CHANGED = {"mistral": {"sliding_window": None}, "ministral": {"layer_types": ["full_attention"] * 3},
           "qwen2_window": {"layer_types": ["full_attention"] * 3, "use_sliding_window": False}, "gemma2": {"query_pre_attn_scalar": 16},
           "gemma3": {"query_pre_attn_scalar": 16}}
FOLDER_ONLY = ("llama_dynamic", "smollm3_window")


def export(kpd, *args):
    subprocess.run([kpd, "export", *map(str, args)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def of_transformers(folder, tokens, dtype=torch.float32):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].float().numpy()


def of_llama_cpp(path, tokens):
    parameters = llama_cpp.llama_model_default_params()
    parameters.use_mmap = True
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
    if not model:
        raise RuntimeError(f"{path}: llama.cpp does not load it")
    settings = llama_cpp.llama_context_default_params()
    settings.n_ctx = settings.n_batch = settings.n_ubatch = max(len(tokens), 64)
    settings.type_k = settings.type_v = 0  # F32
    settings.flash_attn_type = 0
    context = llama_cpp.llama_init_from_model(model, settings)
    batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    for i, token in enumerate(tokens):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, 1
        batch.seq_id[i][0] = 0
    assert llama_cpp.llama_decode(context, batch) == 0
    n = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    logits = np.stack([np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, i), shape=(n,)).copy() for i in range(len(tokens))])
    llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return logits


def distance(a, b):
    """The largest difference of a logit, by the largest logit."""
    return float(np.abs(a - b).max() / np.abs(b).max())


def changed(name, folder):
    source = MODELS / name
    if name not in CHANGED:
        return source
    target = folder / f"{name}-changed"
    target.mkdir()
    (target / "model.safetensors").write_bytes((source / "model.safetensors").read_bytes())
    config = json.loads((source / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, **CHANGED[name]}))
    return target


def check_golden(kpd, folder):
    print("| golden model | transformers, of the folder | of the folder made of the GGUF file | llama.cpp, of the GGUF file |\n|---|---|---|---|")
    worst = 0.0
    for logits_file in sorted(MODELS.glob("*/logits.safetensors")):
        name = logits_file.parent.name
        tokens = [int(t) for t in load_file(logits_file)["tokens"]]
        row = []
        export(kpd, MODELS / name, folder / name, "--to", "safetensors", "--dtype", "f32")
        row.append(distance(of_transformers(folder / name, tokens), load_file(logits_file)["logits"].numpy()))
        if name not in FOLDER_ONLY:
            source = changed(name, folder)
            expected = load_file(logits_file)["logits"].numpy() if source.parent == MODELS else of_transformers(source, tokens)
            gguf, back = folder / f"{name}.gguf", folder / f"{name}-back"
            export(kpd, source, gguf, "--dtype", "f32")
            export(kpd, gguf, back, "--to", "safetensors", "--dtype", "f32")
            row.append(distance(of_transformers(back, tokens), expected))
            # llama.cpp has no windows in Phi-3 (48 tokens here), and rotates by the context that it was made for, not by what has been reached.
            n = 32 if name == "phi3" else len(tokens)
            if llama_cpp:
                row.append(distance(of_llama_cpp(gguf, tokens[:n]), expected[:n]))
        worst = max([worst, *row])
        print(f"| {name}{' *' if name in CHANGED else ''} | " + " | ".join(f"{d:.1e}" for d in row + [float("nan")] * (3 - len(row))) + " |", flush=True)
    print(f"\n\\* with {json.dumps(CHANGED)} in the second and third column. Worst: {worst:.1e}\n")
    return worst


def perplexity_of_transformers(folder, text, window, windows, dtype):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    ids = tokenizer(text, return_tensors="pt").input_ids[0]
    losses = []
    with torch.no_grad():
        for i in range(windows):
            part = ids[i * window:(i + 1) * window][None]
            losses.append(model(part, labels=part).loss.float().item())
    return float(np.exp(np.mean(losses)))


def perplexity_of_kpd(kpd, model, text, protocol, window, windows):
    out = subprocess.run([kpd, "eval", model, "--text", text, "--protocol", protocol, "--ctx", str(window), "--windows", str(windows), "--arithmetic", "exact",
                          "--json"], check=True, capture_output=True, text=True).stdout
    return json.loads(out.splitlines()[-1])["ppl"]


def perplexity_of_llama_cpp(program, model, text, window, windows):
    out = subprocess.run([program, "-m", model, "-f", text, "-c", str(window), "--chunks", str(windows), "-b", str(window), "-t", "2"], capture_output=True, text=True)
    line = [l for l in (out.stdout + out.stderr).splitlines() if "Final estimate" in l][0]
    return float(line.split("PPL = ")[1].split()[0])


def check_model(kpd, path, folder, args):
    name = pathlib.Path(path).stem
    print(f"### {name}\n\n| what | value |\n|---|---|")
    gguf, back = folder / f"{name}.gguf", folder / name
    export(kpd, path, gguf, "--dtype", "f32")
    export(kpd, path, back, "--to", "safetensors", "--dtype", "f32")
    tokens = transformers.AutoTokenizer.from_pretrained(back)(pathlib.Path(args.text).read_text()[:2000]).input_ids[:128]
    of_folder = of_transformers(back, tokens)
    if llama_cpp:
        print(f"| largest difference of logits, transformers (folder, f32) and llama.cpp (GGUF, f32), 128 tokens | {distance(of_llama_cpp(gguf, tokens), of_folder):.1e} |", flush=True)
    for dtype, torch_dtype in (("f32", torch.float32), ("f16", torch.float16)):
        if dtype != "f32":
            export(kpd, path, gguf, "--dtype", dtype, "--force")
            export(kpd, path, back, "--to", "safetensors", "--dtype", dtype, "--force")
        ours = perplexity_of_kpd(kpd, str(back), args.text, "paper", args.ctx, args.windows)
        # Half-precision arithmetic on a processor is another thing than half-precision weights.
        theirs = perplexity_of_transformers(back, pathlib.Path(args.text).read_text(), args.ctx, args.windows, torch.float32)
        print(f"| PPL, {dtype}, paper, {args.windows} windows of {args.ctx}: kpd, transformers (folder) | {ours:.4f}, {theirs:.4f} ({theirs / ours - 1:+.2%}) |", flush=True)
        if args.perplexity:
            ours = perplexity_of_kpd(kpd, str(gguf), args.text, "llama.cpp", args.ctx, args.windows)
            theirs = perplexity_of_llama_cpp(args.perplexity, str(gguf), args.text, args.ctx, args.windows)
            print(f"| PPL, {dtype}, llama.cpp, {args.windows} windows of {args.ctx}: kpd, llama-perplexity (GGUF) | {ours:.4f}, {theirs:.4f} ({theirs / ours - 1:+.2%}) |", flush=True)
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kpd")
    parser.add_argument("models", nargs="*")
    parser.add_argument("--text", default=str(pathlib.Path(__file__).parent.parent.parent / "LICENSE"))
    parser.add_argument("--perplexity", help="llama.cpp's llama-perplexity")
    parser.add_argument("--ctx", type=int, default=512)
    parser.add_argument("--windows", type=int, default=4)
    args = parser.parse_args()
    if llama_cpp:
        silent = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as folder:
        worst = check_golden(args.kpd, pathlib.Path(folder))
        for model in args.models:
            check_model(args.kpd, model, pathlib.Path(folder), args)
    sys.exit(0 if worst < 1e-3 else 1)


main()
