#!/usr/bin/env python3
"""Writes the seeds of tokenizer_fuzz: tiny tokenizers that together hold every step, each with a text behind a zero byte."""
import json
import os

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus", "tokenizer")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
MARK = "\u2581"


def special(number, content, **flags):
    return {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": True, **flags}


def sequence(kind, *steps):
    return {"type": "Sequence", kind: list(steps)}


def model(tokens, merges, **flags):
    return {"type": "BPE", "vocab": {t: i for i, t in enumerate(tokens)}, "merges": merges, **flags}


BYTES = ["a", "b", "c", "\u0120", "\u00e2", "\u0124", "\u00ac", "1", "'", "s", "ab", "\u0120a"]
BYTE_MERGES = ["a b", "\u0120 a"]
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
TEMPLATE = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}}
FALLBACK = ["<s>", "<unk>", MARK, "a", "b", MARK + "a", "<0xE2>", "<0x82>", "<0xAC>", "<0x0A>"]
SEEDS = {
    "gpt2": ({"model": model(BYTES, BYTE_MERGES), "pre_tokenizer": {**BYTE_LEVEL, "add_prefix_space": True}, "decoder": {"type": "ByteLevel"},
              "added_tokens": [special(12, "<e>")]}, "ab ab's 11<e>\u20ac"),
    "smollm": ({"model": model(BYTES, [["a", "b"]]), "decoder": {"type": "ByteLevel"},
                "pre_tokenizer": sequence("pretokenizers", {"type": "Digits", "individual_digits": True}, BYTE_LEVEL)}, "a11b"),
    "llama3": ({"model": model(BYTES, BYTE_MERGES, ignore_merges=True), "decoder": {"type": "ByteLevel"},
                "pre_tokenizer": sequence("pretokenizers", {"type": "Split", "pattern": {"Regex": LLAMA3}, "behavior": "Isolated", "invert": False},
                                          {**BYTE_LEVEL, "use_regex": False}),
                "added_tokens": [special(12, "<l>", lstrip=True), special(13, "<r>", rstrip=True), special(14, "w", single_word=True)]},
               "ab  <l> w <r>  's\r\n w1"),
    "falcon": ({"model": model(BYTES, BYTE_MERGES), "decoder": {"type": "ByteLevel"},
                "pre_tokenizer": sequence("pretokenizers", {"type": "Punctuation", "behavior": "Contiguous"}, BYTE_LEVEL,
                                          {"type": "Digits", "individual_digits": False},
                                          {"type": "Split", "pattern": {"Regex": "[0-9][0-9][0-9]"}, "behavior": "Isolated"})},
               "ab, a''s 11111"),
    "expressions": ({"model": model(BYTES, BYTE_MERGES), "decoder": {"type": "ByteLevel"},
                     "pre_tokenizer": sequence("pretokenizers", *({"type": "Split", "pattern": {"Regex": r}, "behavior": "Isolated"} for r in (
                         r"\p{N}{1,3}+|[a-b]{,2}c", " ?[^(\\s|[.,!?])]+", r"(?m:a.b)|\bab\b|\h\B|\v|\u0061", r"\s+$|(?=(\d{3})+(?!\d))")))},
                    "ab 1234567 c, (a\nb)\u000b "),
    "qwen2": ({"model": model(BYTES, BYTE_MERGES), "normalizer": {"type": "NFC"}, "decoder": {"type": "ByteLevel"},
               "pre_tokenizer": sequence("pretokenizers", {"type": "Split", "pattern": {"Regex": r"\w+|\s|[^\S]+"}, "behavior": "MergedWithNext"},
                                         BYTE_LEVEL)}, "e\u0301 \u1100\u1161 ab"),
    "llama2": ({"model": model(FALLBACK, [[MARK, "a"]], byte_fallback=True, fuse_unk=True, unk_token="<unk>"),
                "normalizer": sequence("normalizers", {"type": "Prepend", "prepend": MARK},
                                       {"type": "Replace", "pattern": {"String": " "}, "content": MARK}),
                "post_processor": TEMPLATE, "added_tokens": [special(0, "<s>")],
                "decoder": sequence("decoders", {"type": "Replace", "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"},
                                    {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0})}, "a b\u20ac\u20acx<s>\n"),
    "metaspace": ({"model": model(FALLBACK, [MARK + " a"], unk_token="<unk>"),
                   "pre_tokenizer": {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "first", "split": True},
                   "decoder": {"type": "Metaspace", "replacement": MARK, "add_prefix_space": True}}, "a  b c"),
    "odd_decoder": ({"model": model(FALLBACK, []), "pre_tokenizer": {"type": "Split", "pattern": {"String": "a"}, "behavior": "Removed", "invert": True},
                     "decoder": sequence("decoders", {"type": "Fuse"}, {"type": "ByteFallback"},
                                         {"type": "Replace", "pattern": {"Regex": "a+"}, "content": "<0x41>"},
                                         {"type": "Strip", "content": "a", "start": 2, "stop": 2}, {"type": "ByteLevel"})}, "aaba"),
}


def main():
    os.makedirs(OUT, exist_ok=True)
    for name, (tokenizer, text) in SEEDS.items():
        with open(os.path.join(OUT, name), "wb") as f:
            f.write(json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":")).encode() + b"\0" + text.encode())


if __name__ == "__main__":
    main()
