"""Encoder, Decoder and Aggregator: rounds between machines that agree on a manifest and a secret."""

import pickle

import numpy as np
import pytest

import kpd
from kpd import gradient

SECRET = bytes(range(32))


@pytest.fixture
def state():
    rng = np.random.default_rng(1)
    return {
        "w": rng.standard_normal((100, 200)).astype(np.float32),
        "b": rng.standard_normal(200).astype(np.float16),
        "n": np.array(3, np.int64),
    }


@pytest.fixture
def manifest(state):
    return gradient.Manifest.from_state_dict(state)


def test_codec_is_a_value():
    codec = gradient.Codec("eden:bits=2")
    assert codec.method == "eden" and codec.bits == 2 and codec.spec == "eden:bits=2"
    assert codec == gradient.Codec("eden:bits=2.0") != gradient.Codec("eden:bits=1")
    assert len({codec, gradient.Codec("eden:bits=2")}) == 1
    assert pickle.loads(pickle.dumps(codec)) == codec
    assert 0.13 < codec.limit_vnmse() < 0.134
    assert codec.with_bits(4).bits == 4
    assert repr(codec) == "Codec('eden:bits=2')"


def test_manifest_is_a_value(manifest):
    assert manifest.tensors == [("w", "float32", (100, 200)), ("b", "float16", (200,)), ("n", "int64", ())]
    assert manifest.names == ["w", "b", "n"] and manifest.elements == 20_201 and len(manifest) == 3
    assert gradient.Manifest(manifest.tensors) == manifest != gradient.Manifest(manifest.tensors[:2])
    copy = pickle.loads(pickle.dumps(manifest))
    assert copy == manifest and copy.hash == manifest.hash and hash(copy) == hash(manifest)


def test_message_comes_back_in_order(state, manifest):
    encoder = gradient.Encoder(manifest, "float32", SECRET)
    message = encoder.encode(state, run=7, round=1, client=2, weight=5)
    assert encoder.report.stream_bytes == len(message) <= encoder.max_bytes and encoder.report.vnmse == 0
    decoder = gradient.Decoder(manifest, SECRET)
    ids = decoder.peek(message)
    assert (ids.run, ids.round, ids.client, ids.weight) == (7, 1, 2, 5)
    w, b, n = decoder.decode(message, run=7, round=1, client=2)
    np.testing.assert_array_equal(w, state["w"])
    np.testing.assert_array_equal(b, state["b"].astype(np.float32))
    assert b.dtype == np.float32 and n.dtype == np.int64 and n == 3
    norm = np.sqrt(np.sum(w.astype(float) ** 2) + np.sum(b.astype(float) ** 2) + 9)
    assert decoder.norm(message, run=7, round=1, client=2) == pytest.approx(norm)


def test_a_list_and_a_mapping_are_the_same_message(state, manifest):
    encoder = gradient.Encoder(manifest, "eden:bits=1", SECRET)
    assert encoder.encode(state, round=0, client=1) == encoder.encode(list(state.values()), round=0, client=1)
    assert encoder.encode(state, round=0, client=1) != encoder.encode(state, round=0, client=2)


def test_message_of_another_round_is_a_mismatch(state, manifest):
    message = gradient.Encoder(manifest, "eden", SECRET).encode(state, round=1, client=2)
    with pytest.raises(kpd.Error, match="round") as caught:
        gradient.Decoder(manifest, SECRET).decode(message, round=2, client=2)
    assert caught.value.code == "mismatch"


def test_decode_add_weighs(state, manifest):
    message = gradient.Encoder(manifest, "float32", SECRET).encode(state, round=0, client=0)
    sums = [np.ones((100, 200), np.float32), np.ones(200, np.float32), None]
    gradient.Decoder(manifest, SECRET).decode_add(message, sums, 0.5, round=0, client=0)
    np.testing.assert_allclose(sums[0], 1 + state["w"] / 2, rtol=1e-6)
    np.testing.assert_allclose(sums[1], 1 + state["b"].astype(np.float32) / 2, rtol=1e-6)


def test_round_takes_the_good_and_names_the_others(state, manifest):
    def message(client, **ids):
        return gradient.Encoder(manifest, "float32", SECRET).encode(state, client=client, **{"run": 7, "round": 3, **ids})

    server = gradient.Aggregator(manifest, SECRET, max_weight=10)
    server.begin_round(run=7, round=3)
    assert server.add(1, message(1, weight=2))
    damaged = bytearray(message(2))
    damaged[200] ^= 1
    refusals = {
        "twice": server.add(1, message(1, weight=2)),
        "damaged": server.add(2, damaged),
        "other round": server.add(3, message(3, round=2)),
        "other run": server.add(3, message(3, run=8)),
        "other client": server.add(3, message(4)),
        "weight": server.add(3, message(3, weight=11)),
    }
    for name, verdict in refusals.items():
        assert not verdict and verdict.refusal == name and verdict.reason, name
    assert server.add(5, message(5, weight=3), weight=3).weight == 3
    assert server.add(6, message(6, weight=3), weight=4).refusal == "weight"
    server.refuse("silent")
    assert server.report.accepted == 2 and server.report.total_weight == 5
    assert server.report.refused == {"silent": 1, "damaged": 1, "twice": 1, "other round": 1, "other run": 1, "other client": 1, "weight": 2}
    mean = server.finish_round()
    np.testing.assert_allclose(mean[0], state["w"], rtol=1e-6)
    assert mean[2] == 3


def test_round_of_nobody_has_no_mean(manifest):
    server = gradient.Aggregator(manifest, SECRET)
    server.begin_round(round=0)
    assert not server.add(0, b"garbage")
    assert server.finish_round() is None
    with pytest.raises(kpd.Error, match="outside a round"):
        server.finish_round()


def test_round_sums_into_out(state, manifest):
    server = gradient.Aggregator(manifest, SECRET)
    out = [np.full((100, 200), 9, np.float32), np.full(200, 9, np.float32), None]
    server.begin_round(round=0, out=out)
    assert server.add(0, gradient.Encoder(manifest, "float32", SECRET).encode(state, round=0, client=0))
    mean = server.finish_round()
    assert mean[0] is out[0] and mean[2] is None
    np.testing.assert_array_equal(out[0], state["w"])


def test_update_beyond_the_norm_or_of_another_codec_is_refused(state, manifest):
    server = gradient.Aggregator(manifest, SECRET, codec="eden:bits=1", max_norm=1.0)
    server.begin_round(round=0)
    encoder = gradient.Encoder(manifest, "eden:bits=1", SECRET)
    assert server.add(0, encoder.encode(state, round=0, client=0)).refusal == "norm"
    other = gradient.Encoder(manifest, "eden:bits=2", SECRET).encode(state, round=0, client=0)
    assert server.add(0, other).refusal == "other codec"
    small = {"w": state["w"] * np.float32(1e-3), "b": state["b"] * np.float16(0), "n": state["n"] * 0}
    assert server.add(0, encoder.encode(small, round=0, client=0))
