"""The package and a use of it under mypy --strict, with the stubs that are installed."""

import importlib.util
import pathlib
import subprocess
import sys

import pytest

import kpd


def test_package_and_its_use_type_check(tmp_path):
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is missing")
    folder = pathlib.Path(kpd.__file__).parent
    assert (folder / "py.typed").exists() and (folder / "_kpd.pyi").exists()
    use = pathlib.Path(__file__).with_name("typed_use.py")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), "-p", "kpd"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    run = subprocess.run([*command[:-2], str(use)], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_every_public_name_is_documented():
    from kpd import gradient

    for name in gradient.__all__:
        assert getattr(gradient, name).__doc__, name
    assert gradient.Encoder.__module__ == "kpd.gradient"
