"""kpd.llm: threads, signals, forks and dropped streams. No test asserts a time: what ends does so long before its work would."""

import gc
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import kpd
from kpd import llm

sys.path.insert(0, str(Path(__file__).parent))
from llm_models import CHAT  # noqa: E402

# Hours of work for the small model.
ENDLESS = {"max_tokens": 10**8, "ignore_eos": True, "context_shift": True, "temperature": 0}
TEXT = "You may reproduce and distribute copies of the Work or Derivative Works thereof in any medium. "


@pytest.fixture
def model():
    return llm.Model.load(CHAT, arithmetic="exact", threads=1)


def usable(model):
    return model.generate("You may", max_tokens=8, temperature=0).text == " and or "


def interrupted(call):
    """Runs call() and has Ctrl-C pressed meanwhile; True if that ended it."""
    timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        timer.join()
    return False


def test_interrupt_ends_an_answer_and_the_model_stays_usable(model):
    assert interrupted(lambda: model.generate("You may", **ENDLESS))
    assert usable(model)


def test_interrupt_ends_a_stream_and_frees_the_model(model):
    stream = model.generate("You may", stream=True, **ENDLESS)
    assert interrupted(stream.result)
    assert list(stream) == [] and usable(model)


def test_interrupt_ends_evaluation_and_scores(model):
    tokens = model.tokenizer.encode(TEXT)
    assert interrupted(lambda: model.perplexity(TEXT * 20_000, context=256))
    assert interrupted(lambda: model.score([(tokens[:1], tokens[1:])] * 300_000))
    assert usable(model)


def test_a_call_while_another_runs_is_an_error_and_shows_that_the_gil_is_free(model):
    thread = threading.Thread(target=model.perplexity, args=(TEXT * 500,), kwargs={"context": 256})
    thread.start()
    seen = None
    while thread.is_alive() and seen is None:
        try:
            model.logits([1, 2])
        except kpd.Error as error:
            seen = error
    thread.join()
    assert seen is not None and seen.code == "invalid_argument" and "in use" in str(seen)
    assert usable(model)


def test_an_open_stream_has_the_model_until_it_is_closed(model):
    stream = model.generate("You may", stream=True, **ENDLESS)
    first = next(stream)
    with pytest.raises(kpd.Error, match="in use"):
        model.logits([1, 2])
    stream.close()
    made = stream.result()
    assert made.finish_reason == "cancelled"
    assert made.text.startswith(first) and made.tokens == len(made.token_ids) > 0
    assert usable(model)


def test_a_dropped_stream_frees_the_model(model):
    for _ in model.generate("You may", stream=True, **ENDLESS):
        break
    gc.collect()
    assert usable(model)


def test_models_of_several_threads_work_at_the_same_time():
    texts = []

    def run():
        texts.append(llm.Model.load(CHAT, arithmetic="exact", threads=1).generate("You may", max_tokens=48, temperature=0).text)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(texts) == 4 and len(set(texts)) == 1


def test_an_error_of_the_progress_function_leaves_score_and_the_model_usable(model):
    def refuse(n):
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        model.score([([1], [2])] * 100, progress=refuse)
    assert usable(model)


def test_an_error_in_a_stream_is_raised_where_it_is_read(model):
    stream = model.generate([999_999], stream=True)
    with pytest.raises(kpd.Error, match="999999"):
        next(stream)
    assert list(stream) == [] and usable(model)


def test_a_stream_in_a_forks_child_is_an_error_and_hangs_nobody(model):
    stream = model.generate("You may", stream=True, **ENDLESS)
    next(stream)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            stream.result()
        except kpd.Error as error:
            code = 0 if "fork" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    stream.close()
    assert usable(model)


def test_an_open_stream_does_not_keep_the_interpreter_from_ending():
    script = f"""
from kpd import llm
stream = llm.Model.load({str(CHAT)!r}, threads=1).generate("You may", stream=True, max_tokens=10**8, ignore_eos=True,
                                                           context_shift=True)
print(type(next(stream)).__name__)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "str\n", "")


def test_importing_kpd_llm_loads_neither_numpy_nor_torch():
    script = "import sys, kpd.llm; print([m for m in ('numpy', 'torch', 'transformers', 'lm_eval') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "[]\n"
