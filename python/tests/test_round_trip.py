"""encode and decode, one array."""

import numpy as np
import pytest

import kpd
from kpd import gradient


def test_decoded_array_is_near_the_encoded_one():
    x = np.random.default_rng(1).standard_normal(100_000).astype(np.float32)
    message = gradient.encode(x, "eden:bits=4", seed=1)
    y = gradient.decode(message)
    assert y.dtype == np.float32 and y.shape == x.shape
    assert np.sum((y - x) ** 2) / np.sum(x**2) < 0.0097
    assert 8 * len(message) / x.size < 4.1


def test_wrong_spec_is_an_error_with_a_code():
    with pytest.raises(kpd.Error, match="eden") as caught:
        gradient.encode(np.zeros(100, np.float32), "edem:bits=1")
    assert caught.value.code == "invalid_argument"
