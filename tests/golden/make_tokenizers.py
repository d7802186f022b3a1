#!/usr/bin/env python3
"""Trains small tokenizers of every known family and records the ids that the Hugging Face `tokenizers` package (sentencepiece for
the scored one) gives on the texts of tests/text/tokenizer_test.cc.

    python3 tests/golden/make_tokenizers.py --text FOLDER [--only-expected] [--smollm2 FILE.gguf] [--gemma3 FILE.gguf]

writes tests/golden/tokenizers/NAME.json (or .gguf) and NAME.expected. FOLDER holds the large texts, whose ids are recorded as a hash.
Needs tokenizers, sentencepiece and gguf.

A line of NAME.expected is `ids NAME ID...` or `hash NAME COUNT FNV1A`: 64-bit FNV-1a over the ids as 32-bit little-endian words.
"""
import argparse
import json
import os
import tempfile

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "tokenizers")
WORDS_LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
                r"|\s+(?!\S)|\s+")
WORDS_QWEN2 = WORDS_LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
# A family that is not split by hand: letters by case, marks as parts of words.
WORDS_CASED = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
               r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
               r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
ALL_BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
VOCABULARY = 1200
MARK = "\u2581"


def corpus(folder):
    for name in ("calibration-wiki.txt", "calibration-code.txt", "tiny-shakespeare.txt"):
        with open(os.path.join(folder, name), encoding="utf-8") as f:
            yield from f.read(400_000).splitlines(keepends=True)
    yield from ["Ünïcödé — naïve café, Привет мир, 你好世界, こんにちは, 🙂🙃 ½ ٣\n"] * 40


def train(tokenizer, folder, specials, alphabet=()):
    tokenizer.train_from_iterator(corpus(folder), trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=specials, initial_alphabet=list(alphabet), limit_alphabet=300, show_progress=False))


def bos_template(token, number):
    return processors.TemplateProcessing(single=f"{token} $A", pair=f"{token} $A {token}:1 $B:1", special_tokens=[(token, number)])


def byte_level(folder, words, specials, normalizer=None, use_regex=False):
    t = Tokenizer(models.BPE())
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizers.Sequence([*words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)])
    t.decoder = decoders.ByteLevel()
    train(t, folder, specials, ALL_BYTES)
    return t


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def gpt2(folder):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.decoder = decoders.ByteLevel()
    train(t, folder, ["<|endoftext|>"], ALL_BYTES)
    return t


def smollm(folder):
    return byte_level(folder, [pre_tokenizers.Digits(individual_digits=True)], ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
                      use_regex=True)


def llama3(folder):
    t = byte_level(folder, [split(WORDS_LLAMA3)], [])
    t.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"])
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False),
                                            bos_template("<|begin_of_text|>", t.token_to_id("<|begin_of_text|>"))])
    data = json.loads(t.to_str())
    data["model"]["ignore_merges"] = True
    # Words that no merges lead to: only ignore_merges finds them.
    for word in ("Ġzyzzyva", "qwxz"):
        data["model"]["vocab"][word] = len(data["model"]["vocab"])
    for token in data["added_tokens"]:
        token["id"] += 2
    data["post_processor"]["processors"][1]["special_tokens"]["<|begin_of_text|>"]["ids"][0] += 2
    return Tokenizer.from_str(json.dumps(data))


def qwen2(folder):
    t = byte_level(folder, [split(WORDS_QWEN2)], [], normalizers.NFC())
    t.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    t.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("caf\u00e9\u2603", normalized=True)])
    return t


def cased(folder):
    t = byte_level(folder, [split(WORDS_CASED)], [])
    t.add_special_tokens([AddedToken("<left>", lstrip=True), AddedToken("<right>", rstrip=True),
                          AddedToken("<both>", lstrip=True, rstrip=True)])
    t.add_tokens([AddedToken("word", single_word=True), AddedToken("<<", normalized=False), AddedToken("<<<", normalized=False)])
    return t


def byte_fallback(folder, specials, training_words):
    t = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    t.pre_tokenizer = training_words
    train(t, folder, specials + [f"<0x{b:02X}>" for b in range(256)])
    data = json.loads(t.to_str())
    data["added_tokens"] = [a for a in data["added_tokens"] if not a["content"].startswith("<0x")]
    data["pre_tokenizer"] = None
    return Tokenizer.from_str(json.dumps(data))


def llama2(folder):
    t = byte_fallback(folder, ["<unk>", "<s>", "</s>"], pre_tokenizers.Metaspace())
    t.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    t.post_processor = bos_template("<s>", 1)
    t.decoder = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    return t


def mistral(folder):
    t = byte_fallback(folder, ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"], pre_tokenizers.Metaspace())
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    t.post_processor = bos_template("<s>", 1)
    t.decoder = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    return t


def gemma(folder):
    t = byte_fallback(folder, ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"], pre_tokenizers.Metaspace())
    t.add_tokens([AddedToken(x, normalized=True) for x in ("\n\n", MARK * 2, MARK * 4, "<table>")])
    t.normalizer = normalizers.Replace(" ", MARK)
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.post_processor = bos_template("<bos>", 2)
    t.decoder = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()])
    return t


def t5like(folder):
    """Metaspace in its splitting form with unknown characters dropped, and no byte fallback."""
    t = Tokenizer(models.BPE(unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    t.decoder = decoders.Metaspace(prepend_scheme="always")
    train(t, folder, ["<unk>"])
    return t


FAMILIES = {f.__name__: f for f in (gpt2, smollm, llama3, qwen2, cased, llama2, mistral, gemma, t5like)}


def save(name, tokenizer):
    data = json.loads(tokenizer.to_str())
    if name in ("gpt2", "mistral"):  # the older spelling of merges
        data["model"]["merges"] = [" ".join(m) for m in data["model"]["merges"]]
    with open(os.path.join(OUT, name + ".json"), "w", encoding="utf-8") as f:
        json.dump(data, f, ensure_ascii=False, separators=(",", ":"))


def save_scored(folder, name, symbols, space_prefix):
    """A SentencePiece model in GGUF's form."""
    import gguf
    import sentencepiece
    prefix = os.path.join(tempfile.mkdtemp(), "scored")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(line.rstrip("\n") for line in corpus(folder) if line.strip()), model_prefix=prefix, model_type="bpe",
        vocab_size=VOCABULARY, byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
        split_digits=True, allow_whitespace_only_pieces=True, character_coverage=0.995, minloglevel=2,
        add_dummy_prefix=space_prefix, user_defined_symbols=symbols)
    sp = sentencepiece.SentencePieceProcessor(model_file=prefix + ".model")
    kinds = [2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else 5 if sp.is_unused(i) else
             4 if sp.id_to_piece(i) in symbols else 1 for i in range(sp.vocab_size())]
    writer = gguf.GGUFWriter(os.path.join(OUT, name + ".gguf"), "llama")
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([sp.id_to_piece(i) for i in range(sp.vocab_size())])
    writer.add_token_scores([sp.get_score(i) for i in range(sp.vocab_size())])
    writer.add_token_types(kinds)
    writer.add_bos_token_id(sp.bos_id())
    writer.add_eos_token_id(sp.eos_id())
    if not space_prefix:
        writer.add_add_space_prefix(False)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return lambda text: [sp.bos_id()] + sp.encode(text)


def smollm2(path):
    import gguf
    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    kinds = fields["tokenizer.ggml.token_type"].contents()
    t = Tokenizer(models.BPE(vocab={x: i for i, x in enumerate(tokens)},
                             merges=[tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([x for x, kind in zip(tokens, kinds) if kind == 3])
    return t


def gemma3(path):
    """The file's vocabulary as a SentencePiece model: spaces of a user's tokens, which its converter spells as they are, as marks."""
    import gguf
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2
    fields = gguf.GGUFReader(path).fields
    tokens, kinds, scores = (fields["tokenizer.ggml." + key].contents() for key in ("tokens", "token_type", "scores"))
    proto = sentencepiece_model_pb2.ModelProto()
    spec = proto.trainer_spec
    spec.model_type, spec.byte_fallback, spec.vocab_size = 2, True, len(tokens)
    for key in ("unk", "bos", "eos", "pad"):
        setattr(spec, key + "_id", tokens.index(f"<{key}>"))
        setattr(spec, key + "_piece", f"<{key}>")
    normal = proto.normalizer_spec
    normal.name, normal.add_dummy_prefix, normal.remove_extra_whitespaces = "identity", False, False
    for token, kind, score in zip(tokens, kinds, scores):
        user = kind == gguf.TokenType.USER_DEFINED
        proto.pieces.add(piece=token.replace(" ", MARK) if user else token, score=score if kind == gguf.TokenType.NORMAL else 0,
                         type=gguf.TokenType.UNKNOWN if token == "<unk>" else kind)
    sp = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
    return lambda text: [sp.bos_id()] + sp.encode(text)


class Lcg:
    """The numbers of the test's own generator."""

    def __init__(self):
        self.state = 1

    def below(self, n):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % n


# The large blocks of one kind of character: every 16th is taken.
UNIFORM = ((0x3400, 0xA000), (0xAC00, 0xD7A4), (0x17000, 0x18D00), (0x20000, 0x32400))


def block_text(first):
    """What the test makes of 256 characters: each between letters, digits, breaks and marks."""
    step = 16 if any(low <= first < high for low, high in UNIFORM) else 1
    chars = [chr(c) for c in range(first, first + 256, step) if not 0xD800 <= c < 0xE000]
    return "".join(f"a{c}1'{c} {c}{c}\n{c}\u0301 " for c in chars)


def malformed(lcg):
    pool = bytes([0xE2, 0x82, 0xAC, 0xF0, 0x9F, 0x99, 0x82, 0xC3, 0xA9, 0xED, 0xA0, 0x80, 0xF4, 0x90, 0xC0, 0xFF, 0x41, 0x20])
    return bytes(pool[lcg.below(len(pool))] for _ in range(40))


def fnv(ids, value=0xCBF29CE484222325):
    for i in ids:
        for byte in i.to_bytes(4, "little"):
            value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def expected(name, encode, folder):
    lines = []
    with open(os.path.join(OUT, "mixed.txt"), "rb") as f:
        mixed = f.read().decode("utf-8")
    lines.append("ids mixed " + " ".join(map(str, encode(mixed))))

    def add(what, texts):
        count, value = 0, 0xCBF29CE484222325
        for text in texts:
            ids = encode(text)
            count += len(ids)
            value = fnv(ids, value)
        lines.append(f"hash {what} {count} {value:016x}")

    add("mixed_lines", [line for line in mixed.split("\n")])
    # From U+0100 where NUL and controls are not part of the model's own texts; to the end of what Unicode has assigned.
    add("blocks", [block_text(first) for first in range(0x100 if name.startswith("scored") else 0, 0x32400, 256)
                   if not 0xD800 <= first < 0xE000])
    lcg = Lcg()
    add("malformed", [malformed(lcg).decode("utf-8", "replace") for _ in range(500)])
    lcg = Lcg()
    if name in ("gpt2", "llama2", "scored", "smollm2"):
        add("no_space", ["".join("abcdefghijklmnop"[lcg.below(16)] for _ in range(1_000_000))])
    for file in sorted(os.listdir(folder)):
        with open(os.path.join(folder, file), "rb") as f:
            add(file, [f.read().decode("utf-8", "replace")])
    with open(os.path.join(OUT, name + ".expected"), "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", required=True)
    parser.add_argument("--only-expected", action="store_true")
    parser.add_argument("--smollm2")
    parser.add_argument("--gemma3")
    parser.add_argument("--families", nargs="*", default=list(FAMILIES), help="all by default")
    args = parser.parse_args()
    for name, make in ((f, FAMILIES[f]) for f in args.families):
        if not args.only_expected:
            save(name, make(args.text))
        tokenizer = Tokenizer.from_file(os.path.join(OUT, name + ".json"))
        expected(name, lambda text, t=tokenizer: t.encode(text).ids, args.text)
    if not args.only_expected:
        expected("scored", save_scored(args.text, "scored", [], True), args.text)
        expected("scored_plain", save_scored(args.text, "scored_plain", ["<turn>", "\n\n", MARK * 2], False), args.text)
    if args.gemma3:
        expected("scored_gemma3", gemma3(args.gemma3), args.text)
    if args.smollm2:
        tokenizer = smollm2(args.smollm2)
        expected("smollm2", lambda text: tokenizer.encode(text).ids, args.text)


if __name__ == "__main__":
    main()
