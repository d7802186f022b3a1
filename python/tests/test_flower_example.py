"""examples/python/flower as a user runs it: `flwr run` over the simulation engine, and over a SuperLink and its SuperNodes."""

import difflib
import importlib.util
import os
import sys

import pytest

pytest.importorskip("flwr", reason="needs flwr >= 1.22: pip install flwr")
pytest.importorskip("torch", reason="needs torch")
sys.path.insert(0, os.path.dirname(__file__))

from flower_processes import APP, Link, accuracies, byte_lines, copy_of_app  # noqa: E402

needs_images = pytest.mark.skipif(
    not os.path.exists("/usr/share/datasets/fashion-mnist"), reason="needs Debian's package dataset-fashion-mnist"
)
SMALL = {"rounds": 1, "images-per-client": 300, "test-images": 300}


def without_kpd(name, text):
    text = text.replace("import kpd.flower\n", "").replace("mods=[kpd.flower.mod()]", "")
    return text.replace('kpd.flower.Grid(grid, config["codec"], max_weight=60_000)', "grid")


def test_kpd_is_two_imports_and_two_lines():
    added = {}
    for path in sorted(APP.rglob("*.py")):
        text = path.read_text()
        lines = difflib.ndiff(without_kpd(path.name, text).splitlines(), text.splitlines())
        if found := [line[2:].strip() for line in lines if line.startswith("+ ")]:
            added[path.name] = found
    assert added == {
        "client_app.py": ["import kpd.flower", "app = ClientApp(mods=[kpd.flower.mod()])"],
        "server_app.py": ["import kpd.flower", 'grid=kpd.flower.Grid(grid, config["codec"], max_weight=60_000),'],
    }


def check(output):
    assert sorted(accuracies(output)) == [0, 1], output
    accepted, asked, sent, plain = byte_lines(output)[1]
    assert (accepted, asked) == (2, 2)
    assert 30 < plain / sent < 32


@needs_images
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Flower's simulation engine: pip install 'flwr[simulation]'")
def test_runs_on_the_simulation_engine(tmp_path):
    app = copy_of_app(tmp_path / "app")
    with Link(tmp_path / "link") as link:
        engine = ("num-supernodes=2", "client-resources-num-cpus=1", "init-args-num-cpus=1")
        check(link.run(app, seconds=600, federation=engine, **SMALL))


@needs_images
def test_runs_over_a_superlink_and_supernodes(tmp_path):
    app = copy_of_app(tmp_path / "app")
    with Link(tmp_path / "link", supernodes=2) as link:
        check(link.run(app, seconds=600, **SMALL))
