#!/usr/bin/env python3
"""Records tests/golden/shards/: a tiny random model as transformers saves it in shards, for tests/io/weights_test.cc.

Usage: tests/golden/make_shards.py   (needs torch, transformers and safetensors; shards/versions.txt says which ones wrote the files)

sums.txt has the sum of each tensor's bits as little-endian 16-bit words, in the model's own order.
"""
import importlib.metadata
import pathlib
import sys

import numpy as np
import torch
import transformers

FOLDER = pathlib.Path(__file__).resolve().parent / "shards"


def main():
    torch.manual_seed(1)
    config = transformers.LlamaConfig(vocab_size=32, hidden_size=8, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
                                      num_key_value_heads=1, max_position_embeddings=32, tie_word_embeddings=False)
    model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(FOLDER, max_shard_size=1500)
    for name in ("config.json", "generation_config.json"):
        (FOLDER / name).unlink(missing_ok=True)
    for path in FOLDER.glob("*.safetensors"):
        path.chmod(0o644)
    lines = []
    for name, value in model.state_dict().items():
        words = value.contiguous().view(torch.int16).numpy().view(np.uint16)
        lines.append(f"{name} {'x'.join(str(d) for d in value.shape)} {int(words.astype(np.uint64).sum())}\n")
    (FOLDER / "sums.txt").write_text("".join(lines))
    versions = [f"{p} {importlib.metadata.version(p)}" for p in ("transformers", "safetensors")] + [f"torch {torch.__version__}"]
    (FOLDER / "versions.txt").write_text("\n".join(versions) + "\n")
    print("\n".join(sorted(p.name for p in FOLDER.iterdir())))


if __name__ == "__main__":
    sys.exit(main())
