"""The bytes are those of the program, both ways. KPD_PROGRAM names it."""

import os
import subprocess

import numpy as np
import pytest

from kpd import gradient

PROGRAM = os.environ.get("KPD_PROGRAM", "")
pytestmark = pytest.mark.skipif(not PROGRAM, reason="KPD_PROGRAM does not name the program kpd")

SPECS = ["eden:bits=1", "eden:code=entropy,bits=2", "drive", "qsgd:bits=4", "float32"]


def kpd(*arguments):
    subprocess.run([PROGRAM, *map(str, arguments)], check=True, capture_output=True)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_an_array_is_encoded_to_the_same_bytes(tmp_path, spec, dtype):
    x = np.random.default_rng(1).standard_normal((123, 100)).astype(dtype)
    np.save(tmp_path / "x.npy", x)
    kpd("encode", tmp_path / "x.npy", tmp_path / "x.kpdg", "--codec", spec, "--seed", 5, "--client", 6, "--round", 7)
    message = gradient.encode(x, spec, seed=5, client=6, round=7)
    assert message == (tmp_path / "x.kpdg").read_bytes()
    kpd("decode", tmp_path / "x.kpdg", tmp_path / "y.npy")
    np.testing.assert_array_equal(gradient.load(tmp_path / "x.kpdg"), np.load(tmp_path / "y.npy"))


def test_what_python_saved_the_program_decodes(tmp_path):
    x = np.random.default_rng(2).standard_normal(50_000).astype(np.float32)
    gradient.save(tmp_path / "x.kpdg", x, "eden:bits=2")
    kpd("decode", tmp_path / "x.kpdg", tmp_path / "y.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), gradient.load(tmp_path / "x.kpdg"))


def test_synthetic_vectors_are_the_programs(tmp_path):
    kpd("mean", "--synthetic", "lognormal", "--dim", 1000, "--clients", 1, "--codec", "float32", "--seed", 9, "--out", tmp_path / "x.npy")
    np.testing.assert_array_equal(gradient.synthetic("lognormal", 1000, seed=9)[0], np.load(tmp_path / "x.npy"))
