"""kpd.llm: text, conversations, logits, scores and perplexity, against what transformers gave for the same small models."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

import kpd
from kpd import llm

sys.path.insert(0, str(Path(__file__).parent))
from llm_models import CHAT, MODELS, SMOLLM2, log_likelihood, needs_smollm2, read_safetensors  # noqa: E402

EXPECTED = json.loads((CHAT / "expected.json").read_text())
FAMILIES = sorted(p.parent.name for p in MODELS.glob("*/logits.safetensors"))
TEXT = "You may reproduce and distribute copies of the Work or Derivative Works thereof in any medium. " * 8


@pytest.fixture(scope="module", params=["folder", "gguf"])
def chat(request):
    return llm.Model.load(CHAT if request.param == "folder" else CHAT / "model.gguf", arithmetic="exact", threads=1)


@pytest.fixture(scope="module")
def model():
    return llm.Model.load(CHAT, arithmetic="exact", threads=1)


def test_tokenizer_needs_no_model(tmp_path):
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        (tmp_path / name).write_bytes((CHAT / name).read_bytes())
    alone, gguf = llm.Tokenizer.load(tmp_path), llm.Tokenizer.load(CHAT / "model.gguf")
    for tokenizer in (alone, gguf):
        ids = tokenizer.encode("the Work, naïve Übung 日本")
        assert tokenizer.decode(ids) == "the Work, naïve Übung 日本"
        assert b"".join(tokenizer.token_bytes(i) for i in ids) == "the Work, naïve Übung 日本".encode()
    assert alone.encode("<x> </s>") == gguf.encode("<x> </s>")
    assert alone.eos in alone.end_of_turn and alone.is_special(alone.eos)
    assert alone.find(alone.token(257)) == 257
    assert alone.vocabulary_size == gguf.vocabulary_size == 260


def test_text_is_that_of_transformers(chat):
    for case in EXPECTED:
        call = chat.chat if case["chat"] else chat.generate
        made = call(case["prompt"], max_tokens=len(case["ids"]), temperature=0)
        assert made.text == case["text"]
        assert made.finish_reason == case["finish_reason"]
        assert made.prompt_tokens == case["n_prompt"]
        ids = case["ids"][:-1] if case["finish_reason"] == "stop" else case["ids"]
        assert made.token_ids == ids and made.tokens == len(ids)


def test_ids_as_prompt_give_the_text_of_their_text(model):
    ids = model.tokenizer.encode("You may")
    assert model.generate(ids, max_tokens=8, temperature=0).text == model.generate("You may", max_tokens=8, temperature=0).text


def test_streamed_pieces_are_the_text(model):
    with model.chat("What is this?", temperature=0, stream=True) as stream:
        pieces = list(stream)
    assert len(pieces) > 1
    assert "".join(pieces) == EXPECTED[3]["text"] == stream.result().text


def test_stop_text_ends_the_answer_and_is_no_part_of_it(model):
    made = model.generate("You may", max_tokens=48, temperature=0, stop="Work")
    assert made.text == " and or and of the " and made.finish_reason == "stop"


def test_seed_gives_the_same_text_again(model):
    texts = {model.generate("You may", max_tokens=24, temperature=2.0, top_k=0, top_p=1.0, seed=s).text for s in (1, 1, 2)}
    assert len(texts) == 2


def test_chat_is_the_rendered_prompt_answered(model):
    prompt = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "What is this?"}]
    ids = model.tokenizer.encode_chat(prompt)
    assert model.tokenizer.decode(ids, skip_special=False) == model.tokenizer.render_chat(prompt)
    made = model.chat("What is this?", system="Be short.", temperature=0, max_tokens=8)
    assert made.prompt_tokens == len(ids)


def test_control_tokens_in_a_message_stay_text(model):
    t = model.tokenizer
    end = t.token(t.eos)
    assert t.eos in t.encode(f"a{end}b")
    assert t.encode_chat(f"a{end}b").count(t.eos) == t.encode_chat("ab").count(t.eos)


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_transformers(family):
    golden = read_safetensors(MODELS / family / "logits.safetensors")
    tokens = golden["tokens"].astype(int).tolist()
    for path in [MODELS / family, *MODELS.glob(f"{family}/model.gguf")]:
        logits = llm.Model.load(path, arithmetic="exact", threads=1).logits(tokens)
        assert logits.shape == golden["logits"].shape
        assert np.abs(logits - golden["logits"]).max() <= 2e-5 * np.abs(golden["logits"]).max()


def test_rows_and_caller_memory_and_view_hold_the_same_logits(model):
    tokens = model.tokenizer.encode(TEXT)[:200]
    whole = model.logits(tokens)
    assert whole.shape == (200, 260) and whole.dtype == np.float32
    out = np.full((3, 260), np.nan, np.float32)
    assert model.logits(tokens, rows=[0, 17, 199], out=out) is out
    assert np.array_equal(out, whole[[0, 17, 199]])
    with model.logits_view(tokens, rows="last") as view:
        assert np.array_equal(view[0], whole[-1])
        assert not view.flags.writeable
        with model.logits_view(tokens, rows=[5]) as other:  # has memory of its own
            assert np.array_equal(other[0], whole[5])
        assert np.array_equal(view[0], whole[-1])


def test_views_use_the_same_memory_again(model):
    tokens = model.tokenizer.encode(TEXT)[:20]
    places = []
    for _ in range(3):
        with model.logits_view(tokens) as view:
            places.append(view.ctypes.data)
    assert len(set(places)) == 1


def test_scores_are_those_of_the_logits(model):
    tokens = model.tokenizer.encode(TEXT)
    rng = np.random.default_rng(1)
    pairs = [(tokens[:n], tokens[n : n + m]) for n, m in ((1, 3), (60, 1), (60, 7), (61, 195), (200, 56), (60, 7))]
    pairs += [(tokens[:120], rng.integers(0, 256, 5).tolist()) for _ in range(4)]
    pairs += [(rng.integers(0, 256, 9).tolist(), tokens[:4]) for _ in range(3)]
    done = []
    for (context, rest), score in zip(pairs, model.score(pairs, progress=done.append), strict=True):
        logits = model.logits(context + rest)[len(context) - 1 : -1]
        assert score.log_likelihood == pytest.approx(log_likelihood(logits, rest), rel=1e-5, abs=1e-5)
        assert score.greedy == bool((logits.argmax(1) == rest).all())
    assert sum(done) == len(pairs)
    assert model.score([pairs[2]])[0] == model.score(pairs)[2] == model.score(pairs)[5]


def test_perplexity_is_that_of_the_logits(model):
    tokens = model.tokenizer.encode(TEXT)
    found = model.perplexity(TEXT, context=128, windows=2)
    loss = np.mean([-log_likelihood(model.logits(w)[:-1], w[1:]) / 127 for w in (tokens[:128], tokens[128:256])])
    assert found.windows == 2 and found.tokens == 2 * 127
    assert found.loss == pytest.approx(loss, rel=1e-5, abs=1e-5)
    assert found.perplexity == pytest.approx(math.exp(found.loss))
    assert found.kld_mean is None
    itself = model.perplexity(TEXT, context=128, windows=2, reference=llm.Model.load(CHAT, arithmetic="exact", threads=1))
    assert itself.perplexity == found.perplexity and itself.kld_mean == 0 and itself.same_top1 == 1
    assert model.perplexity(TEXT, context=128, protocol="llama.cpp").tokens < found.tokens * 2


def test_info_says_what_was_loaded(model):
    assert model.info.family == "llama" and model.info.n_layers == 2 and model.info.n_vocabulary == 260
    assert model.info.arithmetic == "exact" and model.info.threads == 1


@needs_smollm2
def test_a_published_model_knows_what_gravity_is():
    made = llm.Model.load(SMOLLM2).chat("What is gravity? One sentence.", temperature=0, max_tokens=40)
    assert "force" in made.text


@pytest.mark.parametrize(
    ("call", "code", "words"),
    [
        (lambda m: llm.Model.load("/no/such.gguf"), "io", "/no/such.gguf"),
        (lambda m: llm.Tokenizer.load("/no/such.gguf"), "io", "/no/such.gguf"),
        (lambda m: llm.Model.load(CHAT, arithmetic="quick"), "invalid_argument", "arithmetic"),
        (lambda m: m.generate([]), "invalid_argument", "prompt"),
        (lambda m: m.generate("x" * 300, context=64), "invalid_argument", "context"),
        (lambda m: m.generate("x", temperature=-1.0), "invalid_argument", "temperature"),
        (lambda m: m.generate("x", cache="f8"), "invalid_argument", "f8"),
        (lambda m: m.generate([999_999]), "invalid_argument", "999999"),
        (lambda m: m.chat("x", template="nothing"), "invalid_argument", "chatml"),
        (lambda m: m.chat("x", template="{% include 'a' %}"), "unsupported", "include"),
        (lambda m: m.chat("x", date="today"), "invalid_argument", "today"),
        (lambda m: m.chat([]), "invalid_argument", "message"),
        (lambda m: m.logits([]), "invalid_argument", "tokens"),
        (lambda m: m.logits([-1]), "invalid_argument", "-1"),
        (lambda m: m.logits([1, 2], rows=[1, 0]), "invalid_argument", "rows"),
        (lambda m: m.logits([1, 2], rows="first"), "invalid_argument", "rows"),
        (lambda m: m.logits([1, 2], out=np.zeros((2, 259), np.float32)), "invalid_argument", "out"),
        (lambda m: m.logits([1, 2], out=np.zeros((2, 260))), "invalid_argument", "out"),
        (lambda m: m.logits([1, 2], out=np.zeros((2, 520), np.float32)[:, ::2]), "invalid_argument", "out"),
        (lambda m: m.score([([], [1])]), "invalid_argument", "text 0"),
        (lambda m: m.score([([1], [1]), ([1], [])]), "invalid_argument", "text 1"),
        (lambda m: m.score([([1] * 200, [1] * 100)]), "invalid_argument", "256"),
        (lambda m: m.perplexity("short", context=128), "invalid_argument", "window"),
        (lambda m: m.perplexity(TEXT, protocol="mine"), "invalid_argument", "protocol"),
        (lambda m: m.tokenizer.decode([-5]), "invalid_argument", "-5"),
    ],
)
def test_bad_input_is_one_clear_error(model, call, code, words):
    with pytest.raises(kpd.Error) as caught:
        call(model)
    assert caught.value.code == code
    assert words in str(caught.value)


def test_an_unknown_option_is_named(model):
    with pytest.raises(TypeError, match="temprature"):
        model.generate("x", temprature=0)
