"""kpd.flower's mod and Grid, in one process (flower_local.py)."""

import logging
import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs flwr >= 1.22: pip install flwr")
sys.path.insert(0, os.path.dirname(__file__))

from flower_local import LocalGrid, arrays, client, through_bytes  # noqa: E402
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.serverapp.strategy import FedAvg, FedMedian  # noqa: E402

import kpd  # noqa: E402
import kpd.flower  # noqa: E402
from kpd.flower._wire import STYPE  # noqa: E402


def model(seed=0, n=5000):
    rng = np.random.default_rng(seed)
    return arrays(
        weight=rng.standard_normal((n // 50, 50)).astype(np.float32),
        bias=rng.standard_normal(80).astype(np.float32),
        steps=np.array(7, np.int64),
        mask=np.array([True, False]),
    )


def steps_by(node):
    """A local training that is another one for each node; counts a step in integers, far from where floats are exact."""

    def step(name, value):
        if value.dtype.kind == "f":
            rng = np.random.default_rng(node)
            return (value + 0.1 * rng.standard_normal(value.shape)).astype(value.dtype)
        return np.logical_not(value) if value.dtype == bool else value + np.int64(2**60 + 1)

    return step


def train_message(node, *, round=1, record=None, key="arrays"):
    content = RecordDict({key: model() if record is None else record, "config": ConfigRecord({"server-round": round})})
    return Message(content, node, "train")


def ask(nodes, codec="eden:bits=4", *, max_weight=100, round=1, record=None, timeout=5.0, **options):
    """One round of messages through kpd's Grid: replies by node, and the Grid."""
    grid = kpd.flower.Grid(LocalGrid(nodes), codec, max_weight=max_weight, **options)
    messages = [train_message(node, round=round, record=record) for node in nodes]
    replies = grid.send_and_receive(messages, timeout=timeout)
    return {reply.metadata.src_node_id: reply for reply in replies}, grid


def values(reply, key="arrays"):
    return {name: array.numpy() for name, array in reply.content[key].items()}


def squared_error(got, wanted, base):
    return float(np.sum((got - wanted) ** 2) / np.sum((wanted - base) ** 2))


def test_reply_is_model_plus_decoded_difference():
    node = 2**63 + 5
    replies, grid = ask({node: client(steps_by(node), mods=[kpd.flower.mod()])})
    base = {name: array.numpy() for name, array in model().items()}
    got = values(replies[node])
    for name in ("weight", "bias"):
        wanted = steps_by(node)(name, base[name])
        assert got[name].dtype == wanted.dtype and got[name].shape == wanted.shape
        assert 0 < squared_error(got[name], wanted, base[name]) < 0.012
    assert replies[node].content["metrics"]["num-examples"] == 10


def test_integers_and_bools_come_exactly():
    replies, _ = ask({1: client(steps_by(1), mods=[kpd.flower.mod()])})
    got = values(replies[1])
    assert got["steps"].dtype == np.int64 and got["steps"] == 7 + 2**60 + 1
    assert got["mask"].dtype == bool and got["mask"].tolist() == [False, True]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"])
def test_integers_of_any_type_come_exactly_from_end_to_end_of_their_range(dtype):
    info = np.iinfo(dtype)
    base, new = np.array([info.min, info.max, 0], dtype), np.array([info.max, info.min, 1], dtype)
    replies, _ = ask({1: client(lambda name, value: new, mods=[kpd.flower.mod()])}, record=arrays(x=base))
    assert values(replies[1])["x"].dtype == dtype
    np.testing.assert_array_equal(values(replies[1])["x"], new)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_floats_keep_their_type(dtype):
    base = np.linspace(-1, 1, 6000).astype(dtype)
    replies, _ = ask({1: client(steps_by(1), mods=[kpd.flower.mod()])}, record=arrays(x=base))
    got, wanted = values(replies[1])["x"], steps_by(1)("x", base)
    assert got.dtype == dtype
    assert squared_error(got.astype(np.float64), wanted.astype(np.float64), base.astype(np.float64)) < 0.012


def test_message_is_one_uint8_array_of_a_thirtieth_of_the_bytes():
    sent = []

    def node(message):
        sent.append(app(message, None))
        return sent[0]

    app = client(steps_by(1), mods=[kpd.flower.mod()])
    record = arrays(weight=np.zeros(100_000, np.float32))
    replies, grid = ask({1: node}, codec="eden:bits=1", record=record)
    assert replies[1].has_content()
    (array,) = sent[0].content["arrays"].values()
    assert (array.dtype, array.shape, array.stype) == ("uint8", (len(array.data),), STYPE)
    assert len(array.data) < 4 * 100_000 / 30
    with pytest.raises(TypeError):
        array.numpy()  # a server without kpd must not average bytes
    assert grid.rounds[1].bytes == len(array.data)
    assert grid.rounds[1].plain_bytes == len(record["weight"].data)


def test_app_sees_neither_secret_nor_record():
    seen = []

    def look(message, context, call_next):
        seen.append(sorted(message.content))
        return call_next(message, context)

    replies, _ = ask({1: client(steps_by(1), mods=[kpd.flower.mod(), look])})
    assert replies[1].has_content() and seen == [["arrays", "config"]]


def test_mods_after_kpd_are_applied_to_what_is_compressed():
    def clip(message, context, call_next):
        reply = call_next(message, context)
        (key, record), = reply.content.array_records.items()
        reply.content[key] = arrays(**{name: array.numpy() * 0 for name, array in record.items()})
        return reply

    replies, _ = ask({1: client(lambda name, value: value + 1, mods=[kpd.flower.mod(), clip])}, "float32", record=arrays(x=np.ones(100, np.float32)))
    np.testing.assert_array_equal(values(replies[1])["x"], 0)


def test_mod_leaves_messages_of_a_plain_server_alone():
    message = through_bytes(train_message(1))
    plain = client(steps_by(1))(message, None)
    with_mod = client(steps_by(1), mods=[kpd.flower.mod()])(message, None)
    assert with_mod.content == plain.content
    refusing = client(steps_by(1), mods=[kpd.flower.mod(required=True)])(message, None)
    assert refusing.has_error() and "did not ask" in refusing.error.reason


def test_evaluation_passes_unchanged():
    grid = kpd.flower.Grid(LocalGrid({1: client(steps_by(1), mods=[kpd.flower.mod()])}), max_weight=100)
    message = Message(RecordDict({"arrays": model(), "config": ConfigRecord({"server-round": 1})}), 1, "evaluate")
    (reply,) = grid.send_and_receive([message])
    assert reply.content["metrics"]["accuracy"] == 0.5
    assert grid.rounds == {} and "kpd" not in message.content


def test_callers_messages_are_not_changed():
    message = train_message(1)
    before = list(message.content)
    kpd.flower.Grid(LocalGrid({1: client(steps_by(1))}), max_weight=100).push_messages([message])
    assert list(message.content) == before


# What is refused, by name. Each kind of bad client meets a Grid with two good ones.


def compressed(node, round=1, change=None, examples=10):
    """A client whose compressed reply `change(message bytes)` alters."""
    app = client(steps_by(node), examples=examples, mods=[kpd.flower.mod()])

    def answer(message):
        reply = app(message, None)
        if change is not None and reply.has_content() and reply.content.array_records:
            data = change(reply.content["arrays"]["kpd"].data)
            reply.content["arrays"] = ArrayRecord({"kpd": Array(dtype="uint8", shape=(len(data),), stype=STYPE, data=data)})
        return reply

    return answer


def replaying(node):
    """Answers every message with what it sent first."""
    kept = []

    def answer(message):
        kept.append(compressed(node)(message).content)
        return Message(kept[0], reply_to=message)

    return answer


def answer_with(content):
    return lambda message: Message(content() if callable(content) else content, reply_to=message)


def heavier(message):
    reply = compressed(3)(message)
    reply.content["metrics"]["num-examples"] = 50
    return reply


def impostor(message):
    """Sends what node 4 would have sent."""
    message.metadata.__dict__["_dst_node_id"] = 4
    reply = compressed(4)(message)
    reply.metadata.__dict__["_src_node_id"] = 3
    return reply


def from_elsewhere(message):
    """The right message under another node's name."""
    reply = compressed(3)(message)
    reply.metadata.__dict__["_src_node_id"] = 4
    return reply


def other_model(message):
    message.content["arrays"] = model(seed=9)
    return compressed(3)(message)


METRICS = MetricRecord({"num-examples": 10})
BAD = {
    "silent": (lambda message: None, "silent: no reply within"),
    "crashed": (lambda message: Message(Error(2, "it fell over"), reply_to=message), "it fell over"),
    "noise": (compressed(3, change=lambda data: b"\x00" * len(data)), "damaged: "),
    "cut": (compressed(3, change=lambda data: data[:-9]), "damaged: "),
    "empty": (compressed(3, change=lambda data: b""), "damaged: "),
    "bit": (compressed(3, change=lambda data: data[:99] + bytes([data[99] ^ 1]) + data[100:]), "damaged: "),
    "nothing": (answer_with(RecordDict), "damaged: the reply has 0 ArrayRecords"),
    "two": (answer_with(RecordDict({"a": arrays(x=1.0), "b": arrays(x=1.0), "metrics": METRICS})), "damaged: the reply has 2"),
    "plain": (client(steps_by(3)), "damaged: its arrays came uncompressed"),
    "heavy": (client(steps_by(3), examples=10**6, mods=[kpd.flower.mod()]), "max_weight"),
    "lying": (heavier, "weight: "),
    "unweighted": (client(steps_by(3), metrics={"loss": 1.0}, mods=[kpd.flower.mod()]), "num-examples"),
    "impostor": (impostor, "other client: "),
    "from elsewhere": (from_elsewhere, "other client: the reply comes from node 4"),
    "other model": (other_model, "other model: "),
    "nan": (client(lambda name, value: value * np.float32("nan") if value.dtype.kind == "f" else value, mods=[kpd.flower.mod()]), "'weight'"),
    "other shape": (client(lambda name, value: value[:1] if value.ndim else value, mods=[kpd.flower.mod()]), "'weight' has shape"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_client_is_refused_by_name_and_the_others_count(kind, caplog):
    node, reason = BAD[kind]
    caplog.set_level(logging.WARNING, "flwr")
    logging.getLogger("flwr").propagate = True
    nodes = {1: client(steps_by(1), mods=[kpd.flower.mod()]), 3: node, 2: client(steps_by(2), mods=[kpd.flower.mod()])}
    replies, grid = ask(nodes, timeout=1.0)
    assert replies[1].has_content() and replies[2].has_content()
    assert replies[3].has_error() and reason in replies[3].error.reason
    assert list(grid.rounds[1].refused) == [3] and reason in grid.rounds[1].refused[3]
    assert "node 3 is left out" in caplog.text
    assert (grid.rounds[1].asked, grid.rounds[1].accepted) == (3, 2)


def test_last_rounds_message_is_refused():
    grid = kpd.flower.Grid(LocalGrid({1: replaying(1)}), max_weight=100)
    record = model()
    (first,) = grid.send_and_receive([train_message(1, round=1, record=record)])
    (second,) = grid.send_and_receive([train_message(1, round=2, record=record)])
    assert first.has_content()
    assert "kpd: other round: " in second.error.reason


def test_update_longer_than_max_norm_is_refused():
    good = client(steps_by(1), mods=[kpd.flower.mod()])
    long = client(lambda name, value: value + 100 if value.dtype.kind == "f" else value, mods=[kpd.flower.mod()])
    record = arrays(x=np.zeros(5000, np.float32))
    replies, _ = ask({1: good, 2: long}, record=record, max_norm=50.0)
    assert replies[1].has_content() and "norm: " in replies[2].error.reason


def test_other_codec_than_the_servers_is_refused():
    def eager(message):
        message.content["kpd"]["codec"] = ["eden:bits=8"]
        return compressed(1)(message)

    replies, _ = ask({1: eager}, codec="eden:bits=1")
    assert "other codec: " in replies[1].error.reason


@pytest.mark.parametrize("change", [{"version": 2}, {"secret": b"short"}, {"codec": "eden"}, {"round": -1}, {"weight-key": 3}])
def test_mod_answers_a_bad_record_of_the_server_with_an_error(change):
    def altered(message):
        message.content["kpd"].update(change)
        return client(steps_by(1), mods=[kpd.flower.mod()])(message, None)

    replies, grid = ask({1: altered})
    assert "kpd: the server's record 'kpd'" in replies[1].error.reason


def test_node_that_is_asked_twice_in_a_round_gets_another_secret():
    secrets = []

    def node(message):
        secrets.append(message.content["kpd"]["secret"])
        return compressed(1)(message)

    grid = kpd.flower.Grid(LocalGrid({1: node}), max_weight=100)
    for number in (1, 1, 2):
        (reply,) = grid.send_and_receive([train_message(1, round=number)])
        assert reply.has_content()
    assert secrets[0] == secrets[2] != secrets[1]


def test_errors_of_clients_do_not_add_up():
    """Each node has its own rotations: the mean of 16 equal updates at one bit has about a sixteenth of one's error."""
    nodes = {n: client(lambda name, value: value + np.linspace(-1, 1, 5000, dtype=np.float32), mods=[kpd.flower.mod()]) for n in range(1, 17)}
    base = np.zeros(5000, np.float32)
    replies, _ = ask(nodes, codec="eden:bits=1", record=arrays(x=base))
    got = [values(reply)["x"] for reply in replies.values()]
    wanted = np.linspace(-1, 1, 5000)
    assert squared_error(got[0], wanted, base) > 0.4
    assert squared_error(np.mean(got, axis=0), wanted, base) < 0.06


@pytest.mark.parametrize("make", [FedAvg, FedMedian])
def test_strategies_run_unmodified_while_a_client_is_bad(make):
    nodes = {n: client(steps_by(n), mods=[kpd.flower.mod()]) for n in (1, 2, 3)}
    nodes[4] = compressed(4, change=lambda data: data[:50])
    grid = kpd.flower.Grid(LocalGrid(nodes), "eden:bits=8", max_weight=100)
    record = ArrayRecord({name: model()[name] for name in ("weight", "bias")})  # the FedMedian of flwr 1.22 cannot do scalars
    result = make(fraction_evaluate=0.5).start(grid=grid, initial_arrays=record, num_rounds=2, timeout=2.0)
    reduce = np.mean if make is FedAvg else np.median
    base = record["weight"].numpy()
    wanted = base + 2 * reduce([steps_by(n)("weight", base) - base for n in (1, 2, 3)], axis=0)
    assert squared_error(result.arrays["weight"].numpy(), wanted, base) < 1e-3
    assert [sorted(grid.rounds[n].refused) for n in (1, 2)] == [[4], [4]]
    assert result.train_metrics_clientapp[2]["loss"] == 1.0


def test_options_are_checked():
    inner = LocalGrid({})
    with pytest.raises(TypeError, match="max_weight"):
        kpd.flower.Grid(inner)
    for options, text in [
        ({"max_weight": 0}, "max_weight: 0"),
        ({"max_weight": 1.5}, "max_weight: 1.5"),
        ({"max_weight": 1, "max_norm": float("nan")}, "max_norm"),
        ({"max_weight": 1, "secret": b"1"}, "secret: 1 bytes"),
        ({"max_weight": 1, "codec": "edem:bits=1"}, "eden"),
    ]:
        with pytest.raises(kpd.Error, match=text):
            kpd.flower.Grid(inner, **options)
    with pytest.raises(kpd.Error, match="Flower's own"):
        kpd.flower.Grid(kpd.flower.Grid(inner, max_weight=1), max_weight=1)


def test_message_without_a_round_is_an_error():
    grid = kpd.flower.Grid(LocalGrid({1: client(steps_by(1))}), max_weight=1)
    with pytest.raises(kpd.Error, match="'server-round'"):
        grid.push_messages([Message(RecordDict({"arrays": model()}), 1, "train")])


def test_grid_is_flowers_grid_in_everything_else():
    inner = LocalGrid({5: None, 6: None})
    grid = kpd.flower.Grid(inner, max_weight=1)
    assert list(grid.get_node_ids()) == [5, 6] and grid.run is inner.run
    assert grid.nodes is inner.nodes  # what only this grid has
    with pytest.raises(AttributeError):
        _ = grid.nonesuch


def test_types_are_strict(tmp_path):
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), "-p", "kpd.flower"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
