"""The config.json of checkpoints that people run, with the keys that their publishers wrote; make_checkpoints.py shrinks the sizes.

Written down from the published files as well as they are known; where a file was changed later, its first form stands here.
"""

BASE = dict(bos_token_id=1, eos_token_id=2, hidden_act="silu", initializer_range=0.02, torch_dtype="bfloat16", use_cache=True)


def llama(hidden, ffn, layers, heads, kv, context, **more):
    return {**BASE, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "intermediate_size": ffn, "num_hidden_layers": layers,
            "num_attention_heads": heads, "num_key_value_heads": kv, "max_position_embeddings": context, "rms_norm_eps": 1e-5, "pretraining_tp": 1,
            "rope_scaling": None, "tie_word_embeddings": False, "transformers_version": "4.42.3", "vocab_size": 32000, **more}


def llama3(hidden, ffn, layers, heads, kv, context, **more):
    return llama(hidden, ffn, layers, heads, kv, context, **{"attention_bias": False, "attention_dropout": 0.0, "mlp_bias": False, "rope_theta": 500000.0,
                                                           "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "vocab_size": 128256, **more})


def llama3_rope(factor):
    return {"factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"}


def qwen(kind, hidden, ffn, layers, heads, kv, context, **more):
    return {**BASE, "architectures": [f"{kind}ForCausalLM"], "model_type": kind.lower(), "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645,
            "hidden_size": hidden, "intermediate_size": ffn, "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv,
            "max_position_embeddings": context, "rms_norm_eps": 1e-6, "use_sliding_window": False, "transformers_version": "4.43.1", "vocab_size": 151936, **more}


def qwen2(hidden, ffn, layers, heads, kv, **more):
    return qwen("Qwen2", hidden, ffn, layers, heads, kv, more.pop("context", 32768),
                **{"max_window_layers": layers, "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": True, **more})


def qwen3(hidden, ffn, layers, heads, **more):
    return qwen("Qwen3", hidden, ffn, layers, heads, 8, more.pop("context", 40960),
                **{"attention_bias": False, "head_dim": 128, "max_window_layers": layers, "rope_scaling": None, "rope_theta": 1000000, "sliding_window": None,
                   "tie_word_embeddings": True, "transformers_version": "4.51.0", **more})


def smollm2(hidden, ffn, layers, heads, kv, **more):
    return llama(hidden, ffn, layers, heads, kv, 8192, **{
        "attention_bias": False, "attention_dropout": 0.0, "is_llama_config": True, "mlp_bias": False, "pad_token_id": 2, "rope_interleaved": False, "rope_theta": 100000,
        "tie_word_embeddings": True, "vocab_size": 49152,
        "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16", "fp16": "float16"}}, **more})


def gemma(kind, hidden, ffn, layers, heads, kv, context, **more):
    return {"architectures": [f"{kind}ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 2, "eos_token_id": 1, "head_dim": 256,
            "hidden_size": hidden, "initializer_range": 0.02, "intermediate_size": ffn, "max_position_embeddings": context, "model_type": kind.lower(),
            "num_attention_heads": heads, "num_hidden_layers": layers, "num_key_value_heads": kv, "pad_token_id": 0, "rms_norm_eps": 1e-6, "torch_dtype": "bfloat16",
            "use_cache": True, "vocab_size": 256000, **more}


def gemma3(hidden, ffn, layers, context, **more):
    return gemma("Gemma3", hidden, ffn, layers, 4, 1, context, **{
        "model_type": "gemma3_text", "attn_logit_softcapping": None, "final_logit_softcapping": None, "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 256, "rope_local_base_freq": 10000, "rope_scaling": None, "rope_theta": 1000000, "sliding_window": 512, "vocab_size": 262144, **more})


def phi3(heads, kv, **more):
    return {**BASE, "_name_or_path": "phi", "architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "attention_bias": False, "attention_dropout": 0.0,
            "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config", "AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM"},
            "embd_pdrop": 0.0, "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32, "num_attention_heads": heads,
            "num_key_value_heads": kv, "max_position_embeddings": 131072, "original_max_position_embeddings": 4096, "pad_token_id": 32000, "resid_pdrop": 0.0,
            "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "sliding_window": 262144, "tie_word_embeddings": False, "transformers_version": "4.45.0", "vocab_size": 32064,
            **more}


def phi_rope(long):
    return {"long_factor": long, "short_factor": [1.0] * len(long), "type": "longrope"}


PHI4_MINI = phi3(24, 8, full_attn_mod=1, interpolate_factor=1, lm_head_bias=False, mlp_bias=False, partial_rotary_factor=0.75, tie_word_embeddings=True,
                 vocab_size=200064, bos_token_id=199999, eos_token_id=199999, pad_token_id=199999, rope_scaling=phi_rope([1, 1.118320672, 1.250641126]))
FULL, SLIDING = "full_attention", "sliding_attention"

PUBLISHED = {
    "Llama-2-7B-chat": llama(4096, 11008, 32, 32, 32, 4096, torch_dtype="float16", transformers_version="4.32.0.dev0"),
    "Llama-3-8B-Instruct": llama3(4096, 14336, 32, 32, 8, 8192, eos_token_id=128009, transformers_version="4.40.0.dev0"),
    "Llama-3.1-8B-Instruct": llama3(4096, 14336, 32, 32, 8, 131072, rope_scaling=llama3_rope(8.0)),
    "Llama-3.2-1B-Instruct": llama3(2048, 8192, 16, 32, 8, 131072, head_dim=64, rope_scaling=llama3_rope(32.0), tie_word_embeddings=True),
    "Llama-3.2-3B-Instruct": llama3(3072, 8192, 28, 24, 8, 131072, head_dim=128, rope_scaling=llama3_rope(32.0), tie_word_embeddings=True),
    "Mistral-7B-Instruct-v0.3": {
        **llama(4096, 14336, 32, 32, 8, 32768, architectures=["MistralForCausalLM"], model_type="mistral", attention_dropout=0.0, rope_theta=1000000.0,
                sliding_window=None, vocab_size=32768)},
    "Ministral-8B-Instruct-2410": {
        **llama(4096, 12288, 36, 32, 8, 32768, architectures=["MistralForCausalLM"], model_type="mistral", attention_dropout=0.0, head_dim=128,
                rope_theta=100000000.0, sliding_window=32768, vocab_size=131072)},
    "Ministral-3-3B-Instruct-2512": {
        "architectures": ["Mistral3ForConditionalGeneration"], "dtype": "bfloat16", "image_token_index": 10, "model_type": "mistral3",
        "multimodal_projector_bias": False, "projector_hidden_act": "gelu", "spatial_merge_size": 2,
        "text_config": {
            "attention_dropout": 0.0, "head_dim": 128, "hidden_act": "silu", "hidden_size": 3072, "initializer_range": 0.02, "intermediate_size": 9216,
            "max_position_embeddings": 262144, "model_type": "ministral3", "num_attention_heads": 32, "num_hidden_layers": 26, "num_key_value_heads": 8,
            "rms_norm_eps": 1e-5, "rope_parameters": {
                "beta_fast": 32.0, "beta_slow": 1.0, "factor": 16.0, "llama_4_scaling_beta": 0.1, "mscale": 1.0, "mscale_all_dim": 1.0,
                "original_max_position_embeddings": 16384, "rope_theta": 1000000.0, "rope_type": "yarn", "type": "yarn"},
            "sliding_window": None, "tie_word_embeddings": True, "use_cache": True, "vocab_size": 131072},
        "tie_word_embeddings": True, "transformers_version": "5.0.0.dev0", "vision_config": {"model_type": "pixtral"}, "vision_feature_layer": -1},
    "Qwen2.5-0.5B-Instruct": qwen2(896, 4864, 24, 14, 2),
    "Qwen2.5-1.5B-Instruct": qwen2(1536, 8960, 28, 12, 2),
    "Qwen2.5-3B-Instruct": qwen2(2048, 11008, 36, 16, 2),
    "Qwen2.5-7B-Instruct": qwen2(3584, 18944, 28, 28, 4, tie_word_embeddings=False, sliding_window=131072, vocab_size=152064),
    "Qwen2.5-Coder-7B-Instruct": qwen2(3584, 18944, 28, 28, 4, tie_word_embeddings=False, sliding_window=131072, vocab_size=152064),
    "Qwen2.5-Math-7B-Instruct": qwen2(3584, 18944, 28, 28, 4, context=4096, rope_theta=10000.0, sliding_window=4096, tie_word_embeddings=False, use_mrope=False,
                                      vocab_size=152064),
    "Qwen3-0.6B": qwen3(1024, 3072, 28, 16),
    "Qwen3-1.7B": qwen3(2048, 6144, 28, 16),
    "Qwen3-4B": qwen3(2560, 9728, 36, 32),
    "Qwen3-8B": qwen3(4096, 12288, 36, 32, tie_word_embeddings=False),
    "Qwen3-4B-Instruct-2507": qwen3(2560, 9728, 36, 32, context=262144, rope_theta=5000000),
    "Qwen3-4B-Thinking-2507": qwen3(2560, 9728, 36, 32, context=262144, rope_theta=5000000),
    "DeepSeek-R1-Distill-Qwen-1.5B": qwen2(1536, 8960, 28, 12, 2, context=131072, rope_theta=10000, sliding_window=4096, max_window_layers=21,
                                           tie_word_embeddings=False, use_mrope=False, eos_token_id=151643),
    "DeepSeek-R1-Distill-Qwen-7B": qwen2(3584, 18944, 28, 28, 4, context=131072, rope_theta=10000, sliding_window=4096, tie_word_embeddings=False, use_mrope=False,
                                         eos_token_id=151643, vocab_size=152064),
    "DeepSeek-R1-Distill-Llama-8B": llama3(4096, 14336, 32, 32, 8, 131072, eos_token_id=128001, rope_scaling=llama3_rope(8.0)),
    "SmolLM2-135M-Instruct": smollm2(576, 1536, 30, 9, 3, initializer_range=0.041666666666666664),
    "SmolLM2-360M-Instruct": smollm2(960, 2560, 32, 15, 5),
    "SmolLM2-1.7B-Instruct": smollm2(2048, 8192, 24, 32, 32, rope_theta=130000),
    "SmolLM3-3B": {
        **BASE, "architectures": ["SmolLM3ForCausalLM"], "model_type": "smollm3", "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": None,
        "eos_token_id": 128012, "hidden_size": 2048, "intermediate_size": 11008, "layer_types": [FULL] * 36, "max_position_embeddings": 65536,
        "max_window_layers": 28, "mlp_bias": False, "no_rope_layer_interval": 4, "no_rope_layers": [1, 1, 1, 0] * 9, "num_attention_heads": 16,
        "num_hidden_layers": 36, "num_key_value_heads": 4, "pad_token_id": 128012, "pretraining_tp": 2, "rms_norm_eps": 1e-6, "rope_scaling": None,
        "rope_theta": 5000000.0, "sliding_window": None, "transformers_version": "4.54.0.dev0", "use_sliding_window": False, "vocab_size": 128256},
    "gemma-2b-it": gemma("Gemma", 2048, 16384, 18, 8, 1, 8192, hidden_act="gelu", hidden_activation=None, rope_scaling=None, rope_theta=10000.0,
                         transformers_version="4.38.0.dev0"),
    "gemma-2-2b-it": gemma("Gemma2", 2304, 9216, 26, 8, 4, 8192, attn_logit_softcapping=50.0, cache_implementation="hybrid", eos_token_id=[1, 107],
                           final_logit_softcapping=30.0, hidden_act="gelu_pytorch_tanh", hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=256,
                           rope_theta=10000.0, sliding_window=4096, transformers_version="4.42.4"),
    "gemma-3-270m-it": gemma3(640, 2048, 18, 32768, _sliding_window_pattern=6, layer_types=([SLIDING] * 5 + [FULL]) * 3, use_bidirectional_attention=False,
                              transformers_version="4.55.0.dev0"),
    "gemma-3-1b-it": gemma3(1152, 6912, 26, 32768, cache_implementation="hybrid", eos_token_id=[1, 106], sliding_window_pattern=6,
                            transformers_version="4.50.0.dev0"),
    "gemma-3-4b-it": {
        "architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999, "eoi_token_index": 256000, "eos_token_id": [1, 106],
        "image_token_index": 262144, "initializer_range": 0.02, "mm_tokens_per_image": 256, "model_type": "gemma3",
        "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
                        "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024},
        "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0", "vision_config": {"model_type": "siglip_vision_model", "vision_use_head": False}},
    "Phi-3-mini-4k-instruct": phi3(32, 32, max_position_embeddings=4096, rope_scaling=None, sliding_window=2047, transformers_version="4.40.2"),
    "Phi-3.5-mini-instruct": phi3(32, 32, rope_scaling=phi_rope([1.0800000429153442, 1.1100000143051147, 1.1399999856948853, 1.340000033378601])),
    "Phi-4-mini-instruct": PHI4_MINI,
    "Phi-4-mini-reasoning": PHI4_MINI,
    "TinyLlama-1.1B-Chat-v1.0": llama(2048, 5632, 22, 32, 4, 2048, attention_bias=False, rope_theta=10000.0, transformers_version="4.35.0"),
    "Falcon3-3B-Instruct": llama(3072, 9216, 22, 12, 4, 32768, attention_bias=False, attention_dropout=0.0, bos_token_id=11, eos_token_id=11, head_dim=256,
                                 mlp_bias=False, rms_norm_eps=1e-6, rope_theta=1000042, transformers_version="4.46.1", vocab_size=131072),
    "OLMo-2-1124-7B-Instruct": {
        **BASE, "architectures": ["Olmo2ForCausalLM"], "model_type": "olmo2", "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 100257,
        "eos_token_id": 100257, "hidden_size": 4096, "intermediate_size": 11008, "max_position_embeddings": 4096, "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 32, "pad_token_id": 100277, "rms_norm_eps": 1e-6, "rope_scaling": None, "rope_theta": 500000,
        "tie_word_embeddings": False, "transformers_version": "4.47.0.dev0", "vocab_size": 100352},
    "Olmo-3-7B-Instruct": {
        **BASE, "architectures": ["Olmo3ForCausalLM"], "model_type": "olmo3", "attention_bias": False, "attention_dropout": 0.0, "eos_token_id": 100257,
        "hidden_size": 4096, "intermediate_size": 11008, "layer_types": [SLIDING, SLIDING, SLIDING, FULL] * 8, "max_position_embeddings": 65536,
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "pad_token_id": 100277, "rms_norm_eps": 1e-6,
        "rope_scaling": {"attention_factor": 1.2079441541679836, "beta_fast": 32.0, "beta_slow": 1.0, "factor": 8.0, "original_max_position_embeddings": 8192,
                         "rope_type": "yarn"},
        "rope_theta": 500000, "sliding_window": 4096, "tie_word_embeddings": False, "transformers_version": "4.57.1", "vocab_size": 100278},
    "granite-3.3-8b-instruct": {
        **BASE, "architectures": ["GraniteForCausalLM"], "model_type": "granite", "attention_bias": False, "attention_dropout": 0.0,
        "attention_multiplier": 0.0078125, "bos_token_id": 0, "embedding_multiplier": 12.0, "eos_token_id": 0, "hidden_size": 4096,
        "intermediate_size": 12800, "logits_scaling": 16.0, "max_position_embeddings": 131072, "mlp_bias": False, "num_attention_heads": 32,
        "num_hidden_layers": 40, "num_key_value_heads": 8, "pad_token_id": 0, "residual_multiplier": 0.22, "rms_norm_eps": 1e-5, "rope_scaling": None,
        "rope_theta": 10000000.0, "tie_word_embeddings": True, "transformers_version": "4.49.0", "vocab_size": 49159},
    "granite-4.0-micro": {
        **BASE, "architectures": ["GraniteMoeHybridForCausalLM"], "model_type": "granitemoehybrid", "attention_bias": False, "attention_dropout": 0.0,
        "attention_multiplier": 0.015625, "bos_token_id": 100257, "embedding_multiplier": 12, "eos_token_id": 100257, "hidden_size": 2560,
        "init_method": "mup", "initializer_range": 0.1, "intermediate_size": 8192, "layer_types": ["attention"] * 40, "logits_scaling": 10,
        "mamba_chunk_size": 256, "mamba_conv_bias": True, "mamba_d_conv": 4, "mamba_d_head": 32, "mamba_d_state": 256, "mamba_expand": 2, "mamba_n_groups": 1,
        "mamba_n_heads": 128, "mamba_proj_bias": False, "max_position_embeddings": 131072, "normalization_function": "rmsnorm", "num_attention_heads": 40,
        "num_experts_per_tok": 0, "num_hidden_layers": 40, "num_key_value_heads": 8, "num_local_experts": 0, "output_router_logits": False,
        "pad_token_id": 100256, "position_embedding_type": "rope", "residual_multiplier": 0.22, "rms_norm_eps": 1e-5, "rope_scaling": None,
        "rope_theta": 10000000, "router_aux_loss_coef": 0.0, "shared_intermediate_size": 8192, "tie_word_embeddings": True,
        "transformers_version": "4.56.0", "vocab_size": 100352},
}
