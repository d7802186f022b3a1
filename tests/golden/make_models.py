#!/usr/bin/env python3
"""Makes tests/golden/models: for each family a tiny random model as transformers writes it, and its logits on 64 tokens.

    python make_models.py [FOLDER]        needs torch, transformers, safetensors, gguf

The committed files were made with transformers 5.24.0, torch 2.15.0, gguf 0.19.0. Weights are random numbers rounded to bfloat16;
the logits are computed from them in float32, with eager attention.
"""
import json
import pathlib
import sys

import torch
import transformers as tf
from gguf_models import write_gguf
from safetensors.torch import save_file

VOCABULARY, TOKENS = 96, 64
SHAPE = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=32)
LLAMA3 = dict(rope_type="llama3", rope_theta=50000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
LONG = dict(rope_type="longrope", rope_theta=10000.0, short_factor=[1.0, 1.1, 1.2, 1.3], long_factor=[1.5, 2.0, 3.0, 4.0],
            original_max_position_embeddings=32)
GEMMA = dict(head_dim=16, sliding_window=16, query_pre_attn_scalar=12)

CASES = {
    "llama": (tf.LlamaConfig, dict(tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=10000.0))),
    "llama3_rope": (tf.LlamaConfig, dict(rope_parameters=LLAMA3, attention_bias=True, mlp_bias=True)),
    "llama_linear": (tf.LlamaConfig, dict(rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.0))),
    "llama_dynamic": (tf.LlamaConfig, dict(max_position_embeddings=32, rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, factor=2.0))),
    "mistral": (tf.MistralConfig, dict(sliding_window=16, head_dim=16)),
    "smollm3": (tf.SmolLM3Config, dict(num_hidden_layers=4, no_rope_layers=[1, 1, 1, 0], tie_word_embeddings=True, use_sliding_window=False)),
    "qwen2": (tf.Qwen2Config, dict(tie_word_embeddings=True)),
    "qwen2_window": (tf.Qwen2Config, dict(use_sliding_window=True, sliding_window=16, max_window_layers=1, rope_parameters=YARN)),
    "qwen3": (tf.Qwen3Config, dict(head_dim=16)),
    "gemma2": (tf.Gemma2Config, dict(**GEMMA, attn_logit_softcapping=5.0, final_logit_softcapping=8.0)),
    "gemma3": (tf.Gemma3TextConfig, dict(**GEMMA, num_hidden_layers=7, rope_parameters=dict(
        full_attention=dict(rope_type="linear", rope_theta=1000000.0, factor=2.0),
        sliding_attention=dict(rope_type="default", rope_theta=10000.0)))),
    "phi3": (tf.Phi3Config, dict(sliding_window=48, rope_parameters=LONG, original_max_position_embeddings=32)),
}
# Later cases stand below the earlier ones, whose seeds follow from their places.
OLMO3 = dict(full_attention={**YARN, "attention_factor": 1.2}, sliding_attention=dict(rope_type="default", rope_theta=10000.0))
GRANITE = dict(embedding_multiplier=3.0, logits_scaling=4.0, residual_multiplier=0.4, attention_multiplier=0.2, tie_word_embeddings=True)
CASES |= {
    "gemma": (tf.GemmaConfig, dict(head_dim=16)),
    "gemma3_softcap": (tf.Gemma3TextConfig, dict(head_dim=16, sliding_window=16, query_pre_attn_scalar=16, final_logit_softcapping=8.0, num_hidden_layers=6)),
    "smollm3_window": (tf.SmolLM3Config, dict(num_hidden_layers=4, use_sliding_window=True, sliding_window=16, no_rope_layer_interval=2, tie_word_embeddings=True)),
    "ministral": (tf.MinistralConfig, dict(sliding_window=16, head_dim=16, layer_types=["full_attention", "sliding_attention", "sliding_attention"])),
    "ministral3": (tf.Ministral3Config, dict(head_dim=16, tie_word_embeddings=True, rope_parameters={
        **YARN, "original_max_position_embeddings": 16, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1, "beta_fast": 16.0, "beta_slow": 0.5})),
    "granite": (tf.GraniteConfig, GRANITE),
    "granite4": (tf.GraniteMoeHybridConfig, dict(
        **GRANITE, num_local_experts=0, num_experts_per_tok=0, shared_intermediate_size=48, layer_types=["full_attention"] * 3, position_embedding_type="rope",
        mamba_n_heads=4, mamba_d_head=16)),
    "granite4_unrotated": (tf.GraniteMoeHybridConfig, dict(
        **GRANITE, num_local_experts=0, num_experts_per_tok=0, shared_intermediate_size=48, layer_types=["full_attention"] * 3, mamba_n_heads=4, mamba_d_head=16)),
    "olmo2": (tf.Olmo2Config, dict()),
    "olmo3": (tf.Olmo3Config, dict(num_hidden_layers=4, sliding_window=16, rope_parameters=OLMO3)),
}
GGUF_CASES = {"llama": "llama", "qwen2": "qwen2", "phi3": "phi3", "llama3_rope": "llama", "smollm3": "smollm3", "qwen3": "qwen3", "gemma": "gemma",
              "gemma3_softcap": "gemma3", "ministral3": "mistral3", "granite": "granite", "granite4": "granite", "granite4_unrotated": "granite",
              "olmo2": "olmo2", "olmo3": "olmo2"}


def randomize(model, seed):
    generator = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        draw = torch.randn(p.shape, generator=generator)
        if "norm" in name:
            draw = draw * 0.2 + (0.0 if "Gemma" in type(model).__name__ else 1.0)
        elif "embed" in name:
            draw = draw * 0.7
        elif "bias" in name:
            draw = draw * 0.3
        else:
            draw = draw * 1.2 / p.shape[-1] ** 0.5
        p.data = draw.to(torch.bfloat16).to(torch.float32)


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "models")
    tokens = torch.randint(3, VOCABULARY, (1, TOKENS), generator=torch.Generator().manual_seed(7))
    for i, (name, (config_class, options)) in enumerate(CASES.items()):
        config = config_class(**{**SHAPE, **options})
        config._attn_implementation = "eager"
        model = tf.AutoModelForCausalLM.from_config(config).float().eval()
        randomize(model, 100 + i)
        with torch.no_grad():
            logits = model(tokens).logits[0].contiguous()
        folder = root / name
        folder.mkdir(parents=True, exist_ok=True)
        state = {k: v for k, v in model.state_dict().items() if not (config.tie_word_embeddings and k == "lm_head.weight")}
        save_file({k: v.to(torch.bfloat16).contiguous() for k, v in state.items()}, folder / "model.safetensors")
        config.architectures = [type(model).__name__]
        (folder / "config.json").write_text(json.dumps(config.to_diff_dict(), indent=1, sort_keys=True) + "\n")
        save_file({"tokens": tokens[0].float(), "logits": logits}, folder / "logits.safetensors")
        if name in GGUF_CASES:
            write_gguf(folder / "model.gguf", GGUF_CASES[name], config, state, bf16=name not in ("llama", "qwen2"), plain=name not in ("llama", "qwen2", "phi3"))
        print(name, type(model).__name__, f"largest logit {logits.abs().max():.3f}")


main()
