"""KpdFedAvg over a SuperLink and SuperNodes of this machine, one of which misbehaves. Needs neither torch nor images."""

import os
import re
import sys

import pytest

pytest.importorskip("flwr", reason="needs flwr >= 1.22: pip install flwr")
sys.path.insert(0, os.path.dirname(__file__))

from flower_processes import Link  # noqa: E402

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "vectors"
version = "1.0.0"
license = "Apache-2.0"
dependencies = ["flwr", "kpd"]

[tool.hatch.build.targets.wheel]
packages = ["vectors"]

[tool.flwr.app]
publisher = "kpd"

[tool.flwr.app.components]
serverapp = "vectors.server:app"
clientapp = "vectors.client:app"

[tool.flwr.app.config]
rounds = 2
"""

CLIENT = """
import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import kpd.flower


def damaged(message, context, call_next):
    reply = call_next(message, context)
    if context.node_config["partition-id"] == 2:
        array = reply.content["arrays"]["kpd"]
        array.data = array.data[: len(array.data) // 2]
    return reply


app = ClientApp(mods=[damaged, kpd.flower.mod()])


@app.train()
def train(message, context):
    step = np.float32(1 + context.node_config["partition-id"])
    arrays = ArrayRecord({name: Array(array.numpy() + step) for name, array in message.content["arrays"].items()})
    return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 10})}), reply_to=message)
"""

SERVER = """
import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp import ServerApp

import kpd.flower

app = ServerApp()


@app.main()
def main(grid, context):
    strategy = kpd.flower.KpdFedAvg("eden:bits=8", max_weight=10, fraction_evaluate=0.0, min_train_nodes=3, min_available_nodes=3)
    start = ArrayRecord({"w": Array(np.zeros(20000, np.float32))})
    result = strategy.start(grid=grid, initial_arrays=start, num_rounds=context.run_config["rounds"], timeout=300)
    print("RESULT", float(result.arrays["w"].numpy().mean()), flush=True)
    for number, row in strategy.rounds.items():
        print("ROUND", number, row.accepted, "|".join(row.refused.values()), flush=True)
"""


def test_a_damaged_message_is_refused_and_the_others_are_averaged(tmp_path):
    package = tmp_path / "app" / "vectors"
    package.mkdir(parents=True)
    (tmp_path / "app" / "pyproject.toml").write_text(PROJECT)
    for name, text in (("__init__", ""), ("client", CLIENT), ("server", SERVER)):
        (package / f"{name}.py").write_text(text)
    with Link(tmp_path / "link", supernodes=3) as link:
        output = link.run(tmp_path / "app", seconds=600)
    assert abs(float(re.search(r"RESULT (\S+)", output)[1]) - 2 * 1.5) < 0.01  # nodes of steps 1 and 2, twice
    rows = re.findall(r"ROUND (\d) (\d) (.*)", output)
    assert [row[:2] for row in rows] == [("1", "2"), ("2", "2")]
    assert all(reason.startswith("damaged: ") for _, _, reason in rows)
