"""ddp_hook in DistributedDataParallel over gloo."""

import contextlib
import hashlib
import os
import signal
import time

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch._dynamo  # noqa: E402, F401: what the first forward() of a DDP imports, once instead of in every rank
import torch_ranks  # noqa: E402
from torch_ranks import dist  # noqa: E402

import kpd  # noqa: E402
from kpd.gradient.torch import ddp_hook  # noqa: E402

DDP = torch.nn.parallel.DistributedDataParallel


class Net(torch.nn.Module):
    def __init__(self, width=200, spare=False):
        super().__init__()
        torch.manual_seed(5)
        self.first = torch.nn.Linear(20, width)
        self.second = torch.nn.Linear(width, width)
        self.last = torch.nn.Linear(width, 1)
        if spare:
            self.spare = torch.nn.Linear(20, 7)

    def forward(self, x, spare=False):
        y = self.last(torch.tanh(self.second(torch.tanh(self.first(x)))))
        return y + self.spare(x).sum(-1, keepdim=True) if spare else y


def batch(rank, step, dtype=torch.float32):
    g = torch.Generator().manual_seed(100 * step + rank)
    x = torch.randn(16, 20, generator=g)
    return x.to(dtype), (0.3 * x).sum(-1, keepdim=True).to(dtype)


def loss_of(model, rank, step, dtype=torch.float32, **forward):
    x, y = batch(rank, step, dtype)
    return ((model(x, **forward) - y).float() ** 2).mean()


def gradients(model):
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def hash_of(tensors):
    digest = hashlib.sha256()
    for t in tensors:
        digest.update(t.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def train(rank, steps, ddp, learning_rate=0.05):
    optimizer = torch.optim.SGD(ddp.parameters(), lr=learning_rate)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(ddp, rank, step)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def errors_of(got, true):
    return {name: float(((got[name].float() - true[name]) ** 2).sum() / (true[name] ** 2).sum()) for name in true}


def lost_of(got, true):
    """Squared error of all tensors together: short ones are coded as one vector."""
    return sum(float((got[name].float() - g).square().sum()) for name, g in true.items()) / sum(float(g.square().sum()) for g in true.values())


def true_gradients(size, step, model=None, **forward):
    model = model or Net()
    for rank in range(size):
        (loss_of(model, rank, step, **forward) / size).backward()
    return gradients(model)


@pytest.mark.parametrize("pattern", ["allgather", "sra"])
def test_gradients_are_the_mean_of_all_ranks(pattern):
    def rank_main(rank):
        ddp = DDP(Net())
        ddp_hook("float32", pattern).register(ddp)
        loss_of(ddp, rank, 0).backward()
        return gradients(ddp.module)

    true = true_gradients(2, 0)
    for got in torch_ranks.run(2, rank_main):
        assert got.keys() == true.keys()
        for name, error in errors_of(got, true).items():
            assert error < 1e-10, name


def test_the_codec_s_error_is_the_one_it_has():
    def rank_main(rank):
        ddp = DDP(Net())
        hook = ddp_hook("eden:bits=4").register(ddp)
        loss_of(ddp, rank, 0).backward()
        return gradients(ddp.module), hook.statistics

    true = true_gradients(2, 0)
    for got, statistics in torch_ranks.run(2, rank_main):
        assert 0.001 < errors_of(got, true)["second.weight"] < 0.02
        assert 0.005 < statistics.vnmse < 0.011
        assert statistics.elements == sum(t.numel() for t in true.values())
        assert 4 < 8 * statistics.sent_bytes / statistics.elements < 4.3


@pytest.mark.parametrize(
    ("codec", "pattern", "error_feedback"),
    [("eden:bits=4", "allgather", False), ("eden:bits=2", "sra", False), ("eden:bits=1,scale=biased", "sra", True)],
)
def test_replicas_are_bit_identical_over_a_hundred_steps(codec, pattern, error_feedback):
    def rank_main(rank):
        ddp = DDP(Net(), bucket_cap_mb=0.05)
        ddp_hook(codec, pattern, error_feedback).register(ddp)
        hashes, losses = [], []
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
        for step in range(100):
            optimizer.zero_grad()
            loss = loss_of(ddp, rank, step)
            loss.backward()
            optimizer.step()
            hashes.append(hash_of(ddp.parameters()))
            losses.append(float(loss.detach()))
        return hashes, losses

    results = torch_ranks.run(2, rank_main)
    assert results[0][0] == results[1][0] and len(set(results[0][0])) == 100
    for _, losses in results:
        assert sum(losses[-20:]) < 0.7 * sum(losses[:20])


def test_the_hook_returns_before_the_other_rank_has_begun():
    """Rank 1 begins its backward pass when the hook of rank 0 has returned from all buckets: a hook that waits would wait for ever."""

    def rank_main(rank):
        ddp = DDP(Net(), bucket_cap_mb=0.05)
        hook = ddp_hook("eden:bits=4")
        store = dist.distributed_c10d._get_default_store()
        times = []

        def timed(state, bucket):
            entry = {"begin": time.monotonic()}
            future = hook(state, bucket)
            entry["returned"] = time.monotonic()
            entry["done_then"] = future.done()
            times.append(entry)
            if rank == 0 and bucket.is_last() and len(times) > 1:
                store.set("all returned", "yes")

            def value_of(done):
                entry["done"] = time.monotonic()
                return done.value()

            return future.then(value_of)

        ddp.register_comm_hook(ddp.module, timed)
        loss_of(ddp, rank, 0).backward()  # in one bucket; then DDP makes as many as it was told
        times.clear()
        store.set(f"rank {rank} is ready", "yes")
        store.wait(["rank 0 is ready", "rank 1 is ready"])
        loss = loss_of(ddp, rank, 1)
        if rank == 1:
            store.wait(["all returned"])
        loss.backward()
        return times

    times = torch_ranks.run(2, rank_main)[0]
    assert len(times) > 1
    assert not any(entry["done_then"] for entry in times)
    last_returned = max(entry["returned"] for entry in times)
    assert all(entry["done"] > last_returned for entry in times)
    done = [entry["done"] for entry in times]
    assert done == sorted(done)  # bucket order


def test_residuals_and_rounds_are_kept_by_parameter_when_buckets_are_rebuilt():
    """DDP groups parameters anew after the first step; the sum of all means and of what is kept tells that no residual went astray."""
    steps = 4

    def rank_main(rank):
        model = Net()
        ddp = DDP(model, bucket_cap_mb=0.05)
        hook = ddp_hook("eden:bits=1,scale=biased", error_feedback=True)
        groups = []

        def seen(state, bucket):
            groups.append((bucket.index(), tuple(p.numel() for p in bucket.parameters())))
            return hook(state, bucket)

        ddp.register_comm_hook(ddp.module, seen)
        sums = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
        for step in range(steps):
            ddp.zero_grad()
            loss_of(ddp, rank, step).backward()
            for name, p in model.named_parameters():
                sums[name] += p.grad
        return sums, hook.state_dict(), groups

    results = torch_ranks.run(2, rank_main)
    first = results[0][2]
    assert first[0][1] != next(sizes for index, sizes in first[-len({i for i, _ in first}) :] if index == 0), "buckets were not rebuilt"
    true = {}
    for step in range(steps):
        for name, g in true_gradients(2, step).items():
            true[name] = true.get(name, 0) + g
    for name, g in true.items():
        assert all(state["rounds"][name] == steps for _, state, _ in results)
        kept = torch.stack([state["residuals"][name] for _, state, _ in results]).mean(0).view(g.shape)
        assert torch.allclose(results[0][0][name] + kept, g, atol=1e-5), name
    assert float(results[0][1]["residuals"]["second.weight"].square().sum()) > 0


def test_a_checkpoint_gives_the_same_residuals_back():
    def rank_main(rank):
        ddp = DDP(Net())
        hook = ddp_hook("eden:bits=1,scale=biased", error_feedback=True).register(ddp)
        train(rank, 3, ddp)
        state = hook.state_dict()
        hook.close()
        other_ddp = DDP(ddp.module)
        other = ddp_hook("eden:bits=1,scale=biased", error_feedback=True).register(other_ddp)
        other.load_state_dict(state)
        same = all(torch.equal(e, state["residuals"][name]) for name, e in other.state_dict()["residuals"].items())
        train(rank, 1, other_ddp)
        return same, other.state_dict()["rounds"]["last.weight"], hash_of(other_ddp.parameters())

    results = torch_ranks.run(2, rank_main)
    assert [r[:2] for r in results] == [(True, 4), (True, 4)]
    assert results[0][2] == results[1][2]


def test_no_sync_sums_up_before_one_exchange():
    def rank_main(rank):
        ddp = DDP(Net())
        hook = ddp_hook("float32").register(ddp)
        with ddp.no_sync():
            loss_of(ddp, rank, 0).backward()
        before = hook.statistics.averages
        loss_of(ddp, rank, 1).backward()
        return gradients(ddp.module), before

    true = true_gradients(2, 0)
    for name, g in true_gradients(2, 1).items():
        true[name] = true[name] + g
    for got, before in torch_ranks.run(2, rank_main):
        assert before == 0
        assert all(error < 1e-10 for error in errors_of(got, true).values())


@pytest.mark.parametrize("options", [{"static_graph": True}, {"find_unused_parameters": True}])
def test_static_graphs_and_unused_parameters(options):
    def rank_main(rank):
        ddp = DDP(Net(spare=True), bucket_cap_mb=0.05, **options)
        ddp_hook("eden:bits=8").register(ddp)
        results = []
        for step in range(3):
            ddp.zero_grad()
            # Unused parameters differ between the ranks and from step to step; a static graph's do not.
            spare = "find_unused_parameters" in options and step % 2 == rank
            loss_of(ddp, rank, step, spare=spare).backward()
            results.append(gradients(ddp.module))
        return results

    for got in torch_ranks.run(2, rank_main):
        for step in range(3):
            model = Net(spare=True)
            for rank in range(2):
                spare = "find_unused_parameters" in options and step % 2 == rank
                (loss_of(model, rank, step, spare=spare) / 2).backward()
            true = gradients(model)
            assert lost_of(got[step], true) < 1e-3, step


def test_bfloat16_buckets():
    def rank_main(rank):
        ddp = DDP(Net().bfloat16())
        ddp_hook("eden:bits=8").register(ddp)
        loss_of(ddp, rank, 0, dtype=torch.bfloat16).backward()
        return gradients(ddp.module)

    model = Net().bfloat16()
    true = {}
    for rank in range(2):
        model.zero_grad()
        loss_of(model, rank, 0, dtype=torch.bfloat16).backward()
        for name, p in model.named_parameters():
            true[name] = true.get(name, 0) + p.grad.float() / 2
    results = torch_ranks.run(2, rank_main)
    for got in results:
        assert all(g.dtype == torch.bfloat16 for g in got.values())
        assert lost_of(got, true) < 1e-3
    assert all(torch.equal(results[0][name], results[1][name]) for name in true)


@pytest.mark.parametrize("pattern", ["allgather", "sra"])
def test_an_overflow_on_one_rank_makes_grad_scalers_skip_the_step_on_all(pattern):
    def rank_main(rank):
        ddp = DDP(Net())
        ddp_hook("eden:bits=4", pattern).register(ddp)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        hashes, scales = [hash_of(ddp.parameters())], []
        for step in range(3):
            optimizer.zero_grad()
            loss = scaler.scale(loss_of(ddp, rank, step))
            if step == 1 and rank == 1:
                loss = loss * float("inf")
            loss.backward()
            scaler.step(optimizer)
            scaler.update()
            hashes.append(hash_of(ddp.parameters()))
            scales.append(scaler.get_scale())
        return hashes, scales

    results = torch_ranks.run(2, rank_main)
    assert results[0] == results[1]
    hashes, scales = results[0]
    assert hashes[1] == hashes[2] and len(set(hashes)) == 3  # step 1 was skipped, steps 0 and 2 were not
    assert scales == [1024.0, 512.0, 512.0]


def test_a_rank_that_is_killed_is_an_error_in_backward_and_not_a_hang():
    def rank_main(rank):
        ddp = DDP(Net())
        ddp_hook().register(ddp)
        for step in range(2):  # in the second one DDP itself talks, about new buckets
            loss_of(ddp, rank, step).backward()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        with pytest.raises(Exception, match="may be lost"):
            loss_of(ddp, rank, 2).backward()
        with pytest.raises(Exception, match="closed or an average of it failed"):
            loss_of(ddp, rank, 3).backward()
        return True

    assert torch_ranks.run(2, rank_main) == [True, None]


def test_wrong_uses_are_told():
    def rank_main(rank):
        ddp = DDP(Net())
        hook = ddp_hook()
        ddp.register_comm_hook(None, hook)
        with pytest.raises(Exception, match=r"expected the model: ddp.register_comm_hook\(ddp.module, hook\)"):
            loss_of(ddp, rank, 0).backward()
        other = DDP(Net())
        other.register_comm_hook(torch.nn.Linear(2, 2), ddp_hook())
        with pytest.raises(Exception, match="expected the model that DDP wraps"):
            loss_of(other, rank, 0).backward()
        with pytest.raises(kpd.Error, match="shrinks every vector"):
            ddp_hook("eden:bits=1,scale=biased")
        closed = DDP(Net())
        hook = ddp_hook().register(closed)
        loss_of(closed, rank, 0).backward()
        hook.close()
        hook.close()
        with pytest.raises(Exception, match="it was closed"):
            loss_of(closed, rank, 0).backward()
        with contextlib.suppress(Exception):
            dist.destroy_process_group()
        with pytest.raises(kpd.Error, match=r"expected init_process_group\(\)"):
            ddp_hook()
        return True

    assert torch_ranks.run(1, rank_main) == [True]


def test_a_hook_of_some_ranks():
    def rank_main(rank):
        group = dist.new_group([0, 2])
        if rank == 1:
            return None
        ddp = DDP(Net(), process_group=group)
        ddp_hook("float32", process_group=group).register(ddp)
        loss_of(ddp, rank // 2, 0).backward()
        return gradients(ddp.module)

    true = true_gradients(2, 0)
    for got in torch_ranks.run(3, rank_main)[::2]:
        assert all(error < 1e-10 for error in errors_of(got, true).values())
