"""The mean of vectors over the ranks of a process group, message by message."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
import torch.distributed as dist  # type: ignore[import-not-found,unused-ignore]

from kpd import _kpd
from kpd._errors import Error
from kpd.gradient.torch._mail import HEAD, NOT_FINITE, OK, Mail
from kpd.gradient.torch._slices import Slice, cut, parts_within, shard_bounds

# Slices under way at the same time, in each hop.
DEPTH = 2
# Client ids of the second hop's messages are this and the rank: no sender of a first hop has them.
SECOND_HOP = 1 << 32
PATTERNS = ("allgather", "sra")
FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)

Stages = Generator[Any, None, None]


@dataclass
class Statistics:
    """Sums since the beginning, of this rank.

    ``sent_bytes`` counts what this rank's link sends: messages with their padding, once for every other rank. ``error2`` and
    ``norm2`` are sums of squares of what this rank's messages lost and of what they were made of, so ``vnmse`` is their mean error.
    """

    averages: int = 0
    elements: int = 0
    sent_bytes: int = 0
    not_finite: int = 0
    error2: float = 0.0
    norm2: float = 0.0

    @property
    def vnmse(self) -> float:
        return self.error2 / self.norm2 if self.norm2 > 0 else 0.0


def _specs(codec: Any, what: str) -> list[str]:
    specs = [codec] if isinstance(codec, str) else [str(c) for c in codec] if isinstance(codec, (list, tuple)) else [str(codec)]
    if not specs:
        raise Error(f"{what}: no codec, expected a spec such as 'eden:bits=4'")
    return specs


class Averager:
    """Averages the same tensors of all ranks of a group again and again, in place.

    ``codec`` is a spec, or a list of one spec and of ``PATTERN=SPEC`` for tensors by their names. ``pattern``:

    - ``allgather``: every rank sends all to every other. n - 1 times the bytes; the error of the mean is 1/n of the codec's.
    - ``sra``: rank s averages shard s and sends the mean on, in ``second`` (default: ``codec``). 2 (n - 1) / n times the bytes.

    With ``error_feedback`` a rank adds to its next tensors what its codec lost of these: e <- g + e - decoded, in float32. It is
    for codecs with ``scale=biased``, which are refused without it. ``threads`` code a slice.

    Making one is a collective call: rank 0 draws the secret of all rotations and broadcasts it, and all ranks must have given the
    same. All ranks end with the same bits. One NaN or Inf of a rank makes its slice (2^19 elements at most) NaN on all ranks.
    Raises kpd.Error; after an error that not all ranks have, the averager refuses to go on. For one thread at a time.
    """

    def __init__(
        self,
        group: dist.ProcessGroup | None = None,
        codec: Any = "eden:bits=4",
        pattern: str = "allgather",
        *,
        second: Any = None,
        error_feedback: bool = False,
        threads: int = 1,
    ) -> None:
        if pattern not in PATTERNS:
            raise Error(f"pattern: '{pattern}', expected allgather or sra")
        if second is not None and pattern != "sra":
            raise Error("second: the code of the second hop, which only pattern='sra' has")
        self._codec = _specs(codec, "codec")
        self._second = self._codec if second is None else _specs(second, "second")
        texts = [_kpd.checked_policy(specs, error_feedback) for specs in (self._codec, self._second)]
        self._mail = Mail(group)
        self._pattern = pattern
        self._threads = threads
        self._secret = self._mail.agree_on_secret(repr((texts, pattern, error_feedback)), os.urandom(32))
        self._rounds: dict[str, int] = {}
        self._residuals: dict[str, torch.Tensor] | None = {} if error_feedback else None
        self._plans: dict[tuple[tuple[str, int], ...], list[Slice]] = {}
        self._failed = False
        self.statistics = Statistics()

    # -- what a user calls

    def average(self, tensors: Iterable[torch.Tensor] | Mapping[str, torch.Tensor]) -> None:
        """Replaces every tensor by its mean over the ranks. Without names a tensor's name is its number."""
        named = dict(tensors) if isinstance(tensors, Mapping) else {str(i): t for i, t in enumerate(tensors)}
        for name, tensor in named.items():
            _check_tensor(f"tensor {name}", tensor)
        named = {name: tensor.detach() for name, tensor in named.items() if tensor.numel()}
        if not named:
            return
        # A vector of each element type, as bfloat16 stays bfloat16 until it is coded.
        for dtype in dict.fromkeys(t.dtype for t in named.values()):
            same = {name: t for name, t in named.items() if t.dtype == dtype}
            flat = torch.cat([t.reshape(-1) for t in same.values()])
            self.average_flat(flat, [(name, t.numel()) for name, t in same.items()])
            at = 0
            for t in same.values():
                t.copy_(flat[at : at + t.numel()].view(t.shape))
                at += t.numel()

    def average_flat(self, flat: torch.Tensor, tensors: Sequence[tuple[str, int]]) -> None:
        """The same of one vector: ``tensors`` are the names and numbers of elements of what lies there back to back."""
        if self._failed:
            raise Error("averager: an average of it failed; expected a new one on all ranks")
        flat = flat.detach()
        plan = self._plan(tuple(tensors))
        round_ = max((self._rounds.get(name, 0) for name, _ in tensors), default=0)
        try:
            self._run([self._stages(piece, flat, round_) for piece in plan])
        except BaseException:
            self._failed = True
            raise
        for name, _ in tensors:
            self._rounds[name] = round_ + 1
        self.statistics.averages += 1
        self.statistics.elements += flat.numel()

    def state_dict(self) -> dict[str, Any]:
        """What this rank knows by tensor: its round and, with error feedback, its residual. Each rank has its own."""
        residuals = self._residuals or {}
        return {"rounds": dict(self._rounds), "residuals": {name: e.clone() for name, e in residuals.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes what ``state_dict`` gave, on all ranks. The rotations go on with a secret of their own, which is in no state."""
        residuals = state["residuals"]
        if residuals and self._residuals is None:
            raise Error("state: it has residuals, expected none without error_feedback=True")
        for name, e in residuals.items():
            if not isinstance(e, torch.Tensor) or e.dtype != torch.float32 or e.dim() != 1:
                raise Error(f"state: residual of {name}, expected a float32 tensor of one dimension")
        self._rounds = {str(name): int(round_) for name, round_ in state["rounds"].items()}
        if self._residuals is not None:
            self._residuals = {str(name): e.detach().clone() for name, e in residuals.items()}

    # -- how it is cut

    def _plan(self, tensors: tuple[tuple[str, int], ...]) -> list[Slice]:
        if tensors in self._plans:
            return self._plans[tensors]
        names = {name for name, _ in tensors}
        if len(names) != len(tensors):
            raise Error("tensors: a name stands there twice")
        # Buckets are rebuilt after the first step: what is about the same tensors will not come again.
        self._plans = {key: plan for key, plan in self._plans.items() if not any(name in names for name, _ in key)}
        if self._residuals is not None:
            for name, count in tensors:
                if self._residuals.setdefault(name, torch.zeros(count)).numel() != count:
                    raise Error(f"residual of {name}: {self._residuals[name].numel()} elements, expected {count}")
        plan: list[Slice] = []
        at = 0
        for parts in cut(tensors):
            count = sum(part[2] for part in parts)
            bounds = shard_bounds(count, self._mail.size) if self._pattern == "sra" else [0, count]
            pieces = [parts_within(parts, low, high) for low, high in zip(bounds, bounds[1:], strict=False)]
            first = [_kpd.SliceMessages(p, self._codec, self._secret, self._threads) for p in pieces]
            # The same codes, but an encoder for each hop: slices are in both at the same time.
            second = [_kpd.SliceMessages(p, self._second, self._secret, self._threads) for p in pieces]
            plan.append(Slice(at, at + count, parts, bounds, first, second if self._pattern == "sra" else []))
            at += count
        self._plans[tensors] = plan
        return plan

    def _run(self, flights: list[Stages]) -> None:
        """Takes all slices through their stages, DEPTH apart, in one order on all ranks."""
        works: list[Any] = [None] * len(flights)
        open_ = len(flights)
        step = 0
        while open_:
            if step < len(flights):
                works[step] = next(flights[step])
            at = step - DEPTH
            while at >= 0:
                if at < len(flights) and works[at] is not None:
                    self._mail.wait(works[at])
                    works[at] = next(flights[at], None)
                    open_ -= works[at] is None
                at -= DEPTH
            step += 1

    def _stages(self, piece: Slice, flat: torch.Tensor, round_: int) -> Stages:
        x = flat[piece.start : piece.stop]
        return self._sra(piece, x, round_) if self._pattern == "sra" else self._allgather(piece, x, round_)

    # -- the two patterns

    def _allgather(self, piece: Slice, x: torch.Tensor, round_: int) -> Stages:
        coder, mail = piece.shards[0], self._mail
        vector = self._with_residual(piece, x)
        row = self._encode(coder, vector, round_, mail.rank)
        rows = yield from mail.gather(row, piece.shards, self.statistics)
        if any(status == NOT_FINITE for status, _ in rows):
            x.fill_(float("nan"))
            return
        total = _zeroed(x)
        for rank, (_, message) in enumerate(rows):
            coder.decode_add(message, round_, rank, 1.0 / mail.size, total)
        if self._residuals is not None:
            coder.decode_add(rows[mail.rank][1], round_, mail.rank, -1.0, vector)
            self._keep(piece, 0, piece.stop - piece.start, vector)
        if total is not x:
            x.copy_(total)

    def _sra(self, piece: Slice, x: torch.Tensor, round_: int) -> Stages:
        mail = self._mail
        vector = self._with_residual(piece, x)
        shards = [slice(low, high) for low, high in zip(piece.bounds, piece.bounds[1:], strict=False)]
        own = shards[mail.rank]
        sent = [
            None if s == mail.rank else self._encode(piece.shards[s], vector[shards[s]], round_, mail.rank)
            for s in range(mail.size)
        ]
        rows = yield from mail.scatter(sent, piece.shards, self.statistics)
        mean = vector[own].to(torch.float32, copy=True).div_(mail.size)
        for rank, (status, message) in enumerate(rows):
            if rank == mail.rank:
                continue
            if status == NOT_FINITE:
                mean.fill_(float("nan"))
            else:
                piece.shards[mail.rank].decode_add(message, round_, rank, 1.0 / mail.size, mean)
        row = self._encode(piece.seconds[mail.rank], mean, round_, SECOND_HOP + mail.rank)
        rows = yield from mail.gather(row, piece.seconds, self.statistics)
        self._keep_shards(piece, vector, mean, [r for r, _ in rows], sent, rows[mail.rank][1], round_)
        total = _zeroed(x)
        for s, (status, message) in enumerate(rows):
            if status == NOT_FINITE:
                total[shards[s]] = float("nan")
            else:
                piece.seconds[s].decode_add(message, round_, SECOND_HOP + s, 1.0, total[shards[s]])
        if total is not x:
            x.copy_(total)

    # -- codes and residuals

    def _encode(self, coder: Any, x: torch.Tensor, round_: int, client: int) -> torch.Tensor | Exception:
        """A message in its envelope. An error is for all ranks to know before it is raised here."""
        try:
            row = self._mail.envelope(coder.max_bytes)
            used, not_finite, error2, norm2 = coder.encode(x, round_, client, row[HEAD:])
            self._mail.seal(row, NOT_FINITE if not_finite else OK, used)
        except Exception as error:
            return error
        self.statistics.not_finite += not_finite
        self.statistics.error2 += error2
        self.statistics.norm2 += norm2
        return row

    def _with_residual(self, piece: Slice, x: torch.Tensor) -> torch.Tensor:
        """What is to be coded: x, or x + e in memory of its own."""
        if self._residuals is None:
            return x
        vector = x.to(torch.float32, copy=True)
        at = 0
        for name, first, count, _ in piece.parts:
            vector[at : at + count] += self._residuals[name][first : first + count]
            at += count
        return vector

    def _keep(self, piece: Slice, start: int, stop: int, lost: torch.Tensor) -> None:
        """e = lost, for elements [start, stop) of a slice."""
        if self._residuals is None:
            return
        at = 0
        for name, first, count, _ in parts_within(piece.parts, start, stop):
            self._residuals[name][first : first + count] = lost[at : at + count]
            at += count

    def _keep_shards(
        self, piece: Slice, vector: torch.Tensor, mean: torch.Tensor, status: list[int], sent: list[Any], own: torch.Tensor, round_: int
    ) -> None:
        if self._residuals is None:
            return
        mail = self._mail
        for s, (low, high) in enumerate(zip(piece.bounds, piece.bounds[1:], strict=False)):
            if status[s] == NOT_FINITE:
                continue
            lost = mean if s == mail.rank else vector[low:high]
            if s == mail.rank:
                # The mean lost this; as the owner's part is 1/n of the next mean, n times as much makes up for it.
                piece.seconds[s].decode_add(own, round_, SECOND_HOP + s, -1.0, lost)
                lost.mul_(mail.size)
            else:
                piece.shards[s].decode_add(mail.open(sent[s], mail.rank)[1], round_, mail.rank, -1.0, lost)
            self._keep(piece, low, high, lost)

    def close(self) -> None:
        """Nothing can be averaged afterwards. The group stays open."""
        self._failed = True
        self._plans.clear()


def _zeroed(x: torch.Tensor) -> torch.Tensor:
    """A float32 sum that starts at 0: in x's own memory where it is float32."""
    return x.zero_() if x.dtype == torch.float32 else torch.zeros(x.shape)


def _check_tensor(what: str, tensor: Any) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise Error(f"{what}: {type(tensor).__name__}, expected a torch.Tensor")
    if tensor.layout != torch.strided or tensor.device.type != "cpu":
        raise Error(f"{what}: {tensor.layout} on {tensor.device}, expected a dense tensor on the CPU")
    if tensor.dtype not in FLOATS:
        raise Error(f"{what}: {tensor.dtype}, expected float32, bfloat16, float16 or float64")


def average_tensors(
    tensors: Iterable[torch.Tensor] | Mapping[str, torch.Tensor],
    group: dist.ProcessGroup | None = None,
    codec: Any = "eden:bits=4",
    *,
    pattern: str = "allgather",
    threads: int = 1,
) -> Statistics:
    """Replaces every tensor by its mean over the ranks of ``group`` (None: all), once; a collective call.

    For averages that come again, and for error feedback, keep an ``Averager``. Returns what was sent and lost.
    """
    averager = Averager(group, codec, pattern, threads=threads)
    averager.average(tensors)
    return averager.statistics
