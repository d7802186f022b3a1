"""The server's side: Flower's Grid around another one, with updates compressed on the way back."""

from __future__ import annotations

import copy
import logging
import math
import time
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import flwr.serverapp
from flwr.app import Array, ArrayRecord, Message, RecordDict

from kpd._errors import Error
from kpd.flower._model import Model, Values
from kpd.flower._wire import (
    RECORD,
    Offer,
    error_reply,
    is_compressed,
    is_train,
    model_for,
    one_array_record,
    spec_texts,
    unpack,
    weight_of,
)
from kpd.gradient import Aggregator, Codec, Decoder, Verdict, new_secret

_log = logging.getLogger("flwr")
_MAX_WEIGHT = 2**53


@dataclass
class Round:
    """What a training round took. ``refused`` says of each node that is left out why, in a sentence that begins with one of the
    names of ``kpd.gradient.Verdict.refusal``, e.g. "damaged: ..."."""

    round: int
    asked: int = 0
    accepted: int = 0
    bytes: int = 0  # of the messages that were accepted
    plain_bytes: int = 0  # of the arrays that they stand for, as Flower would have sent them
    refused: dict[int, str] = field(default_factory=dict)

    def __str__(self) -> str:
        text = f"kpd: round {self.round}: {self.accepted} of {self.asked} updates"
        if self.accepted:
            text += f", {self.bytes:,} bytes instead of {self.plain_bytes:,} ({self.plain_bytes / self.bytes:.1f} x)"
        return text


class Refused(Exception):
    """Why an update is not taken: a name and a sentence."""

    def __init__(self, refusal: str, reason: str) -> None:
        super().__init__(f"{refusal}: {reason}")
        self.refusal = refusal


@dataclass
class Request:
    """A train message that was sent, until its reply comes."""

    sent: Message
    models: dict[str, Model]
    offer: Offer
    round: Round

    @property
    def node(self) -> int:
        return int(self.sent.metadata.dst_node_id)

    @property
    def run(self) -> int:
        return int(self.sent.metadata.run_id)


@dataclass
class Update:
    """A reply of which all is known but whether its bytes are good."""

    key: str
    model: Model
    data: bytes
    weight: int


class WireGrid(flwr.serverapp.Grid):
    """What Grid and the inside of KpdFedAvg share: asks for compressed updates and sorts the replies."""

    def __init__(
        self,
        grid: flwr.serverapp.Grid,
        codec: Codec | str | Sequence[str],
        *,
        max_weight: int,
        max_norm: float,
        weight_key: str,
        round_key: str,
        threads: int,
        secret: bytes | None,
    ) -> None:
        if isinstance(grid, WireGrid):
            raise Error("grid: is one of kpd already; expected Flower's own")
        if isinstance(max_weight, bool) or not isinstance(max_weight, int) or not 1 <= max_weight <= _MAX_WEIGHT:
            raise Error(f"max_weight: {max_weight}; expected a whole number from 1 to 2^53, e.g. the examples of the largest client")
        if not max_norm > 0:
            raise Error(f"max_norm: {max_norm}; expected a number above 0")
        if secret is not None and len(secret) != 32:
            raise Error(f"secret: {len(secret)} bytes; expected 32")
        self.rounds: dict[int, Round] = {}
        self._grid = grid
        self._codec = spec_texts(codec)
        self._max_weight, self._max_norm, self._threads = max_weight, max_norm, threads
        self._weight_key, self._round_key = weight_key, round_key
        self._secret = new_secret() if secret is None else bytes(secret)
        self._pending: dict[str, Request] = {}
        self._newest = -1
        self._asked: set[int] = set()  # nodes, in the newest round

    # Flower's Grid, as it is.

    def set_run(self, run: Any) -> None:
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        return self._grid.run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def get_node_ids(self) -> Iterable[int]:
        return self._grid.get_node_ids()

    def get_nodes(self) -> Iterable[Any]:
        return self._grid.get_nodes()

    def __getattr__(self, name: str) -> Any:
        if name == "_grid":  # not yet made
            raise AttributeError(name)
        return getattr(self._grid, name)

    # Messages out.

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Sends messages; those of training that carry arrays ask for a compressed reply. Returns Flower's ids."""
        records: dict[int, Model] = {}  # one Model for all messages that share a record
        requests: list[Request | None] = []
        out: list[Message] = []
        for message in messages:
            request = self._request(message, records)
            requests.append(request)
            out.append(message if request is None else request.sent)
        ids = list(self._grid.push_messages(out))
        known = {id_ for id_ in ids if id_}
        for i, request in enumerate(requests):
            if request is None:
                continue
            id_ = request.sent.metadata.message_id or (ids[i] if len(ids) == len(out) else "")
            if id_ in known:
                self._pending[id_] = request
            else:
                self._leave_out(request, "lost", "its message could not be sent")
        return ids

    def _request(self, message: Message, records: dict[int, Model]) -> Request | None:
        if not is_train(message) or not message.has_content() or not message.content.array_records:
            return None
        if RECORD in message.content:
            raise Error(f"messages: one to node {message.metadata.dst_node_id} has a record '{RECORD}' already; expected none")
        number = self._round_of(message)
        if number > self._newest:
            self._newest, self._asked = number, set()
        # Run, round and node name a message and choose its rotations. Asked again, a node gets a secret of its own for that.
        node = int(message.metadata.dst_node_id)
        again = number < self._newest or node in self._asked
        self._asked.add(node)
        offer = Offer(self._codec, new_secret() if again else self._secret, number, self._max_weight, self._weight_key)
        sent = copy.copy(message)
        sent.content = RecordDict({**dict(message.content.items()), RECORD: offer.record()})
        models = {key: records.setdefault(id(record), Model(record)) for key, record in message.content.array_records.items()}
        for model in models.values():
            _ = model.manifest  # what cannot be compared with updates is the server's error, now
        round_ = self.rounds.setdefault(number, Round(number))
        round_.asked += 1
        return Request(sent, models, offer, round_)

    def _round_of(self, message: Message) -> int:
        for record in message.content.config_records.values():
            number = record.get(self._round_key)
            if isinstance(number, int) and not isinstance(number, bool) and number >= 0:
                return number
        if message.metadata.group_id.isdecimal():
            return int(message.metadata.group_id)
        raise Error(
            f"messages: one to node {message.metadata.dst_node_id} does not say its round; expected '{self._round_key}' in a "
            "ConfigRecord, as Flower's strategies have it, or a number as group_id"
        )

    # Replies in.

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies that have come. An update is decoded, or is an error reply with the reason why it is not taken."""
        return [self._received(reply) for reply in self._grid.pull_messages(message_ids)]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Sends messages and returns their replies; updates are decoded while others are still awaited.

        After `timeout` seconds (None: none) each node that was asked for an update and is silent has an error reply, so that a
        strategy names it.
        """
        end = math.inf if timeout is None else time.monotonic() + timeout
        waiting = {id_ for id_ in self.push_messages(messages) if id_}
        del messages
        rounds = {self._pending[id_].round.round for id_ in waiting if id_ in self._pending}
        replies: list[Message] = []
        pause = 0.02
        while waiting and time.monotonic() < end:
            # A copy: Flower's grids may change the set that they are given.
            came = list(self.pull_messages(set(waiting)))
            replies += came
            waiting -= {reply.metadata.reply_to_message_id for reply in came}
            if not waiting:
                break
            pause = 0.02 if came else min(pause * 1.5, 2.0)
            time.sleep(max(0.0, min(pause, end - time.monotonic())))
        for id_ in waiting & set(self._pending):
            request = self._pending.pop(id_)
            reason = self._leave_out(request, "silent", f"no reply within {timeout:g} s")
            replies.append(error_reply(reason, request.sent))
        for number in sorted(rounds):
            _log.info("%s", self.rounds[number])
        return replies

    def _received(self, reply: Message) -> Message:
        request = self._pending.pop(reply.metadata.reply_to_message_id, None)
        if request is None:
            if reply.has_content() and any(is_compressed(record) for record in reply.content.array_records.values()):
                return error_reply("other round: a compressed update that nobody waits for", reply)
            return reply
        if reply.has_error():
            reason = reply.error.reason or f"Flower's error {reply.error.code}"
            self._leave_out(request, "lost", reason.removeprefix("kpd: "))
            return reply
        try:
            content = self._take(request, self._update(request, reply), reply.content)
        except Error as error:
            return error_reply(self._leave_out(request, "damaged", str(error)), request.sent)
        except Refused as refused:
            return error_reply(self._leave_out(request, refused.refusal, str(refused), named=True), request.sent)
        request.round.accepted += 1
        taken = copy.copy(reply)
        taken.content = content
        return taken

    def _update(self, request: Request, reply: Message) -> Update:
        if reply.metadata.src_node_id != request.node:
            raise Refused("other client", f"the reply comes from node {reply.metadata.src_node_id}")
        try:
            key, record = one_array_record(reply.content)
            data = unpack(record)
            model = model_for(key, request.models)
        except Error as error:
            raise Refused("damaged", str(error)) from None
        try:
            weight = weight_of(reply.content, self._weight_key, self._max_weight)
        except Error as error:
            raise Refused("weight", str(error)) from None
        return Update(key, model, data, weight)

    @abstractmethod
    def _take(self, request: Request, update: Update, content: RecordDict) -> RecordDict:
        """What the strategy gets of a reply. Refused if the message is not good."""

    def _count(self, request: Request, update: Update, verdict: Verdict) -> None:
        if not verdict.accepted:
            raise Refused(str(verdict.refusal), verdict.reason)
        request.round.bytes += len(update.data)
        request.round.plain_bytes += update.model.bytes

    def _aggregator(self, model: Model, secret: bytes) -> Aggregator:
        return Aggregator(
            model.manifest,
            secret,
            threads=self._threads,
            max_weight=self._max_weight,
            max_norm=self._max_norm,
            codec=list(self._codec),
        )

    def _leave_out(self, request: Request, refusal: str, reason: str, *, named: bool = False) -> str:
        text = reason if named else f"{refusal}: {reason}"
        request.round.refused[request.node] = text
        _log.warning("kpd: round %d: node %d is left out: %s", request.round.round, request.node, text)
        return text


class Grid(WireGrid):
    """A Grid for ``strategy.start(grid=kpd.flower.Grid(grid, ...))``: any strategy unmodified, its updates compressed on the way.

    A client's reply reaches the strategy with arrays = model sent + decoded difference, or as Flower's error reply with kpd's reason:
    damaged bytes, another round, client, model or codec, a weight beyond ``max_weight``, a norm beyond ``max_norm``, silence.

    grid: Flower's, as the server app gets it. codec: a spec, ``Codec``, or list of specs and PATTERN=SPEC.
    max_weight: the most that a client's ``weight_key`` may be; must be given, as a client says its weight itself.
    max_norm: of an update, sqrt of the sum of squares of all its differences. weight_key: the metric that is an update's weight, ""
    for strategies without one. round_key: where the strategy's ConfigRecord has the round. threads: that decode (0: one per
    processor). secret: 32 bytes from which rotations follow; drawn anew if None. Clients get it in a ConfigRecord: who reads the
    link reads it, so use TLS.

    ``rounds`` holds a ``Round`` for each number: who was left out and why, and bytes. For one thread.
    """

    def __init__(
        self,
        grid: flwr.serverapp.Grid,
        codec: Codec | str | Sequence[str] = "eden:bits=1",
        *,
        max_weight: int,
        max_norm: float = math.inf,
        weight_key: str = "num-examples",
        round_key: str = "server-round",
        threads: int = 1,
        secret: bytes | None = None,
    ) -> None:
        super().__init__(
            grid,
            codec,
            max_weight=max_weight,
            max_norm=max_norm,
            weight_key=weight_key,
            round_key=round_key,
            threads=threads,
            secret=secret,
        )
        self._readers: dict[tuple[int, bytes], tuple[Aggregator, Decoder, list[Values]]] = {}

    def _take(self, request: Request, update: Update, content: RecordDict) -> RecordDict:
        model, number = update.model, request.offer.round
        gate, decoder, memory = self._reader(model, request.offer.secret)
        # The gate is a round of one message: it knows all reasons for which one is refused. The values are the decoder's, as
        # integers come exactly from there.
        gate.begin_round(run=request.run, round=number, base_model_hash=model.hash, out=memory)
        self._count(request, update, gate.add(request.node, update.data, update.weight))
        values = decoder.decode(update.data, run=request.run, round=number, client=request.node, base_model_hash=model.hash)
        arrays = ArrayRecord({name: Array(value) for name, value in model.plus(values).items()})
        return RecordDict({key: arrays if key == update.key else record for key, record in content.items()})

    def _reader(self, model: Model, secret: bytes) -> tuple[Aggregator, Decoder, list[Values]]:
        key = (model.manifest.hash, secret)
        if key not in self._readers:
            self._readers.clear()  # strategies send one kind of model
            decoder = Decoder(model.manifest, secret, threads=self._threads)
            self._readers[key] = (self._aggregator(model, secret), decoder, model.zeros())
        return self._readers[key]


