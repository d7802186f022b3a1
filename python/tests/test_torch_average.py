"""average_tensors and Averager: means over ranks, both patterns, error feedback, what is refused."""

import os
import signal

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch_ranks  # noqa: E402
from torch_ranks import dist  # noqa: E402

import kpd  # noqa: E402
from kpd.gradient.torch import Averager, average_tensors  # noqa: E402

FOLDED = 600_001  # more than one slice


def vectors(rank, step=0):
    """Tensors of several types and layouts, another one for each rank and step."""
    g = torch.Generator().manual_seed(1000 * step + rank)
    return {
        "long": torch.randn(FOLDED, generator=g),
        "short": torch.randn(3, generator=g),
        "half": torch.randn(50, 100, generator=g).bfloat16(),
        "scalar": torch.randn((), generator=g),
        "turned": torch.randn(90, 100, generator=g).t(),
        "empty": torch.zeros(0),
    }


def mean_of(size, name, step=0):
    return torch.stack([vectors(rank, step)[name].float() for rank in range(size)]).mean(0)


def error_of(x, y):
    return float(((x.float() - y) ** 2).sum() / (y**2).sum())


@pytest.mark.parametrize("pattern", ["allgather", "sra"])
@pytest.mark.parametrize(("codec", "limit"), [("float32", 1e-5), ("eden:bits=4", 0.017), ("eden:code=entropy,bits=2", 0.19)])
def test_all_ranks_get_the_same_mean_near_the_true_one(pattern, codec, limit):
    def rank_main(rank):
        tensors = vectors(rank)
        average_tensors(tensors, codec=codec, pattern=pattern)
        return tensors

    results = torch_ranks.run(3, rank_main)
    for name, tensor in vectors(0).items():
        for other in results[1:]:
            assert torch.equal(results[0][name], other[name])
        assert results[0][name].dtype == tensor.dtype and results[0][name].shape == tensor.shape
        if tensor.numel():
            assert error_of(results[0][name], mean_of(3, name)) <= limit, name


def test_short_tensors_travel_exactly_and_bytes_follow_the_codec():
    def rank_main(rank):
        short = {"short": torch.full((3,), float(rank))}
        average_tensors(short, codec="eden:bits=1")
        x = torch.randn(FOLDED)
        return short["short"], average_tensors([x], codec="eden:bits=1").sent_bytes

    for short, sent in torch_ranks.run(2, rank_main):
        assert short.tolist() == [0.5, 0.5, 0.5]
        assert FOLDED / 8 < sent < 1.03 * FOLDED / 8


def test_sra_sends_less_than_allgather():
    def rank_main(rank):
        return [average_tensors([torch.randn(FOLDED)], codec="eden:bits=4", pattern=p).sent_bytes for p in ("allgather", "sra")]

    for allgather, sra in torch_ranks.run(4, rank_main):
        assert sra == pytest.approx(allgather / 2, rel=0.1)


def test_fewer_elements_than_ranks():
    def rank_main(rank):
        tensors = [torch.full((2,), float(rank)), torch.tensor(float(rank))]
        average_tensors(tensors, pattern="sra")
        return [t.tolist() for t in tensors]

    assert torch_ranks.run(4, rank_main) == [[[1.5, 1.5], 1.5]] * 4


def test_codecs_by_name():
    def rank_main(rank):
        tensors = vectors(rank)
        average_tensors(tensors, codec=["eden:bits=1", "long=float32"])
        return tensors

    tensors = torch_ranks.run(2, rank_main)[0]
    assert error_of(tensors["long"], mean_of(2, "long")) < 1e-10
    assert error_of(tensors["turned"], mean_of(2, "turned")) > 0.1


@pytest.mark.parametrize("pattern", ["allgather", "sra"])
def test_error_feedback_loses_nothing_in_the_long_run(pattern):
    """Sum of means + mean of what the ranks still keep = sum of the true means, also when the tensors are grouped anew."""
    size, steps = 3, 4

    def rank_main(rank):
        averager = Averager(codec="eden:bits=1,scale=biased", pattern=pattern, error_feedback=True)
        sums = {name: torch.zeros(t.shape) for name, t in vectors(rank).items() if name != "half"}
        for step in range(steps):
            tensors = {name: t for name, t in vectors(rank, step).items() if name in sums}
            groups = [list(sums)] if step < 2 else [["turned", "short"], ["empty", "long", "scalar"]]
            for names in groups:
                averager.average({name: tensors[name] for name in names})
            for name in sums:
                sums[name] += tensors[name]
        kept = averager.state_dict()["residuals"]
        return {name: (sums[name], kept[name].view(sums[name].shape) if name in kept else torch.zeros(sums[name].shape)) for name in sums}

    results = torch_ranks.run(size, rank_main)
    for name in ("long", "turned", "short", "scalar"):
        kept = torch.stack([r[name][1] for r in results]).mean(0)
        true = sum(mean_of(size, name, step) for step in range(steps))
        assert torch.allclose(results[0][name][0] + kept, true, atol=1e-4), name
        if name in ("long", "turned"):
            assert error_of(results[0][name][0], true) > 0.01  # so there was something to keep


@pytest.mark.parametrize("pattern", ["allgather", "sra"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_on_one_rank_is_not_finite_on_all(pattern, value):
    def rank_main(rank):
        averager = Averager(codec="eden:bits=1", pattern=pattern)
        x = torch.ones(FOLDED)
        if rank == 1:
            x[7] = value
        averager.average([x])
        y = torch.ones(FOLDED)
        averager.average([y])
        return bool(x[7].isfinite()), bool(x[-1].isfinite()), bool(y.isfinite().all())

    # The other slice, and the next average, are not touched.
    assert torch_ranks.run(2, rank_main) == [(False, True, True)] * 2


def test_ranks_that_mean_different_things_are_all_told():
    def rank_main(rank):
        with pytest.raises(kpd.Error, match="expected the same codec") as caught:
            Averager(codec=f"eden:bits={rank + 1}")
        return caught.value.code

    assert torch_ranks.run(2, rank_main) == ["mismatch"] * 2


def test_another_length_on_one_rank_is_an_error_on_all():
    def rank_main(rank):
        with pytest.raises(kpd.Error):
            average_tensors([torch.ones(100 + (rank == 1))], codec="eden:bits=4,rounds=1")
        return True

    assert torch_ranks.run(2, rank_main) == [True] * 2


def test_a_rank_that_is_killed_is_an_error_for_the_others():
    def rank_main(rank):
        averager = Averager()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        with pytest.raises(kpd.Error, match="may be lost") as caught:
            averager.average([torch.ones(1000)])
        with pytest.raises(kpd.Error, match="expected a new one"):
            averager.average([torch.ones(1000)])
        return caught.value.code

    assert torch_ranks.run(2, rank_main) == ["io", None]


def test_what_no_average_is_made_of_is_refused():
    def rank_main(rank):
        averager = Averager()
        with pytest.raises(kpd.Error, match="tensor 0: torch.int64"):
            averager.average([torch.arange(5)])
        with pytest.raises(kpd.Error, match="tensor w: torch.sparse_coo"):
            averager.average({"w": torch.eye(3).to_sparse()})
        with pytest.raises(kpd.Error, match="meta"):
            averager.average([torch.ones(3, device="meta")])
        with pytest.raises(kpd.Error, match="float, expected a torch.Tensor"):
            averager.average([1.0])
        with pytest.raises(kpd.Error, match="shrinks every vector"):
            Averager(codec="eden:bits=1,scale=biased")
        with pytest.raises(kpd.Error, match="would grow without end"):
            Averager(codec="eden:bits=0.5", error_feedback=True)
        with pytest.raises(kpd.Error, match="expected allgather or sra"):
            Averager(pattern="ring")
        with pytest.raises(kpd.Error, match="second hop"):
            Averager(second="eden:bits=2")
        with pytest.raises(kpd.Error, match="eden"):
            Averager(codec="edem:bits=2")
        x = torch.ones(10)
        averager.average([x])  # and it still averages
        return x.tolist()

    assert torch_ranks.run(1, rank_main) == [[1.0] * 10]


def test_without_a_process_group_the_error_says_so():
    with pytest.raises(kpd.Error, match=r"expected init_process_group\(\)"):
        average_tensors([torch.ones(3)])


def test_state_goes_on_where_it_was():
    def rank_main(rank):
        options = {"codec": "eden:bits=1,scale=biased", "error_feedback": True}
        averager = Averager(**options)
        averager.average({"w": vectors(rank)["long"]})
        state = averager.state_dict()
        with pytest.raises(kpd.Error, match="expected none without error_feedback"):
            Averager(codec="eden:bits=1").load_state_dict(state)
        other = Averager(**options)
        other.load_state_dict(state)
        other.average({"w": torch.zeros(FOLDED)})
        after = other.state_dict()
        return state["rounds"], after["rounds"], float(state["residuals"]["w"].square().sum()), float(after["residuals"]["w"].square().sum())

    for before, after, kept, left in torch_ranks.run(2, rank_main):
        assert (before, after) == ({"w": 1}, {"w": 2})
        # A vector of zeros was sent with what was kept: about a third of it is left.
        assert 0.2 * kept < left < 0.5 * kept


def test_a_group_of_some_ranks():
    def rank_main(rank):
        group = dist.new_group([0, 2])
        x = torch.full((100,), float(rank))
        if rank != 1:
            average_tensors([x], group, codec="float32")
        return float(x[0])

    assert torch_ranks.run(3, rank_main) == [1.0, 1.0, 1.0]
