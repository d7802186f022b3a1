"""A small model's weights as a GGUF file, for the scripts here that make golden models. Needs gguf, torch."""
import math

import gguf
import torch


def permuted(w, heads):
    """Rows of q or k as GGUF's llama keeps them: neighbours are rotated together."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def add_phi3(w, config):
    """What llama.cpp's converter adds for Phi-3 (conversion/phi.py): no rope.scaling.type, though the tensors are longrope's."""
    rope = config.rope_parameters
    original = rope["original_max_position_embeddings"]
    w.add_rope_scaling_orig_ctx_len(original)
    w.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    w.add_sliding_window(config.sliding_window)
    w.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(config.max_position_embeddings / original) / math.log(original)))
    for kind in ("long", "short"):
        w.add_tensor(f"rope_factors_{kind}.weight", torch.tensor(rope[f"{kind}_factor"], dtype=torch.float32).numpy())


def add_rope(w, rope, config):
    """llama.cpp's conversion/base.py; llama3's stretching becomes a tensor (conversion/llama.py)."""
    if rope["rope_type"] in ("linear", "yarn"):
        w.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        w.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        w.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        for key, add in (("attention_factor", w.add_rope_scaling_yarn_attn_factor), ("beta_fast", w.add_rope_scaling_yarn_beta_fast),
                         ("beta_slow", w.add_rope_scaling_yarn_beta_slow)):
            if rope.get(key) is not None:
                add(rope[key])
    if rope["rope_type"] == "llama3":
        n = config.head_dim
        low, high = (rope["original_max_position_embeddings"] / rope[k] for k in ("low_freq_factor", "high_freq_factor"))
        factors = []
        for i in range(0, n, 2):
            wave = 2 * math.pi * rope["rope_theta"]**(i / n)
            smooth = (rope["original_max_position_embeddings"] / wave - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"])
            factors.append(1.0 if wave < high else rope["factor"] if wave > low else 1 / ((1 - smooth) / rope["factor"] + smooth))
        w.add_tensor("rope_freqs.weight", torch.tensor(factors, dtype=torch.float32).numpy())


def add_family(w, architecture, config):
    """What the converters of the families add to the sizes."""
    layers = config.num_hidden_layers
    if architecture in ("llama", "mistral3", "smollm3", "granite"):
        w.add_rope_dimension_count(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
    if getattr(config, "head_dim", None) is not None:
        w.add_key_length(config.head_dim)
        w.add_value_length(config.head_dim)
    if architecture == "gemma3":
        w.add_final_logit_softcapping(config.final_logit_softcapping)
        w.add_sliding_window(config.sliding_window)
    if architecture == "mistral3":
        w.add_rope_scaling_yarn_log_mul(config.rope_parameters["mscale_all_dim"])
        w.add_attn_temperature_scale(config.rope_parameters["llama_4_scaling_beta"])
    if architecture == "granite":
        w.add_attention_scale(config.attention_multiplier)
        w.add_embedding_scale(config.embedding_multiplier)
        w.add_residual_scale(config.residual_multiplier)
        w.add_logit_scale(config.logits_scaling)
    if architecture == "granite" and config.model_type == "granitemoehybrid":  # one without state spaces and experts
        w.add_expert_count(0)
        w.add_expert_used_count(0)
        w.add_expert_shared_feed_forward_length(config.shared_intermediate_size)
        w.add_ssm_conv_kernel(config.mamba_d_conv)
        w.add_ssm_state_size(config.mamba_d_state)
        w.add_head_count_kv([config.num_key_value_heads] * layers)
        w.add_rope_scaling_finetuned(config.position_embedding_type == "rope")
    if architecture == "olmo2" and config.model_type == "olmo3":
        w.add_sliding_window(config.sliding_window)
        w.add_sliding_window_pattern([kind == "sliding_attention" for kind in config.layer_types])


def gguf_tensors(key, value, architecture, config, names):
    """The tensors that one of transformers' becomes, with their names."""
    if architecture in ("llama", "mistral3", "smollm3", "granite") and ("q_proj" in key or "k_proj" in key):
        value = permuted(value, config.num_attention_heads if "q_proj" in key else config.num_key_value_heads)
    if architecture.startswith("gemma") and key.endswith("norm.weight"):
        value = value + 1
    if "shared_mlp" in key:
        gate, up = value.chunk(2) if "input_linear" in key else (None, None)
        block = f"blk.{key.split('.')[2]}.ffn_"
        return [(block + "down.weight", value)] if gate is None else [(block + "gate.weight", gate), (block + "up.weight", up)]
    return [(names.get_name(key, (".weight", ".bias")), value)]


def write_gguf(path, architecture, config, state, name=None, add_tokenizer=lambda writer: None, bf16=False, plain=False):
    """`state`: torch tensors by transformers' names; tied weights are left out by the caller. bf16: matrices as bfloat16, the rest float32. plain: with
    the keys of the family's converter; without them the files are those of before these were written."""
    w = gguf.GGUFWriter(str(path), architecture)
    if name is not None:
        w.add_name(name)
    w.add_block_count(config.num_hidden_layers)
    w.add_context_length(config.max_position_embeddings)
    w.add_embedding_length(config.hidden_size)
    w.add_feed_forward_length(config.intermediate_size)
    w.add_head_count(config.num_attention_heads)
    w.add_head_count_kv(config.num_key_value_heads)
    w.add_layer_norm_rms_eps(config.rms_norm_eps)
    w.add_vocab_size(config.vocab_size)
    rope = getattr(config, "rope_parameters", None) or {}
    rope = rope.get("full_attention", rope)
    w.add_rope_freq_base(rope.get("rope_theta", 10000.0) if plain else 10000.0)
    add_tokenizer(w)
    if architecture == "phi3":
        add_phi3(w, config)
    elif plain:
        add_family(w, architecture, config)
        add_rope(w, rope, config)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture.upper()], config.num_hidden_layers)
    for key, of_transformers in state.items():
        for tensor, value in gguf_tensors(key, of_transformers, architecture, config, names):
            value = value.contiguous()
            if bf16 and value.dim() > 1:
                w.add_tensor(tensor, value.to(torch.bfloat16).view(torch.uint8).numpy(), raw_dtype=gguf.GGMLQuantizationType.BF16)
            else:
                w.add_tensor(tensor, value.numpy())
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
