"""Flower without a network, for tests: a Grid whose nodes are ClientApps of this process. Messages pass through Flower's own bytes."""

from __future__ import annotations

import itertools

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.serverapp import Grid

RUN = 2**64 - 59  # ids use all 64 bits


try:  # who this process is, where Flower's processes are told
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, RUN, 1
except ImportError:
    pass


class Run:
    run_id = RUN


def through_bytes(message):
    return message_from_proto(ProtoMessage.FromString(message_to_proto(message).SerializeToString()))


class LocalGrid(Grid):
    """nodes: of each id what it answers to a message: a ClientApp, or a function that returns a reply or None for silence."""

    def __init__(self, nodes):
        self.nodes = nodes
        self.replies = {}
        self.pulled = []  # sizes of arrays in replies, as Flower carries them
        self.pulls = 0
        self._ids = (f"m{i}" for i in itertools.count())

    def set_run(self, run):
        raise NotImplementedError

    run = Run()

    def create_message(self, content, message_type, dst_node_id, group_id, ttl=None):
        return Message(content, dst_node_id, message_type, group_id=group_id, ttl=ttl)

    def get_node_ids(self):
        return list(self.nodes)

    def push_messages(self, messages):
        ids = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = next(self._ids)
            message.metadata.__dict__["_run_id"] = RUN
            ids.append(message.metadata.message_id)
            node = message.metadata.dst_node_id
            reply = self.call(self.nodes[node], through_bytes(message), node)
            if reply is not None:
                self.replies[message.metadata.message_id] = through_bytes(reply)
        return ids

    @staticmethod
    def call(node, message, node_id):
        if isinstance(node, ClientApp):
            return node(message, Context(RUN, node_id, {}, RecordDict(), {}))
        return node(message)

    def pull_messages(self, message_ids):
        """One at a time, as they would come over a network."""
        self.pulls += 1
        for id_ in sorted(set(message_ids) & set(self.replies)):
            reply = self.replies.pop(id_)
            if reply.has_content():
                self.pulled += [sum(len(a.data) for a in r.values()) for r in reply.content.array_records.values()]
            return [reply]
        return []

    def send_and_receive(self, messages, *, timeout=None):
        raise AssertionError("kpd pushes and pulls itself")


def arrays(**values):
    return ArrayRecord({name: Array(np.asarray(value)) for name, value in values.items()})


def client(step, *, examples=10, mods=(), metrics=None):
    """A ClientApp that answers a model with step(name, values) for each tensor."""
    app = ClientApp(mods=list(mods))

    @app.train()
    def train(message, context):
        (key, record), = message.content.array_records.items()
        changed = {name: step(name, array.numpy()) for name, array in record.items()}
        row = MetricRecord({"num-examples": examples, "loss": 1.0} if metrics is None else metrics)
        return Message(RecordDict({key: arrays(**changed), "metrics": row}), reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": examples, "accuracy": 0.5})}), reply_to=message)

    return app
