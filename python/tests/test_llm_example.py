"""examples/python/generate.py as a user runs it."""

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from llm_models import CHAT, CHECKOUT  # noqa: E402

from kpd import llm  # noqa: E402

EXAMPLE = CHECKOUT / "examples/python/generate.py"


def run(*arguments):
    return subprocess.run([sys.executable, EXAMPLE, *arguments], capture_output=True, text=True, timeout=120, check=False)


def test_example_prints_the_answer_that_the_package_gives():
    done = run(CHAT / "model.gguf", "What is this?")
    made = llm.Model.load(CHAT / "model.gguf").chat("What is this?", max_tokens=64, temperature=0.8, top_p=0.95, seed=1)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{made.text}\n{made.tokens} tokens, ended by {made.finish_reason}\n"


def test_example_says_what_is_wrong():
    done = run("/no/such.gguf", "What is this?")
    assert done.returncode == 1 and "/no/such.gguf" in done.stderr and "Traceback" not in done.stderr
