"""Writes a small random Llama with one token a byte and ChatML's specials, as a Hugging Face folder. Standard library only."""
import json
import random
import struct

from inputs import safetensors_bytes

D, LAYERS, HEADS, KV_HEADS, HEAD_DIM, D_FF, CONTEXT = 32, 2, 4, 2, 8, 48, 512
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
            "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


def byte_spellings():
    """The printable character that byte-level BPE writes for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spelling, extra = {}, 0
    for byte in range(256):
        if byte in plain:
            spelling[byte] = chr(byte)
        else:
            spelling[byte] = chr(256 + extra)
            extra += 1
    return spelling


def write_tiny_model(folder, seed=1):
    folder.mkdir()
    rng = random.Random(seed)
    n_vocabulary = 256 + len(SPECIALS)
    tensors = {}

    def add(name, *shape, scale=None):
        n = 1
        for size in shape:
            n *= size
        values = [1.0] * n if scale is None else [rng.gauss(0, scale) for _ in range(n)]
        tensors[name] = ("F32", shape, struct.pack(f"<{n}f", *values))

    add("model.embed_tokens.weight", n_vocabulary, D, scale=1)
    add("model.norm.weight", D)
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        add(layer + "input_layernorm.weight", D)
        add(layer + "post_attention_layernorm.weight", D)
        add(layer + "self_attn.q_proj.weight", HEADS * HEAD_DIM, D, scale=0.3)
        add(layer + "self_attn.k_proj.weight", KV_HEADS * HEAD_DIM, D, scale=0.3)
        add(layer + "self_attn.v_proj.weight", KV_HEADS * HEAD_DIM, D, scale=0.3)
        add(layer + "self_attn.o_proj.weight", D, HEADS * HEAD_DIM, scale=0.3)
        add(layer + "mlp.gate_proj.weight", D_FF, D, scale=0.3)
        add(layer + "mlp.up_proj.weight", D_FF, D, scale=0.3)
        add(layer + "mlp.down_proj.weight", D, D_FF, scale=0.3)
    # A head of its own: a tied one would repeat the last token for ever.
    add("lm_head.weight", n_vocabulary, D, scale=0.3)
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": D, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM, "intermediate_size": D_FF,
        "vocab_size": n_vocabulary, "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "hidden_act": "silu", "tie_word_embeddings": False, "bos_token_id": 256, "eos_token_id": 258}))
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
        "added_tokens": [{"id": 256 + i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for i, text in enumerate(SPECIALS)],
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": {spelled: byte for byte, spelled in byte_spellings().items()}, "merges": []}}))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "bos_token": "<|endoftext|>", "eos_token": "<|im_end|>", "chat_template": TEMPLATE}))
