#!/usr/bin/env python3
"""Makes tests/golden/models/chat: a tiny Llama of bytes (and two merges) with a tokenizer and a chat template,
as a Hugging Face folder and as GGUF, and what transformers answers greedily.

    python make_chat_model.py [--only-expected]        needs torch, transformers, tokenizers, safetensors, gguf

It is trained for seconds on the project's own LICENSE, so that its likeliest tokens are letters and clearly ahead of the others.
The committed files were made with transformers 5.24.0, torch 2.15.0, tokenizers 0.23.3, gguf 0.19.0.
"""
import json
import pathlib
import sys

import gguf
import torch
import transformers as tf
from gguf_models import write_gguf
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

HERE = pathlib.Path(__file__).resolve().parent
TEMPLATE = (HERE / "chat" / "chatml.jinja").read_text()
SPECIALS = ["<|im_start|>", "<|im_end|>"]
MERGES = [("t", "h"), ("th", "e")]  # a GGUF file cannot hold an empty list
START, END = 258, 259
CONTEXT, STEPS = 256, 500
PROMPTS = [("You may", False), ("Derivative", False), ("What is a derivative work?", True), ("What is this?", True)]  # text, is a chat
# What tests/cli/llm_test.py gives to `kpd eval --task`, as lm-eval puts it to the model.
TASK_ITEMS = {
    "hellaswag": [
        ("Law: The License. You may reproduce and distribute", ["copies of the Work.", "soup.", "the the th\u00e9 the.",
                                                                "copies of the Work or Derivative Works."]),
        ("Cooking. Add the" + " term or condition" * 15, ["salt.", "Work", "entity.", "or any of the Work"]),
    ],
    "piqa": [
        ("Question: What shall a License mean?\nAnswer:", ["the terms and conditions ", "a ladder"]),
        ("Question: dresser\nAnswer:", ["any of the Work", "any of the Work, twice"]),
    ],
    "lambada": [("Derivative Works or Derivative", ["Works"]), ("and distribute the  ", ["Work."])],
}


def byte_tokenizer():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = alphabet + ["".join(m) for m in MERGES]
    t = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(pieces)}, merges=MERGES))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIALS])
    return t


def chat(user, assistant):
    return f"<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n{assistant}"


def train(model, tokenizer):
    text = " ".join((HERE.parent.parent / "LICENSE").read_text().split())
    sentences = [s.strip() + "." for s in text.split(". ")]
    turns = [chat(a[:60], b[:90]) + "<|im_end|>\n" for a, b in zip(sentences, sentences[1:])]
    ids = torch.tensor(tokenizer.encode(text + "\n").ids + tokenizer.encode("".join(turns)).ids)
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=STEPS)
    for step in range(STEPS):
        at = torch.randint(0, len(ids) - 128, (16,), generator=generator)
        batch = torch.stack([ids[i:i + 128] for i in at])
        loss = model(batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    print(f"loss {loss.item():.3f}")
    for p in model.parameters():
        p.data = p.data.to(torch.bfloat16).to(torch.float32)


def answers(model, tokenizer):
    rows = []
    for prompt, is_chat in PROMPTS:
        ids = torch.tensor([tokenizer.encode(chat(prompt, "") if is_chat else prompt).ids])
        with torch.no_grad():
            out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=96 if is_chat else 48, do_sample=False)[0]
            top = model(out[None]).logits[0, ids.shape[1] - 1:-1].topk(2).values
        new = out[ids.shape[1]:].tolist()
        row = {"prompt": prompt, "chat": is_chat, "n_prompt": ids.shape[1], "ids": new,
               "finish_reason": "stop" if new[-1] == END else "length", "text": tokenizer.decode(new),
               "smallest_lead": round((top[:, 0] - top[:, 1]).min().item(), 4)}
        print(row["smallest_lead"], repr(row["text"]))
        rows.append(row)
    return rows


def log_likelihood(model, tokenizer, context, ending):
    """As lm-evaluation-harness: TemplateLM._encode_pair and HFLM._loglikelihood_tokens, one request alone."""
    spaces = len(context) - len(context.rstrip())
    ending = context[len(context) - spaces:] + " " + ending
    context = context[:len(context) - spaces]
    whole, before = tokenizer.encode(context + ending).ids, len(tokenizer.encode(context).ids)
    whole = whole[-(CONTEXT + 1):] if len(whole) > CONTEXT + 1 else whole
    n = len(tokenizer.encode(context + ending).ids) - before
    with torch.no_grad():
        rows = model(torch.tensor([whole[:-1]])).logits[0, -n:].log_softmax(-1)
    targets = torch.tensor(whole[-n:])
    return {"log_likelihood": rows.gather(1, targets[:, None]).sum().item(), "greedy": bool((rows.argmax(-1) == targets).all())}


def task_scores(model, tokenizer):
    return {task: [[log_likelihood(model, tokenizer, context, e) for e in endings] for context, endings in items]
            for task, items in TASK_ITEMS.items()}


def add_tokenizer(writer, tokenizer):
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())])
    writer.add_token_types([gguf.TokenType.NORMAL] * START + [gguf.TokenType.CONTROL] * len(SPECIALS))
    writer.add_token_merges([" ".join(m) for m in MERGES])
    writer.add_bos_token_id(START)
    writer.add_eos_token_id(END)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)


def write_json(path, content):
    path.write_text(json.dumps(content, indent=1) + "\n")


def main():
    folder = HERE / "models" / "chat"
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    tokenizer = byte_tokenizer()
    if sys.argv[1:] == ["--only-expected"]:
        model = tf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
        write_json(folder / "expected.json", answers(model.eval(), tokenizer))
        write_json(folder / "tasks.json", task_scores(model, tokenizer))
        return
    torch.manual_seed(3)
    config = tf.LlamaConfig(vocab_size=END + 1, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                            num_key_value_heads=2, max_position_embeddings=CONTEXT, bos_token_id=START, eos_token_id=END,
                            pad_token_id=None, tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=10000.0))
    config._attn_implementation = "eager"
    model = tf.AutoModelForCausalLM.from_config(config).float()
    train(model, tokenizer)
    model.eval()
    state = {k: v.detach() for k, v in model.state_dict().items() if k != "lm_head.weight"}
    save_file({k: v.to(torch.bfloat16).contiguous() for k, v in state.items()}, folder / "model.safetensors")
    config.architectures = [type(model).__name__]
    files = {
        "config.json": config.to_diff_dict(),
        "generation_config.json": dict(bos_token_id=START, eos_token_id=END, do_sample=False),
        "tokenizer_config.json": dict(bos_token=SPECIALS[0], eos_token=SPECIALS[1], add_bos_token=False, chat_template=TEMPLATE,
                                      tokenizer_class="PreTrainedTokenizerFast"),
        "expected.json": answers(model, tokenizer),
        "tasks.json": task_scores(model, tokenizer),
    }
    for name, content in files.items():
        write_json(folder / name, content)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    write_gguf(folder / "model.gguf", "llama", config, state, name="kpd chat test",
               add_tokenizer=lambda writer: add_tokenizer(writer, tokenizer), bf16=True)


main()
