"""encode, decode, save and load: values, types, places of results."""

import numpy as np
import pytest

import kpd
from kpd import gradient


def normal(n, seed=1, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(n).astype(dtype)


def error(x, y):
    x = np.asarray(x, np.float64)
    return np.sum((np.asarray(y, np.float64) - x) ** 2) / np.sum(x**2)


def test_decoded_array_is_near_the_encoded_one():
    x = normal(100_000)
    message = gradient.encode(x, "eden:bits=4", seed=1)
    y = gradient.decode(message)
    assert y.dtype == np.float32 and y.shape == x.shape
    assert error(x, y) < 0.0097
    assert 8 * len(message) / x.size < 4.1


def test_shape_is_restored():
    x = normal(6000).reshape(3, 40, 50)
    assert gradient.decode(gradient.encode(x, "float32")).tolist() == x.tolist()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floating_types_come_back_in_their_type(dtype):
    x = normal(5000, dtype=dtype)
    y = gradient.decode(gradient.encode(x, "float32", seed=1))
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, x.astype(np.float32).astype(dtype))


@pytest.mark.parametrize("dtype", "int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool".split())
def test_exact_types_travel_as_they_are(dtype):
    x = np.random.default_rng(2).integers(0, 255, (7, 300)).astype(dtype)
    y = gradient.decode(gradient.encode({"n": x}, "eden:bits=1"))["n"]
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y, x)


def test_uint16_is_bfloat16_where_dtype_says_so():
    bits = (normal(5000).view(np.uint32) >> 16).astype(np.uint16)
    values = (bits.astype(np.uint32) << 16).view(np.float32)
    y = gradient.decode(gradient.encode(bits, "float32", dtype="bfloat16"))
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y, values)
    with pytest.raises(kpd.Error, match="float32; expected bfloat16"):
        gradient.encode(normal(100), dtype="bfloat16")


def test_state_dict_keeps_names_and_scalars():
    state = {"weight": normal(5000).reshape(50, 100), "bias": normal(50), "steps": np.array(7)}
    back = gradient.decode(gradient.encode(state, ["eden:bits=4", "bias=float32"]))
    assert list(back) == list(state)
    assert back["steps"].shape == () and back["steps"] == 7
    np.testing.assert_array_equal(back["bias"], state["bias"])
    assert error(state["weight"], back["weight"]) < 0.012


@pytest.mark.parametrize("wrap", [memoryview, bytearray, lambda b: np.frombuffer(b, np.uint8), bytes])
def test_messages_are_any_bytes(wrap):
    x = normal(1000)
    np.testing.assert_array_equal(gradient.decode(wrap(gradient.encode(x, "float32"))), x)


def test_buffers_other_than_numpy_are_taken():
    import array

    x = array.array("f", [1.5, -2.0] * 100)
    assert gradient.decode(gradient.encode(x, "float32")).tolist() == x.tolist()


@pytest.mark.parametrize("view", [lambda x: x[:, ::3], lambda x: x.T, lambda x: x[5:90:7, 3:40], lambda x: x[::2][:, None]])
def test_what_is_not_contiguous_is_copied(view):
    x = view(normal(90 * 60).reshape(90, 60))
    assert not x.flags.c_contiguous
    np.testing.assert_array_equal(gradient.decode(gradient.encode(x, "float32")), x)


def test_empty_arrays_travel():
    y = gradient.decode(gradient.encode(np.zeros((3, 0), np.float32)))
    assert y.shape == (3, 0)


def test_result_of_encode_goes_into_out():
    x = normal(10_000)
    expected = gradient.encode(x, seed=3)
    room = bytearray(20_000)
    written = gradient.encode(x, seed=3, out=room)
    assert isinstance(written, memoryview)
    assert written == expected and bytes(room[: len(expected)]) == expected
    with pytest.raises(kpd.Error, match="bytes of room"):
        gradient.encode(x, seed=3, out=bytearray(10))


def test_result_of_decode_goes_into_out():
    x = normal(10_000)
    message = gradient.encode(x, seed=3)
    out = np.zeros_like(x)
    assert gradient.decode(message, out=out) is out
    np.testing.assert_array_equal(out, gradient.decode(message))
    half = np.zeros(x.shape, np.float16)
    gradient.decode(message, out=half)
    np.testing.assert_array_equal(half, out.astype(np.float16))


def test_seed_client_and_round_choose_the_bytes():
    x = normal(10_000)
    first = gradient.encode(x, seed=3, client=1, round=2)
    assert first == gradient.encode(x, seed=3, client=1, round=2)
    others = [gradient.encode(x, seed=s, client=c, round=r) for s, c, r in [(4, 1, 2), (3, 2, 2), (3, 1, 3)]]
    assert len({first, *others}) == 4


def test_every_call_draws_a_fresh_seed():
    x = normal(10_000)
    assert len({gradient.encode(x) for _ in range(10)}) == 10


def test_bytes_do_not_depend_on_threads():
    x = normal(1 << 20)
    assert gradient.encode(x, seed=1, threads=1) == gradient.encode(x, seed=1, threads=5)


def test_nan_is_refused_zeroed_or_passed():
    x = normal(10_000)
    x[77] = np.nan
    with pytest.raises(kpd.Error, match="element 77 is not finite"):
        gradient.encode(x)
    assert np.isfinite(gradient.decode(gradient.encode(x, nonfinite="zero"))).all()
    np.testing.assert_array_equal(gradient.decode(gradient.encode(x, nonfinite="pass")), x)
    with pytest.raises(kpd.Error, match="refuse, zero or pass"):
        gradient.encode(x, nonfinite="skip")


def test_save_and_load(tmp_path):
    state = {"a": normal(10_000), "n": np.arange(5)}
    path = tmp_path / "update.kpdg"
    assert gradient.save(path, state, "eden:bits=4", seed=1) == path.stat().st_size
    assert [p.name for p in tmp_path.iterdir()] == ["update.kpdg"]
    back = gradient.load(path)
    np.testing.assert_array_equal(back["a"], gradient.decode(path.read_bytes())["a"])
    np.testing.assert_array_equal(back["n"], state["n"])
    path.write_bytes(b"no such thing")
    with pytest.raises(kpd.Error, match="update.kpdg"):
        gradient.load(path)
    with pytest.raises(OSError):
        gradient.save(tmp_path / "missing" / "x.kpdg", state)


def test_wrong_spec_is_an_error_with_a_code():
    with pytest.raises(kpd.Error, match="eden") as caught:
        gradient.encode(normal(100), "edem:bits=1")
    assert caught.value.code == "invalid_argument" and caught.value.offset is None


def test_mean_of_many_errs_less_than_one():
    clients = gradient.synthetic("normal", 20_000, clients=16, seed=5)
    true = clients.mean(axis=0, dtype=np.float64)
    got = gradient.mean(list(clients), spec="eden:bits=1", seed=1)
    single = error(clients[0], gradient.decode(gradient.encode(clients[0], "eden:bits=1")))
    assert 0.5 < single < 0.65
    # Errors of 16 messages are independent: 1/16 of one's, of vectors whose mean has 1/16 of the energy.
    assert np.sum((got - true) ** 2) / np.sum(clients[0].astype(np.float64) ** 2) < 1.2 * single / 16


def test_mean_is_weighted_and_keeps_names():
    updates = [{"w": np.full(10, v, np.float32)} for v in (1.0, 4.0)]
    np.testing.assert_allclose(gradient.mean(updates, [2, 1], "float32")["w"], np.full(10, 2.0), rtol=1e-6)
    for weights in ([1], [0, 0], [2, -1]):
        with pytest.raises(kpd.Error, match="weights"):
            gradient.mean(updates, weights)
    with pytest.raises(kpd.Error, match="updates"):
        gradient.mean([])


def test_synthetic_is_a_function_of_its_arguments():
    a = gradient.synthetic("lognormal", 1000, clients=2, seed=1)
    assert a.shape == (2, 1000) and a.dtype == np.float32 and (a > 0).all()
    np.testing.assert_array_equal(a, gradient.synthetic("lognormal", 1000, clients=2, seed=1, threads=3))
    assert not np.array_equal(a[0], a[1])
    with pytest.raises(kpd.Error, match="lognormal"):
        gradient.synthetic("lognormale", 10)
