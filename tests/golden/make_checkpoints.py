#!/usr/bin/env python3
"""Makes tests/golden/checkpoints: for each of published_configs.py a file with its config.json, shrunk, and what transformers computes by it.

    python make_checkpoints.py [FOLDER]        needs torch, torchvision where transformers asks for it, transformers, safetensors

A file is one JSON object: "config" (the keys as published, small sizes), "tensors" (name: shape, scale, offset), "tokens", "rows" and "logits" of these rows.
Weights are not stored: value i of a tensor is float32(scale * u + offset), u = 2 (h >> 40) / 2^24 - 1, h = splitmix64(fnv1a64(name) + i).
The committed files were made with transformers 5.24.0, torch 2.15.0.
"""
import copy
import json
import pathlib
import sys
import tempfile

import numpy as np
import torch
import transformers as tf
from published_configs import PUBLISHED
from safetensors import safe_open

VOCABULARY, WIDTH, TOKENS = 64, 32, 48
ROWS = [0, 5, 17, 31, 40, 47]


def values(name, shape, scale, offset):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    with np.errstate(over="ignore"):
        z = np.uint64(h) + np.arange(int(np.prod(shape)), dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    u = 2.0 * (z >> np.uint64(40)).astype(np.float64) / 16777216.0 - 1.0
    return (scale * u + offset).astype(np.float32).reshape(shape)


def scale_of(name, shape, gemma):
    if "norm" in name:
        return 0.35, 0.0 if gemma else 1.0
    if "embed_tokens" in name:
        return 1.2, 0.0
    return (0.5, 0.0) if len(shape) == 1 else (round(2.0 / shape[-1]**0.5, 6), 0.0)


def shrink_text(c):
    """Small sizes in the proportions that decide what is computed."""
    heads, kv = c.get("num_attention_heads"), c.get("num_key_value_heads")
    if "head_dim" in c:
        c["head_dim"] = 8 if c["head_dim"] * (heads or 0) == c["hidden_size"] else 16
    c["hidden_size"], c["intermediate_size"] = WIDTH, 48
    if "shared_intermediate_size" in c:
        c["shared_intermediate_size"] = 48
    if heads:
        c["num_attention_heads"], c["num_key_value_heads"] = 4, 4 if kv == heads else 1 if kv == 1 else 2
    if "vocab_size" in c:
        c["vocab_size"] = VOCABULARY
    layers = 6 if "head_dim" not in c and c["model_type"] == "gemma3_text" else {"gemma3_text": 7, "smollm3": 4, "olmo3": 4, "gemma2": 3}.get(c["model_type"], 2)
    c["num_hidden_layers"] = layers
    for key in ("layer_types", "no_rope_layers"):
        if key in c:
            c[key] = c[key][:layers]
    rope = c.get("rope_scaling") or c.get("rope_parameters") or {}
    context = c.get("max_position_embeddings", 131072)
    original = rope.get("original_max_position_embeddings", c.get("original_max_position_embeddings"))
    ratio = (16 if c["model_type"] == "ministral3" else 32) / original if original else 64 / context
    for part in (c, rope):
        for key in ("max_position_embeddings", "original_max_position_embeddings"):
            if key in part:
                part[key] = int(part[key] * ratio)
    if c.get("sliding_window"):
        c["sliding_window"] = max(8, int(c["sliding_window"] * ratio))
    for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
        if c.get(key) is not None:
            c[key] = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}[key]
    if c["model_type"].startswith("granitemoe"):
        c.update(mamba_n_heads=4, mamba_d_head=16)


def shrink(published):
    c = copy.deepcopy(published)
    if "text_config" not in c:
        shrink_text(c)
        return c
    text = c["text_config"]
    shrink_text(text)
    # What a text_config leaves out is what the class takes: full width, but few values beside it.
    if "head_dim" not in text and text["model_type"] == "gemma3_text":
        text.update(vocab_size=VOCABULARY)
    c["image_token_index"] = VOCABULARY - 1
    c["vision_config"].update(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14)
    if c["model_type"] == "gemma3":
        c.update(boi_token_index=VOCABULARY - 2, eoi_token_index=VOCABULARY - 3, mm_tokens_per_image=1, eos_token_id=2)
    if c["model_type"] == "mistral3":
        c["vision_config"].update(head_dim=8)
    return c


def make(name, published):
    config_json = shrink(published)
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "config.json").write_text(json.dumps(config_json))
        config = tf.AutoConfig.from_pretrained(folder)
        config._attn_implementation = "eager"
        model_class = getattr(tf, config_json["architectures"][0])
        model = model_class._from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
        model.save_pretrained(folder)
        gemma = "gemma" in config_json["model_type"]
        tensors = {}
        with safe_open(str(pathlib.Path(folder, "model.safetensors")), "pt") as f:
            for key in f.keys():
                shape = f.get_slice(key).get_shape()
                tensors[key] = [shape, *scale_of(key, shape, gemma)]
        from safetensors.torch import save_file
        save_file({k: torch.from_numpy(values(k, *v)) for k, v in tensors.items()}, str(pathlib.Path(folder, "model.safetensors")), metadata={"format": "pt"})
        pathlib.Path(folder, "config.json").write_text(json.dumps(config_json))
        model = model_class.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    tokens = torch.randint(3, VOCABULARY - 4, (1, TOKENS), generator=torch.Generator().manual_seed(11))
    with torch.no_grad():
        logits = model(input_ids=tokens).logits[0]
    largest = logits.abs().max().item()
    # Of the towers beside a text half two tensors are enough: they must be passed over.
    towers = [k for k in tensors if "vision" in k or "projector" in k]
    for key in towers[2:]:
        del tensors[key]
    print(f"{name:32} {model_class.__name__:36} largest logit {largest:.3f}, {len(tensors)} tensors")
    return {"config": config_json, "tensors": tensors, "tokens": tokens[0].tolist(), "rows": ROWS,
            "logits": [[float(f"{v:.7g}") for v in logits[r].tolist()] for r in ROWS]}


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "checkpoints")
    root.mkdir(parents=True, exist_ok=True)
    for name, published in PUBLISHED.items():
        made = make(name, published)
        lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in made.items()]
        (root / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


main()
