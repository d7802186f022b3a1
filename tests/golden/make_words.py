#!/usr/bin/env python3
"""Records the ids that the Hugging Face `tokenizers` package gives for every known way to cut a text into words.

    python3 tests/golden/make_words.py --text FOLDER [--only-expected]
    python3 tests/golden/make_words.py --compare PROGRAM [--count N]

writes tests/golden/tokenizers/words.json, one vocabulary whose merges cross words, digits, spaces and lines, so that a cut at another
place gives other ids; words.cuts, the steps of each name as its model's tokenizer.json has them; words.pool, pieces of random texts;
and words.expected, lines as make_tokenizers.py describes them. Needs tokenizers.

--compare is a longer run by hand: N random texts a name, by PROGRAM, which reads texts (length as 32 bits, bytes) and writes a line of
ids each for the tokenizer.json that is its argument.
"""
import argparse
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

import make_tokenizers as base

SPLITS = {
    "llama3": base.WORDS_LLAMA3,
    "qwen2": base.WORDS_QWEN2,
    "gpt4o": base.WORDS_CASED,
    "qwen35": base.WORDS_LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}").replace(r"?\p{L}+", r"?[\p{L}\p{M}]+")
                               .replace(r"[^\s\p{L}\p{N}]+", r"[^\s\p{L}\p{M}\p{N}]+"),
    "tekken": base.WORDS_CASED.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace(r"\p{N}{1,3}", r"\p{N}"),
    # As the files have it: line ends as characters, a count of one.
    "seed": "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\r\n]+|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
    "minicpm5": base.WORDS_LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}+"),
    "jais2": base.WORDS_LLAMA3.replace(r"|\s+(?!\S)|\s+", "") + "".join(rf"|\s{{{2**k}}}(?!\S)" for k in range(9, 1, -1))
             + r"|\s{1,2}(?!\S)|\s{1}",
    "deepseek3": "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
                 "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
    "han": "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    "cjk": "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
    # A set within a set: what is between the inner brackets is added, the brackets are not.
    "bloom": " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+",
    "symbols": "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
    # Letters with a case, range by range.
    "letters": "\\s?[A-Za-z" + "".join(chr(a) + ("-" + chr(b) if b > a else "") if b != a + 1 else chr(a) + chr(b) for a, b in (
        (0xB5, 0xB5), (0xC0, 0xD6), (0xD8, 0xF6), (0xF8, 0x1BA), (0x1BC, 0x1BF), (0x1C4, 0x293), (0x295, 0x2AF), (0x370, 0x373),
        (0x376, 0x377), (0x37B, 0x37D), (0x37F, 0x37F), (0x386, 0x386), (0x388, 0x38A), (0x38C, 0x38C), (0x38E, 0x3A1),
        (0x3A3, 0x3F5), (0x3F7, 0x481), (0x48A, 0x52F), (0x531, 0x556), (0x10A0, 0x10C5), (0x13A0, 0x13F5), (0x13F8, 0x13FD),
        (0x1C90, 0x1CBA), (0x1CBD, 0x1CBF), (0x1D00, 0x1D2B), (0x1D6B, 0x1D77), (0x1D79, 0x1D9A), (0x1E00, 0x1F15),
        (0x1F18, 0x1F1D), (0x1F20, 0x1F45), (0x1F48, 0x1F4D), (0x1F50, 0x1F57), (0x1F59, 0x1F59), (0x1F5B, 0x1F5B),
        (0x1F5D, 0x1F5D), (0x1F5F, 0x1F7D), (0x1F80, 0x1FB4), (0x1FB6, 0x1FBC), (0x1FBE, 0x1FBE), (0x1FC2, 0x1FC4),
        (0x1FC6, 0x1FCC), (0x1FD0, 0x1FD3), (0x1FD6, 0x1FDB), (0x1FE0, 0x1FEC), (0x1FF2, 0x1FF4), (0x1FF6, 0x1FFC),
        (0x2102, 0x2102), (0x2107, 0x2107), (0x210A, 0x2113), (0x2115, 0x2115), (0x2119, 0x211D), (0x2124, 0x2124),
        (0x2126, 0x2126), (0x2128, 0x2128), (0x212A, 0x212D), (0x212F, 0x2134), (0x2139, 0x2139), (0x213C, 0x213F),
        (0x2145, 0x2149), (0x214E, 0x214E), (0x2183, 0x2184), (0x2C00, 0x2C7B), (0x2C7E, 0x2CE4), (0x2CEB, 0x2CEE),
        (0x2CF2, 0x2CF3), (0xA640, 0xA66D), (0xA680, 0xA69B), (0xA722, 0xA76F), (0xA771, 0xA787), (0xA78B, 0xA78E),
        (0xAB70, 0xABBF), (0xFB00, 0xFB06), (0xFB13, 0xFB17), (0xFF21, 0xFF3A), (0xFF41, 0xFF5A), (0x10400, 0x1044F),
        (0x104B0, 0x104D3), (0x104D8, 0x104FB), (0x10C80, 0x10CB2), (0x10CC0, 0x10CF2), (0x118A0, 0x118DF), (0x1E900, 0x1E943)))
               + "]+",
}


def split(expression):
    return {"type": "Split", "pattern": {"Regex": SPLITS.get(expression, expression)}, "behavior": "Isolated", "invert": False}


def digits(individual):
    return {"type": "Digits", "individual_digits": individual}


def byte_level(use_regex):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


BYTES, GPT2 = byte_level(False), byte_level(True)
NFC = "nfc"
IGNORE = "ignore_merges"
# name in a GGUF file: steps, and what else the model's file says
NAMES = {
    "gpt-2": ([GPT2],),
    "olmo": ([GPT2], NFC),
    "smollm": ([digits(True), GPT2],),
    "command-r": ([digits(True), GPT2], NFC),
    "llama-bpe": ([split("llama3"), BYTES], IGNORE),
    "dbrx": ([split("llama3"), BYTES],),
    "qwen2": ([split("qwen2"), BYTES], NFC),
    "megrez": ([split("qwen2"), BYTES],),
    "qwen35": ([split("qwen35"), BYTES], NFC),
    "tekken": ([split("tekken"), BYTES], IGNORE),
    "gpt-4o": ([split("gpt4o"), BYTES],),
    "tiny_aya": ([split(r"\d{1,3}(?=(?:\d{3})*\b)"), split("gpt4o"), BYTES], NFC),
    "seed-coder": ([split("seed"), BYTES],),
    "minicpm5": ([split(r"\p{N}{1,3}"), split("minicpm5"), BYTES], IGNORE),
    "jais-2": ([split("jais2"), BYTES],),
    "falcon": ([{"type": "Punctuation", "behavior": "Contiguous"}, GPT2, digits(False), split("[0-9][0-9][0-9]")],),
    "deepseek-llm": ([split("[\r\n]"), split("letters"), split("symbols"), split(r"\s+$"), split("cjk"), digits(False), BYTES],),
    "deepseek-coder": ([split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split("cjk"), digits(True), BYTES],),
    "deepseek-v3": ([split(r"\p{N}{1,3}"), split("han"), split("deepseek3"), BYTES],),
    "bloom": ([split("bloom"), BYTES],),
    "viking": ([split("bloom"), digits(True), BYTES],),
}
# What tokenizer.json files may hold beside: how the two engines read it must not differ.
SYNTAX = {
    "interval-plus": ([split(r"\p{N}{1,3}+|[a-z]{2}+"), BYTES],),
    "possessive": ([split(r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"),
                    BYTES],),
    "up-to": ([split(r"[a-z]{,3}[0-9]"), BYTES],),
    "boundary": ([split(r"\b\w+\b|\B "), BYTES],),
    "hex-and-tab": ([split(r"\h+|[\v\t]"), BYTES],),
    "dot-all": ([split(r"(?m:a.b)|e.t"), BYTES],),
    "sets": ([split(r"[a-c[x-z]\s]+|[^\w\s[!?]]"), BYTES],),
    "code-points": ([split("\\u00e9|\\x{4f60}|[\\u0430-\\u044f]+"), BYTES],),
    "ends": ([split(r"^ +|\s+$|\s+\z"), BYTES],),
    "digits-from-right": ([split(r"\p{N}+"), split(r"(?=(\d{3})+(?!\d))"), BYTES],),
    "punctuation": ([{"type": "Punctuation"}, BYTES],),
    "punctuation-next": ([{"type": "Punctuation", "behavior": "MergedWithNext"}, BYTES],),
    "lines": ([{**split(r"(?:\r?\n)+(?!\r?\n)"), "behavior": "MergedWithNext"}, split("qwen2"), BYTES],),
}
POOL = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "\u00a0", "\u3000", "a", "the", "The", " THE", "iPhone", "camelCase", "HTTPServer",
        "x1", "1", "12", "345", "6789", "1234567", "\u0663", "\u00bd", "\u00b2", "'s", "'S", "'re", "'LL", "don't", "\u2019s", "'\u017f", "e\u0301",
        "\u0301", "\u0928\u092e\u0938\u094d\u0924\u0947", "\u00e9", "na\u00efve", "\u00df", "\u01c5", "\u02b0", "\u4f60\u597d", "\u3053\u3093", "\u30c6\u30b9\u30c8", "\uc548\ub155", "\u041f\u0440\u0438\u0432\u0435\u0442", "\u0645\u0631\u062d\u0628\u0627",
        "\U0001F642", "\U0001F469\u200d\U0001F680", "\u2764\ufe0f", ".", ",", "...", "!?", "\u3002", "\u060c", "\u06d4", "\u0964", "(", ")", "[", "]]", "{", "}", "/",
        "//", "http://a.b/c", "_", "__init__", "#", "$", "+=", "<tag>", "|", "\u201cq\u201d", "\u2026", "\u2014", "-", "\x0b", "\x00", "\u200b", "\u180e",
        "\u0085", "\u2028", "\uff21", "\uff01", "\uff11", "`", "^", "~"]


def tokenizer_of(vocabulary, cut):
    data = json.loads(vocabulary)
    steps, rules = cut[0], cut[1:]
    data["normalizer"] = {"type": "NFC"} if NFC in rules else None
    data["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}
    data["model"]["ignore_merges"] = IGNORE in rules
    return json.dumps(data, ensure_ascii=False)


def train(folder):
    t = Tokenizer(models.BPE())
    # Pieces of lines: merges cross all that a pre-tokenizer cuts at.
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"(?m:.{1,24})"), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()

    def texts():
        for i, text in enumerate(base.corpus(folder)):
            if i % 3 == 0:
                yield text
        lcg = base.Lcg()
        for _ in range(20000):
            yield random_text(lcg)

    t.train_from_iterator(texts(), trainers.BpeTrainer(vocab_size=1500, initial_alphabet=base.ALL_BYTES, show_progress=False))
    return t


def random_text(lcg):
    return "".join(POOL[lcg.below(len(POOL))] for _ in range(1 + lcg.below(24)))


def record():
    with open(os.path.join(base.OUT, "words.json"), encoding="utf-8") as f:
        vocabulary = f.read()
    with open(os.path.join(base.OUT, "mixed.txt"), "rb") as f:
        mixed = f.read().decode("utf-8")
    blocks = [base.block_text(first) for first in range(0, 0x32400, 256) if not 0xD800 <= first < 0xE000]
    lcg = base.Lcg()
    texts = [random_text(lcg) for _ in range(500)]
    lines, cuts = [], {}
    for name, cut in {**NAMES, **SYNTAX}.items():
        data = json.loads(tokenizer_of(vocabulary, cut))
        cuts[name] = {"normalizer": data["normalizer"], "pre_tokenizer": data["pre_tokenizer"],
                      "ignore_merges": data["model"]["ignore_merges"], "gguf": name in NAMES}
        t = Tokenizer.from_str(json.dumps(data))
        for what, inputs in (("mixed", [mixed]), ("random", texts), ("blocks", blocks)):
            count, value = 0, 0xCBF29CE484222325
            for text in inputs:
                ids = t.encode(text).ids
                count, value = count + len(ids), base.fnv(ids, value)
            lines.append(f"hash {name}/{what} {count} {value:016x}")
    for file, what in (("words.cuts", cuts), ("words.pool", POOL)):
        with open(os.path.join(base.OUT, file), "w", encoding="utf-8") as f:
            json.dump(what, f, ensure_ascii=True, indent=1)
            f.write("\n")
    with open(os.path.join(base.OUT, "words.expected"), "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")


def compare(program, count):
    with open(os.path.join(base.OUT, "words.json"), encoding="utf-8") as f:
        vocabulary = f.read()
    rng = random.Random(20261201)
    scripts = [(0x20, 0x7F), (0xA0, 0x250), (0x2B0, 0x370), (0x370, 0x530), (0x590, 0x780), (0x900, 0xE80), (0x1E00, 0x2070),
               (0x2070, 0x2C00), (0x3000, 0x3100), (0x4E00, 0x4F00), (0xA640, 0xA7C0), (0xAC00, 0xAC80), (0xFF00, 0xFFE0),
               (0x10400, 0x10500), (0x1D400, 0x1D800), (0x1F300, 0x1F650)]

    def text():
        low, high = scripts[rng.randrange(len(scripts))]
        return "".join(rng.choice(POOL) if rng.random() < 0.8 else chr(rng.randrange(low, high)) for _ in range(rng.randint(1, 40)))

    wrong = 0
    for name, cut in {**NAMES, **SYNTAX}.items():
        texts = [text() for _ in range(count)]
        t = Tokenizer.from_str(tokenizer_of(vocabulary, cut))
        with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as f:
            f.write(tokenizer_of(vocabulary, cut))
            f.flush()
            stream = b"".join(struct.pack("<I", len(x.encode())) + x.encode() for x in texts)
            out = subprocess.run([program, f.name], input=stream, capture_output=True, check=True).stdout.decode()
        ours = [[int(i) for i in line.split()] for line in out.split("\n")[:-1]]
        assert len(ours) == count
        bad = [(x, t.encode(x).ids, got) for x, got in zip(texts, ours) if t.encode(x).ids != got]
        wrong += len(bad)
        print(f"{name}: {len(bad)} of {count} differ", *[repr(b[0]) for b in bad[:2]], flush=True)
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--text")
    parser.add_argument("--only-expected", action="store_true")
    parser.add_argument("--compare")
    parser.add_argument("--count", type=int, default=20000)
    args = parser.parse_args()
    if args.compare:
        sys.exit(1 if compare(args.compare, args.count) else 0)
    if not args.only_expected:
        base.save("words", train(args.text))
    record()


if __name__ == "__main__":
    main()
