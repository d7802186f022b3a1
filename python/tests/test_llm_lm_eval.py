"""kpd.lm_eval: the model kpd of lm-evaluation-harness, against what transformers gave and, where torch is there, its hf backend."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

lm_eval = pytest.importorskip("lm_eval", reason="lm_eval is not installed (pip install lm-eval==0.4.13)")
from lm_eval.api.instance import Instance  # noqa: E402
from lm_eval.api.registry import get_model  # noqa: E402

import kpd  # noqa: E402
import kpd.lm_eval  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))
from llm_models import CHAT  # noqa: E402

has_torch = importlib.util.find_spec("torch") is not None
has_hf = has_torch and all(importlib.util.find_spec(name) is not None for name in ("transformers", "accelerate"))
# The items that tests/golden/make_chat_model.py scored.
ITEMS = {
    "hellaswag": [
        ("Law: The License. You may reproduce and distribute",
         ["copies of the Work.", "soup.", "the the th\u00e9 the.", "copies of the Work or Derivative Works."]),
        ("Cooking. Add the" + " term or condition" * 15, ["salt.", "Work", "entity.", "or any of the Work"]),
    ],
    "piqa": [
        ("Question: What shall a License mean?\nAnswer:", ["the terms and conditions ", "a ladder"]),
        ("Question: dresser\nAnswer:", ["any of the Work", "any of the Work, twice"]),
    ],
    "lambada": [("Derivative Works or Derivative", ["Works"]), ("and distribute the  ", ["Work."])],
}  # fmt: skip
LONG = "You may reproduce and distribute copies of the Work or Derivative Works thereof in any medium. " * 9


def ask(kind, *arguments):
    return Instance(request_type=kind, doc={}, arguments=arguments, idx=0)


def requests():
    pairs = [(c, " " + e) for items in ITEMS.values() for c, endings in items for e in endings]
    # No context, one that ends in spaces, and one that is longer than the model's.
    return [ask("loglikelihood", *p) for p in [*pairs, ("", "the Work"), ("You may  ", "copy"), (LONG, " the Work")]]


def until():
    asked = [{"until": ["Works"], "max_gen_toks": 48}, {"until": ["\n"], "max_gen_toks": 20, "do_sample": False}]
    return [ask("generate_until", prompt, a) for prompt in ("You may", "Derivative", LONG) for a in asked]


@pytest.fixture(scope="module", params=["folder", "gguf"])
def model(request):
    path = CHAT if request.param == "folder" else CHAT / "model.gguf"
    return get_model("kpd").create_from_arg_string(f"pretrained={path},threads=1", {"batch_size": 1, "device": "cuda:0"})


def test_log_likelihoods_are_those_of_transformers(model):
    golden = json.loads((CHAT / "tasks.json").read_text())
    expected = [e for task in ITEMS for item in golden[task] for e in item]
    found = model.loglikelihood(requests(), disable_tqdm=True)
    for (value, greedy), want in zip(found, expected):
        assert value == pytest.approx(want["log_likelihood"], abs=1e-4)
        assert greedy == want["greedy"]
    assert len(found) == len(expected) + 3


def test_rolling_adds_up_the_windows(model):
    t, (found,) = model.tokenizer, model.loglikelihood_rolling([ask("loglikelihood_rolling", LONG)], disable_tqdm=True)
    ids = t.encode(LONG)
    n = model.max_length
    assert len(ids) > 2 * n
    pairs = [([model.prefix_token_id], ids[:n])]
    # Every window but the last scores n tokens of which each has all before it in the window; the last one is filled up.
    for begin in range(n, len(ids), n):
        end = min(begin + n, len(ids))
        pairs.append((ids[end - n - 1 : begin], ids[begin:end]))
    assert found == pytest.approx(sum(s.log_likelihood for s in model.model.score(pairs)), rel=1e-6)


def test_generation_ends_before_a_stop_text_and_at_the_limit(model):
    first, second, *_ = model.generate_until(until(), disable_tqdm=True)
    assert first == " and or and of the Work or Derivative "
    assert len(model.tokenizer.encode(second)) == 20


def test_a_last_message_is_gone_on_with_where_no_answer_is_opened(model):
    said = [{"role": "user", "content": "What is this?"}, {"role": "assistant", "content": "It is the"}]
    assert model.apply_chat_template(said, add_generation_prompt=False).endswith("It is the")
    opened = model.apply_chat_template(said[:1])
    assert opened == model.tokenizer.render_chat(said[:1]) and opened != "What is this?"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [("arithmetic=quick", "arithmetic"), ("cache=f8", "f8")],
)
def test_wrong_model_args_are_clear_errors(arguments, words):
    with pytest.raises(kpd.Error, match=words):
        made = get_model("kpd").create_from_arg_string(f"pretrained={CHAT},{arguments}")
        made.loglikelihood(requests(), disable_tqdm=True)


def task_folder(tmp_path):
    """A task of lm_eval over a file, so that nothing is fetched."""
    rows = [{"goal": c, "endings": e, "label": 0} for c, e in ITEMS["piqa"]]
    (tmp_path / "items.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (tmp_path / "small.yaml").write_text(
        f"""task: kpd_small
dataset_path: json
dataset_kwargs: {{data_files: {{validation: "{tmp_path}/items.jsonl"}}}}
output_type: multiple_choice
validation_split: validation
doc_to_text: "{{{{goal}}}}"
doc_to_target: label
doc_to_choice: endings
metric_list:
  - {{metric: acc, aggregation: mean, higher_is_better: true}}
  - {{metric: acc_norm, aggregation: mean, higher_is_better: true}}
"""
    )
    return tmp_path


@pytest.mark.skipif(not has_torch, reason="torch is not installed: lm_eval's evaluator needs it")
def test_command_line_is_lm_evals_own(tmp_path):
    folder = task_folder(tmp_path)
    command = [sys.executable, "-m", "kpd.lm_eval", "--model", "kpd", "--model_args", f"pretrained={CHAT},threads=1"]
    command += ["--tasks", "kpd_small", "--include_path", str(folder), "--output_path", str(folder / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    (results,) = (folder / "out").rglob("results*.json")
    found = json.loads(results.read_text())
    assert found["config"]["model"] == "kpd" and found["config"]["model_dtype"] == "kpd exact"
    assert found["results"]["kpd_small"]["acc,none"] == 1.0


@pytest.mark.skipif(not has_hf, reason="torch, transformers or accelerate are not installed: lm_eval's hf backend cannot be compared")
def test_numbers_are_those_of_the_hf_backend(model):
    hf = get_model("hf").create_from_arg_string(f"pretrained={CHAT},dtype=float32", {"batch_size": 1, "device": "cpu"})
    for (a, greedy_a), (b, greedy_b) in zip(
        model.loglikelihood(requests(), disable_tqdm=True), hf.loglikelihood(requests(), disable_tqdm=True), strict=True
    ):
        assert a == pytest.approx(b, rel=1e-5, abs=2e-5) and greedy_a == greedy_b
    rolling = [ask("loglikelihood_rolling", LONG), ask("loglikelihood_rolling", "the Work")]
    assert model.loglikelihood_rolling(rolling, disable_tqdm=True) == pytest.approx(
        hf.loglikelihood_rolling(rolling, disable_tqdm=True), rel=1e-5
    )
    assert model.generate_until(until(), disable_tqdm=True) == hf.generate_until(until(), disable_tqdm=True)
