"""FedAvg whose server keeps one sum and not one model a client."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, cast

import flwr.serverapp
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg

from kpd._errors import Error
from kpd.flower._grid import Refused, Request, Round, Update, WireGrid
from kpd.flower._model import Model, Values
from kpd.gradient import Aggregator, Codec

_log = logging.getLogger("flwr")


class _SumGrid(WireGrid):
    """Adds updates to the round's sum as they are pulled; the strategy gets replies without arrays."""

    _aggregate: tuple[tuple[int, bytes], Aggregator, list[Values]] | None = None
    _open: tuple[int, Model] | None = None

    def _take(self, request: Request, update: Update, content: RecordDict) -> RecordDict:
        number, model = request.offer.round, update.model
        if request.offer.secret != self._secret:
            raise Refused("twice", "the node was asked twice in a round, or for a round that is over")
        aggregator, memory = self._sum(model)
        if self._open is None or self._open[0] < number:
            aggregator.begin_round(run=request.run, round=number, base_model_hash=model.hash, out=memory)
            self._open = (number, model)
        if self._open[0] != number:
            raise Refused("other round", f"round {self._open[0]} has begun")
        if self._open[1].hash != model.hash:
            raise Refused("other model", "its round has updates to another model")
        self._count(request, update, aggregator.add(request.node, update.data, update.weight))
        return RecordDict({key: record for key, record in content.items() if key != update.key})

    def _sum(self, model: Model) -> tuple[Aggregator, list[Values]]:
        key = (model.manifest.hash, self._secret)
        if self._aggregate is None or self._aggregate[0] != key:
            self._aggregate = (key, self._aggregator(model, self._secret), model.zeros())
            self._open = None
        return self._aggregate[1:]

    def finish(self, number: int) -> ArrayRecord | None:
        """The model sent in round `number` plus the mean of the updates to it; None if none was taken."""
        if self._aggregate is None or self._open is None or self._open[0] != number:
            return None
        mean = self._aggregate[1].finish_round()
        model = self._open[1]
        self._open = None
        if mean is None:
            return None
        return ArrayRecord({name: Array(value) for name, value in model.plus_mean(cast("list[Values]", mean)).items()})


class KpdFedAvg(FedAvg):  # type: ignore[misc, unused-ignore]
    """Flower's FedAvg over compressed updates, in constant memory: each is added to one sum when it comes, and forgotten.

    ``strategy.start(grid=grid, ...)`` takes Flower's own grid; clients have ``kpd.flower.mod()``. codec, max_weight, max_norm,
    threads and secret are those of ``kpd.flower.Grid``; all other arguments are FedAvg's. A client that vanishes, or sends what is
    not its update of this round, is left out by name and the round goes on with the others; if none is left the model stays.

    The order of the sum is that in which updates come, so runs may differ in last digits. ``train_metrics_aggr_fn`` gets contents
    without arrays; those whose metrics are not like most others' are kept from it. ``rounds`` says who was left out, and bytes.
    """

    def __init__(
        self,
        codec: Codec | str | Sequence[str] = "eden:bits=1",
        *,
        max_weight: int,
        max_norm: float = math.inf,
        threads: int = 1,
        secret: bytes | None = None,
        **fedavg: Any,
    ) -> None:
        super().__init__(**fedavg)
        self._wire: dict[str, Any] = {
            "codec": codec,
            "max_weight": max_weight,
            "max_norm": max_norm,
            "threads": threads,
            "secret": secret,
            "weight_key": self.weighted_by_key,
            "round_key": "server-round",
        }
        self._sums: _SumGrid | None = None

    @property
    def rounds(self) -> dict[int, Round]:
        """Of the last start(), by number."""
        return {} if self._sums is None else self._sums.rounds

    def start(self, grid: flwr.serverapp.Grid, *args: Any, **kwargs: Any) -> Any:
        """FedAvg's start(); grid: Flower's own."""
        self._sums = _SumGrid(grid, **self._wire)
        return super().start(self._sums, *args, **kwargs)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The sum's mean, and the metrics of those who are in it."""
        if self._sums is None:
            raise Error("strategy: expected updates through its own start(grid, ...)")
        arrays = self._sums.finish(server_round)
        contents = _alike([reply.content for reply in replies if reply.has_content()], server_round)
        if arrays is None or not contents:
            return arrays, None
        return arrays, self.train_metrics_aggr_fn(contents, self.weighted_by_key)


def _alike(contents: list[RecordDict], number: int) -> list[RecordDict]:
    """Those whose metrics have the names and lengths that most have: others cannot be averaged with them."""

    def form(content: RecordDict) -> tuple[Any, ...]:
        rows = (
            (record, name, len(value) if isinstance(value, list) else -1)
            for record, metrics in content.metric_records.items()
            for name, value in metrics.items()
        )
        return tuple(sorted(rows))

    forms = [form(content) for content in contents]
    if not forms:
        return []
    usual = Counter(forms).most_common(1)[0][0]
    if odd := sum(f != usual for f in forms):
        _log.warning("kpd: round %d: the metrics of %d updates have other names or lengths and are left out", number, odd)
    return [content for content, f in zip(contents, forms) if f == usual]
