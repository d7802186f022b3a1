"""What cannot be taken is one clear error that names the argument."""

import numpy as np
import pytest

import kpd
from kpd import gradient

X = np.ones(1000, np.float32)


def refused(match, call, *arguments, **options):
    with pytest.raises(kpd.Error, match=match) as caught:
        call(*arguments, **options)
    assert caught.value.code == "invalid_argument"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [[1.0, 2.0], 3.0, None, "text", object()])
def test_what_is_no_array(value):
    with pytest.raises(TypeError, match="array: expected an array of numpy"):
        gradient.encode(value)


def test_types_that_kpd_does_not_have():
    for dtype in (np.complex64, "U3", "M8[s]", [("a", "f4")], object):
        with pytest.raises(kpd.Error, match="array: "):
            gradient.encode(np.zeros(10, dtype))


def test_no_dimension():
    refused("array: has no dimension", gradient.encode, np.array(1.0, np.float32))


def test_negative_strides():
    refused("array: has negative strides", gradient.encode, X[::-1])
    refused(r"tensors\['a'\]: has negative strides", gradient.encode, {"a": X.reshape(10, 100)[:, ::-1]})


def test_big_endian():
    refused("array: is big-endian", gradient.encode, X.astype(">f4"))
    refused("machine's byte order", gradient.Manifest.from_state_dict, {"a": X.astype(">f4")})


def test_results_that_cannot_be_written():
    message = gradient.encode(X)
    fixed = np.zeros_like(X)
    fixed.flags.writeable = False
    refused("out: is read-only", gradient.decode, message, out=fixed)
    refused("out: is read-only", gradient.encode, X, out=bytes(10_000))
    refused("out: is not contiguous", gradient.decode, message, out=np.zeros(2000, np.float32)[::2])
    refused(r"out: has shape \(999,\); expected \(1000,\)", gradient.decode, message, out=np.zeros(999, np.float32))
    refused("out: has elements of int32", gradient.decode, message, out=np.zeros(1000, np.int32))


def test_results_that_overlap():
    message = bytearray(gradient.encode(X, "float32"))
    into = np.frombuffer(message, np.uint8)[8:4008].view(np.float32)
    refused("out: overlaps an input", gradient.decode, message, out=into)
    room = np.zeros(2000, np.float32)
    refused("out: overlaps an input", gradient.encode, room[500:1500], out=room.view(np.uint8))
    two = gradient.encode({"a": X, "b": X})
    refused(r"out\['b'\]|out\[\d\]: overlaps another|out\[1\]", gradient.decode, two, out=[room[:1000], room[500:1500]])


def test_manifest_says_what_tensors_are():
    manifest = gradient.Manifest([("w", "float32", (10, 20)), ("n", "int64", ())])
    with gradient.Encoder(manifest, "eden:bits=1", bytes(32)) as encoder:
        good = {"w": np.zeros((10, 20), np.float32), "n": np.array(1)}

        def encode(**changed):
            return encoder.encode({**good, **changed}, round=0, client=0)

        assert encode()
        refused(r"tensors\['w'\]: has shape \(20, 10\); expected \(10, 20\)", encode, w=good["w"].T.copy())
        refused(r"tensors\['n'\]: has elements of int32; expected int64", encode, n=np.array(1, np.int32))
        refused(r"tensors\['w'\]: has elements of int64; expected float32, float16", encode, w=np.zeros((10, 20), int))
        refused("tensors: has 3 tensors, the manifest 2", encode, more=X)
        refused("tensors: has no tensor 'w'", encoder.encode, {"v": X, "n": good["n"]}, round=0, client=0)
        refused("tensors: has 1 tensors, the manifest 2", encoder.encode, [good["w"]], round=0, client=0)
        assert encode()  # and goes on


def test_secrets_codecs_and_dtypes():
    manifest = gradient.Manifest([("w", "float32", (10,))])
    refused("secret: has 31 bytes; expected 32", gradient.Encoder, manifest, "eden", bytes(31))
    with pytest.raises(TypeError, match="codec: expected"):
        gradient.Encoder(manifest, 3, bytes(32))
    refused("dtype 'float33'", gradient.Manifest, [("w", "float33", (10,))])
    with pytest.raises(TypeError, match="tuples"):
        gradient.Manifest(["w"])
    refused("does not fit", gradient.Manifest.from_state_dict, {"a": X}, {"a": "bfloat16"})


def test_closed_objects():
    manifest = gradient.Manifest([("w", "float32", (1000,))])
    encoder = gradient.Encoder(manifest, "eden", bytes(32))
    decoder = gradient.Decoder(manifest, bytes(32))
    aggregator = gradient.Aggregator(manifest, bytes(32))
    message = encoder.encode(X, round=0, client=0)
    for closing in (encoder, decoder, aggregator):
        assert not closing.closed
        closing.close()
        closing.close()
        assert closing.closed
    refused("Encoder: is closed", encoder.encode, X, round=0, client=0)
    refused("Decoder: is closed", decoder.decode, message, round=0, client=0)
    refused("Aggregator: is closed", aggregator.begin_round, round=0)
    refused("Aggregator: is closed", aggregator.add, 0, message)


def test_a_message_between_machines_is_not_a_file():
    manifest = gradient.Manifest([("w", "float32", (1000,))])
    message = gradient.Encoder(manifest, "eden", bytes(32)).encode(X, round=0, client=0)
    with pytest.raises(kpd.Error, match="Decoder reads the others") as caught:
        gradient.decode(message)
    assert caught.value.code == "unsupported"


def test_error_can_be_pickled():
    import pickle

    error = pickle.loads(pickle.dumps(kpd.Error("text", "corrupt_data", 7)))
    assert (str(error), error.code, error.offset) == ("text", "corrupt_data", 7)
