"""Whatever the bytes: a result or one kpd.Error, and the decoder goes on."""

import numpy as np
import pytest

import kpd
from kpd import gradient

SECRET = bytes(32)
MANIFEST = gradient.Manifest([("a", "float32", (5000,)), ("b", "float16", (70,)), ("n", "int32", (9,))])


def tensors():
    rng = np.random.default_rng(3)
    return [rng.standard_normal(5000).astype(np.float32), rng.standard_normal(70).astype(np.float16), np.arange(9, dtype=np.int32)]


@pytest.mark.parametrize("spec", ["eden:bits=1", "eden:code=entropy,bits=2", "qsgd:bits=4"])
def test_damaged_messages(spec):
    message = gradient.Encoder(MANIFEST, spec, SECRET).encode(tensors(), round=0, client=0)
    decoder = gradient.Decoder(MANIFEST, SECRET)
    server = gradient.Aggregator(MANIFEST, SECRET)
    server.begin_round(round=0)
    rng = np.random.default_rng(4)
    for _ in range(300):
        bad = bytearray(message)
        kind = rng.integers(3)
        if kind == 0:
            bad[rng.integers(len(bad))] ^= 1 << rng.integers(8)
        elif kind == 1:
            del bad[rng.integers(len(bad)) :]
        else:
            bad = bytearray(rng.bytes(rng.integers(300)))
        with pytest.raises(kpd.Error) as caught:
            decoder.decode(bad, round=0, client=0)
        assert caught.value.code in {"corrupt_data", "unsupported", "limit_exceeded", "mismatch"}
        assert not server.add(0, bad)
    good = decoder.decode(message, round=0, client=0)
    np.testing.assert_array_equal(good[2], np.arange(9))
    assert server.add(0, message)


def test_damaged_files():
    message = gradient.encode(dict(zip("abn", tensors())), seed=1)
    rng = np.random.default_rng(5)
    for at in rng.integers(0, len(message), 300):
        with pytest.raises(kpd.Error):
            gradient.decode(message[:at])
        bad = bytearray(message)
        bad[at] ^= 0x40
        with pytest.raises(kpd.Error):
            gradient.decode(bad)


def test_error_says_where():
    with pytest.raises(kpd.Error, match="byte 0") as caught:
        gradient.decode(b"KPDX" + bytes(100))
    assert caught.value.code == "corrupt_data" and caught.value.offset == 0
    assert gradient.encode(np.zeros(3, np.float32))[:4] == b"KPDG"
