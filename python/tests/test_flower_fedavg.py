"""kpd.flower.KpdFedAvg, in one process (flower_local.py)."""

import os
import sys
import tracemalloc

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs flwr >= 1.22: pip install flwr")
sys.path.insert(0, os.path.dirname(__file__))

from flower_local import LocalGrid, arrays, client  # noqa: E402
from flwr.app import ArrayRecord, Message, RecordDict  # noqa: E402
from flwr.serverapp.strategy import FedAvg  # noqa: E402

import kpd  # noqa: E402
import kpd.flower  # noqa: E402


def step_of(node):
    def step(name, value):
        if value.dtype.kind != "f":
            return value + value.dtype.type(node)
        return value + np.random.default_rng(node).standard_normal(value.shape).astype(value.dtype)

    return step


def nodes_of(*ids, mods=None):
    return {n: client(step_of(n), examples=10 * n, mods=[kpd.flower.mod()] if mods is None else mods) for n in ids}


def start(strategy, nodes, record, rounds=1, timeout=2.0, **options):
    return strategy.start(grid=LocalGrid(nodes), initial_arrays=record, num_rounds=rounds, timeout=timeout, **options)


def record_of(n=6000):
    return arrays(w=np.ones((n // 60, 60), np.float32), h=np.ones(100, np.float16), count=np.array(2**40, np.int64))


def test_mean_is_that_of_flowers_fedavg():
    kpds = start(kpd.flower.KpdFedAvg("eden:bits=8", max_weight=100), nodes_of(1, 2, 3), record_of(), rounds=2)
    flowers = start_plain(nodes_of(1, 2, 3, mods=[]), record_of(), rounds=2)
    for name in ("w", "h"):
        got, wanted = kpds.arrays[name].numpy(), flowers.arrays[name].numpy()
        assert got.shape == wanted.shape
        assert np.sum((got - wanted) ** 2) / np.sum((wanted - 1) ** 2) < 1e-4
    assert kpds.arrays["h"].dtype == "float16"
    assert dict(kpds.train_metrics_clientapp[1]) == pytest.approx(dict(flowers.train_metrics_clientapp[1]))
    assert dict(kpds.evaluate_metrics_clientapp[1]) == pytest.approx(dict(flowers.evaluate_metrics_clientapp[1]))


def start_plain(nodes, record, rounds):
    class PlainGrid(LocalGrid):
        def send_and_receive(self, messages, *, timeout=None):
            self.push_messages(messages)
            return [self.replies.pop(id_) for id_ in list(self.replies)]

    return FedAvg().start(grid=PlainGrid(nodes), initial_arrays=record, num_rounds=rounds)


def test_integers_stay_integers_and_their_means_are_rounded():
    result = start(kpd.flower.KpdFedAvg(max_weight=100), nodes_of(1, 2, 3), record_of())
    count = result.arrays["count"].numpy()
    assert count.dtype == np.int64 and count.shape == ()
    assert count == 2**40 + round((10 * 1 + 20 * 2 + 30 * 3) / 60)


def test_bad_clients_are_left_out_by_name_and_the_round_goes_on():
    nodes = nodes_of(1, 2)
    nodes[3] = lambda message: None
    nodes[4] = lambda message: Message(RecordDict({"arrays": arrays(w=1.0)}), reply_to=message)
    nodes[5] = client(step_of(5), examples=101, mods=[kpd.flower.mod()])
    strategy = kpd.flower.KpdFedAvg("eden:bits=8", max_weight=100, fraction_evaluate=0.0)
    result = start(strategy, nodes, record_of(), timeout=0.5)
    good = start(kpd.flower.KpdFedAvg("eden:bits=8", max_weight=100, fraction_evaluate=0.0), nodes_of(1, 2), record_of())
    np.testing.assert_allclose(result.arrays["w"].numpy(), good.arrays["w"].numpy(), atol=0.1)
    refused = strategy.rounds[1].refused
    assert sorted(refused) == [3, 4, 5]
    assert refused[3].startswith("silent: ") and refused[4].startswith("damaged: ") and "max_weight" in refused[5]
    assert (strategy.rounds[1].asked, strategy.rounds[1].accepted) == (5, 2)


def test_last_rounds_message_is_refused():
    app, kept = nodes_of(3)[3], []

    def replaying(message):
        kept.append(app(message, None).content)
        return Message(kept[0], reply_to=message)

    strategy = kpd.flower.KpdFedAvg(max_weight=100, fraction_evaluate=0.0)
    start(strategy, {**nodes_of(1, 2), 3: replaying}, record_of(), rounds=2)
    assert strategy.rounds[1].refused == {}
    assert list(strategy.rounds[2].refused) == [3] and strategy.rounds[2].refused[3].startswith("other round: ")


def test_model_stays_where_nobody_is_accepted():
    nodes = {n: (lambda message: None) for n in (1, 2)}
    record = record_of()
    result = start(kpd.flower.KpdFedAvg(max_weight=100, fraction_evaluate=0.0), nodes, record, timeout=0.1)
    assert result.arrays == ArrayRecord() and result.train_metrics_clientapp == {}


def test_metrics_of_another_form_do_not_stop_the_round():
    nodes = nodes_of(1, 2)
    nodes[3] = client(step_of(3), metrics={"num-examples": 30, "loss": [1.0, 2.0]}, mods=[kpd.flower.mod()])
    strategy = kpd.flower.KpdFedAvg(max_weight=100, fraction_evaluate=0.0)
    result = start(strategy, nodes, record_of())
    assert strategy.rounds[1].accepted == 3
    assert result.train_metrics_clientapp[1]["loss"] == 1.0


def test_memory_does_not_grow_with_the_clients():
    """Of what Python allocates while replies are pulled: 4 and 32 clients of 1.6 MB each."""

    class CountingGrid(LocalGrid):
        peak = 0

        def pull_messages(self, message_ids):
            self.peak = max(self.peak, tracemalloc.get_traced_memory()[1])
            return super().pull_messages(message_ids)

        def push_messages(self, messages):
            ids = super().push_messages(messages)
            if ids:
                tracemalloc.reset_peak()
                self.start = tracemalloc.get_traced_memory()[0]
            return ids

    def peak_of(n):
        strategy = kpd.flower.KpdFedAvg("eden:bits=1", max_weight=1000, fraction_evaluate=0.0)
        grid = CountingGrid(nodes_of(*range(1, n + 1)))
        tracemalloc.start()
        try:
            strategy.start(grid=grid, initial_arrays=arrays(w=np.zeros(400_000, np.float32)), num_rounds=1, timeout=20.0)
        finally:
            tracemalloc.stop()
        assert strategy.rounds[1].accepted == n
        return grid.peak - grid.start

    few, many = peak_of(4), peak_of(32)
    assert many < few + 1_600_000


def test_needs_flowers_own_grid_and_its_own_start():
    strategy = kpd.flower.KpdFedAvg(max_weight=1)
    with pytest.raises(kpd.Error, match="Flower's own"):
        strategy.start(grid=kpd.flower.Grid(LocalGrid({}), max_weight=1), initial_arrays=record_of())
    with pytest.raises(kpd.Error, match="start"):
        strategy.aggregate_train(1, [])
    with pytest.raises(TypeError, match="max_weight"):
        kpd.flower.KpdFedAvg()
