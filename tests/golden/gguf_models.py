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


def write_gguf(path, architecture, config, state, name=None, add_tokenizer=lambda writer: None, bf16=False):
    """`state`: torch tensors by transformers' names; tied weights are left out by the caller. bf16: matrices as bfloat16, the rest float32."""
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
    w.add_rope_freq_base(10000.0)
    add_tokenizer(w)
    if architecture == "phi3":
        add_phi3(w, config)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture.upper()], config.num_hidden_layers)
    for key, value in state.items():
        if architecture == "llama" and ("q_proj" in key or "k_proj" in key):
            value = permuted(value, config.num_attention_heads if "q_proj" in key else config.num_key_value_heads)
        value, tensor = value.contiguous(), names.get_name(key, (".weight", ".bias"))
        if bf16 and value.dim() > 1:
            w.add_tensor(tensor, value.to(torch.bfloat16).view(torch.uint8).numpy(), raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            w.add_tensor(tensor, value.numpy())
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
