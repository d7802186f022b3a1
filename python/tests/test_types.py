"""The package and a use of it under mypy --strict, with the stubs that are installed."""

import importlib.util
import pathlib
import subprocess
import sys

import pytest

import kpd


# Modules over packages that may be missing: without these their types are not known, and they are left out.
OVER = {"torch": "kpd.gradient.torch", "flwr": "kpd.flower", "lm_eval": "kpd.lm_eval", "transformers": "kpd.gradient.torch"}


def configuration(path):
    lines = ["[mypy]", "strict = True"]
    for package, module in OVER.items():
        if importlib.util.find_spec(package) is None:
            lines += [f"[mypy-{package}.*]", "ignore_missing_imports = True"]
            for name in (module, f"{module}.*"):
                if f"[mypy-{name}]" not in lines:
                    lines += [f"[mypy-{name}]", "ignore_errors = True"]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_package_and_its_use_type_check(tmp_path):
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is missing")
    folder = pathlib.Path(kpd.__file__).parent
    assert (folder / "py.typed").exists() and (folder / "_kpd.pyi").exists()
    use = pathlib.Path(__file__).with_name("typed_use.py")
    command = [sys.executable, "-m", "mypy", "--config-file", str(configuration(tmp_path / "mypy.ini")), "--cache-dir", str(tmp_path), "-p", "kpd"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    run = subprocess.run([*command[:-2], str(use)], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_every_public_name_is_documented():
    from kpd import gradient

    for name in gradient.__all__:
        assert getattr(gradient, name).__doc__, name
    assert gradient.Encoder.__module__ == "kpd.gradient"
