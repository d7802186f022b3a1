"""What the guide and the examples show runs."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("page", ["docs/guide/python.md"])
def test_blocks_of_a_page_run_from_top_to_bottom(page):
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 3
    run = subprocess.run([sys.executable, "-c", "\n".join(blocks)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert re.search(r"^1\.00\d bits a number, squared error 0\.\d\d$", run.stdout, re.MULTILINE), run.stdout


def test_example_of_a_round():
    output = subprocess.check_output([sys.executable, ROOT / "examples/python/mean.py"], text=True)
    assert "client 7 is left out: " in output
    accepted, error = re.search(r"(\d+) of 20 clients, .* error of the mean ([0-9.]+)", output).groups()
    assert accepted == "19" and float(error) < 0.2
