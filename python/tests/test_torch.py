"""Tensors of torch, through DLPack."""

import numpy as np
import pytest

import kpd
from kpd import gradient

torch = pytest.importorskip("torch")


def normal(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)).to(dtype)


def refused(match, tensor):
    with pytest.raises(kpd.Error, match=match) as caught:
        gradient.encode(tensor)
    assert caught.value.code == "invalid_argument"


def test_a_tensor_is_the_same_message_as_its_array():
    x = normal(30, 400)
    assert gradient.encode(x, seed=1) == gradient.encode(x.numpy(), seed=1)
    assert gradient.encode(x.T, seed=1) == gradient.encode(x.T.numpy(), seed=1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_floating_types_are_read_as_they_lie(dtype):
    x = normal(5000, dtype=dtype)
    out = torch.zeros(5000, dtype=dtype)
    assert gradient.decode(gradient.encode(x, "float32"), out=out) is out
    assert torch.equal(out, x.float().to(dtype))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool])
def test_exact_types_travel_as_they_are(dtype):
    x = (torch.arange(300) % 2).to(dtype)
    out = torch.empty(300, dtype=dtype)
    gradient.decode(gradient.encode(x), out=out)
    assert torch.equal(out, x)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_8_bit_floats_travel_as_they_are(name):
    x = normal(300).to(getattr(torch, name))
    y = gradient.decode(gradient.encode(x))
    np.testing.assert_array_equal(y, x.view(torch.uint8).numpy())


def test_state_dict_of_a_model_goes_there_and_back():
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.BatchNorm2d(16), torch.nn.Linear(16, 100))
    state = model.state_dict()
    manifest = gradient.Manifest.from_state_dict(state)
    assert manifest.names == list(state)
    assert ("1.num_batches_tracked", "int64", ()) in manifest.tensors
    message = gradient.encode(state, "float32")
    back = gradient.decode(message)
    for name, tensor in state.items():
        assert torch.equal(torch.from_numpy(back[name]), tensor), name
    gradient.decode(message, out=state)
    model.load_state_dict(state)


def test_manifest_needs_no_data():
    meta = {"a": torch.empty(5, 7, device="meta", dtype=torch.bfloat16), "p": torch.nn.Parameter(torch.zeros(3))}
    assert gradient.Manifest.from_state_dict(meta).tensors == [("a", "bfloat16", (5, 7)), ("p", "float32", (3,))]


def test_what_cannot_be_read():
    x = normal(1000)
    refused("array: requires grad; expected x.detach", x.clone().requires_grad_())
    refused("array: requires grad", torch.nn.Parameter(x))
    refused("array: has layout torch.sparse_coo", x.to_sparse())
    refused("array: has layout torch.sparse_csr", x.reshape(10, 100).to_sparse_csr())
    refused("array: is on device meta", torch.empty(5, device="meta"))
    z = torch.complex(x, x)
    refused("array: is a conjugate view", z.conj())
    refused("array: is a negative view", z.conj().imag)
    refused("array: has elements that kpd does not have", z)
    refused("array: has no dimension", torch.tensor(1.0))


def test_results_in_tensors():
    x = normal(5000)
    message = gradient.encode(x, seed=1)
    out = torch.zeros(5000)
    gradient.decode(message, out=out)
    np.testing.assert_array_equal(out.numpy(), gradient.decode(message))
    with pytest.raises(kpd.Error, match="out: is not contiguous"):
        gradient.decode(message, out=torch.zeros(5000, 2)[:, 0])
    with pytest.raises(kpd.Error, match="out: overlaps an input"):
        gradient.encode(x, out=x.view(torch.uint8))


def test_rounds_take_tensors():
    state = {"w": normal(100, 50), "b": normal(50)}
    manifest = gradient.Manifest.from_state_dict(state)
    message = gradient.Encoder(manifest, "float32", bytes(32)).encode(state, round=0, client=0)
    sums = [torch.ones(100, 50), torch.ones(50)]
    gradient.Decoder(manifest, bytes(32)).decode_add(message, sums, 2.0, round=0, client=0)
    assert torch.allclose(sums[0], 1 + 2 * state["w"]) and torch.allclose(sums[1], 1 + 2 * state["b"])


def worker(i):
    return len(gradient.encode(normal(1 << 19), seed=i, threads=4))


class Encoded(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return worker(i)


def test_workers_of_a_data_loader_code():
    expected = worker(0)  # the pool lives in the parent
    loader = torch.utils.data.DataLoader(Encoded(), batch_size=None, num_workers=2, multiprocessing_context="fork", timeout=60)
    assert list(loader) == [expected] * 8
