"""Messages of unequal length through the collectives of a process group.

A collective moves the same number of bytes for every rank. So a message lies in an envelope: its state, its length, and padding up
to the most that such a message can have. Where a codec's lengths vary much the longest one is asked for first.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

import torch  # type: ignore[import-not-found,unused-ignore]
import torch.distributed as dist  # type: ignore[import-not-found,unused-ignore]

from kpd import _kpd
from kpd._errors import Error

if TYPE_CHECKING:
    from kpd.gradient.torch._average import Statistics

OK, NOT_FINITE, FAILED = 0, 1, 2
_HEAD = struct.Struct("<QQ")
HEAD = _HEAD.size

Row = tuple[int, torch.Tensor]  # a message's state, and its bytes
Waiting = Generator[Any, None, list[Row]]
Coders = Sequence[_kpd.SliceMessages]


class Mail:
    """One rank's letters to the others. Its generators yield works to wait for."""

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        if not dist.is_initialized():
            raise Error("group: torch.distributed has no process group, expected init_process_group() before")
        self.group = dist.group.WORLD if group is None else group
        self.rank = dist.get_rank(self.group)
        self.size = dist.get_world_size(self.group)
        if self.rank < 0:
            raise Error("group: this rank is not in it")

    # -- before the first message

    def agree_on_secret(self, what: str, drawn: bytes) -> bytes:
        """Rank 0's ``drawn``. Raises where a rank means something else with ``what``."""
        digest = torch.frombuffer(bytearray(hashlib.sha256(what.encode()).digest()), dtype=torch.uint8)
        digests = torch.empty(self.size * digest.numel(), dtype=torch.uint8)
        self.wait(self._start(dist.all_gather_into_tensor, digests, digest))
        for rank, other in enumerate(digests.view(self.size, -1)):
            if not torch.equal(other, digest):
                raise Error(
                    f"averager: rank {rank} averages in another way than rank {self.rank}, expected the same codec, pattern, second and "
                    "error_feedback on all",
                    code="mismatch",
                )
        secret = torch.frombuffer(bytearray(drawn), dtype=torch.uint8)
        try:
            dist.broadcast(secret, src=dist.get_global_rank(self.group, 0), group=self.group)
        except (RuntimeError, ValueError) as error:
            raise _lost(error) from error
        return bytes(secret.numpy())

    # -- envelopes

    def envelope(self, most: int) -> torch.Tensor:
        return torch.empty(HEAD + most, dtype=torch.uint8)

    def seal(self, envelope: torch.Tensor, state: int, used: int) -> None:
        _HEAD.pack_into(memoryview(envelope.numpy()), 0, state, used)

    def open(self, envelope: torch.Tensor, rank: int) -> Row:
        state, used = _HEAD.unpack_from(memoryview(envelope.numpy()), 0)
        if state not in (OK, NOT_FINITE, FAILED) or used > envelope.numel() - HEAD:
            raise Error(f"rank {rank}: an envelope for {used} bytes, expected {envelope.numel() - HEAD} at most", code="corrupt_data")
        return state, envelope[HEAD : HEAD + used]

    # -- collectives

    def gather(self, envelope: torch.Tensor | Exception, coders: Coders, statistics: Statistics) -> Waiting:
        """Every rank's envelope, to all. ``coders`` are those of all ranks: they know how long a message can be."""
        most = yield from self._most([envelope], coders)
        given = self._padded(envelope, most)
        out = torch.empty(self.size * most, dtype=torch.uint8)
        statistics.sent_bytes += (self.size - 1) * most
        yield self._start(dist.all_gather_into_tensor, out, given)
        return self._rows(out, [envelope])

    def scatter(self, envelopes: Sequence[torch.Tensor | Exception | None], coders: Coders, statistics: Statistics) -> Waiting:
        """Envelope r to rank r (None: nothing), and what all ranks had for this one."""
        most = yield from self._most(envelopes, coders)
        given = torch.cat([self._padded(envelope, most) for envelope in envelopes])
        out = torch.empty_like(given)
        statistics.sent_bytes += (self.size - 1) * most
        yield self._start(dist.all_to_all_single, out, given)
        return self._rows(out, envelopes)

    def _most(self, envelopes: Sequence[torch.Tensor | Exception | None], coders: Coders) -> Generator[Any, None, int]:
        """Bytes of the longest envelope of all ranks, or a bound that is near it."""
        if all(coder.fixed_length for coder in coders):
            return HEAD + max(coder.max_bytes for coder in coders)
        own = max(HEAD + self.open(e, self.rank)[1].numel() if isinstance(e, torch.Tensor) else HEAD for e in envelopes)
        longest = torch.empty(self.size, dtype=torch.int64)
        yield self._start(dist.all_gather_into_tensor, longest, torch.tensor([own]))
        most = int(longest.max())
        if most > HEAD + max(coder.max_bytes for coder in coders):
            raise Error(f"rank {int(longest.argmax())}: an envelope of {most} bytes, which is more than the codec has", code="corrupt_data")
        return most

    def _padded(self, envelope: torch.Tensor | Exception | None, most: int) -> torch.Tensor:
        if isinstance(envelope, torch.Tensor) and envelope.numel() >= most:
            return envelope[:most]
        padded = torch.zeros(most, dtype=torch.uint8)
        if isinstance(envelope, torch.Tensor):
            padded[: envelope.numel()] = envelope
        else:
            self.seal(padded, OK if envelope is None else FAILED, 0)
        return padded

    def _rows(self, out: torch.Tensor, own: Sequence[torch.Tensor | Exception | None]) -> list[Row]:
        """What came, once it is known that every rank could encode."""
        for envelope in own:
            if isinstance(envelope, Exception):
                raise envelope
        rows = [self.open(envelope, rank) for rank, envelope in enumerate(out.view(self.size, -1))]
        for rank, (state, _) in enumerate(rows):
            if state == FAILED:
                raise Error(f"rank {rank} could not encode its part of the average", code="io")
        return rows

    def _start(self, collective: Any, out: torch.Tensor, given: torch.Tensor) -> Any:
        try:
            return collective(out, given, group=self.group, async_op=True)
        except (RuntimeError, ValueError) as error:
            raise _lost(error) from error

    def wait(self, work: Any) -> None:
        try:
            work.wait()
        except RuntimeError as error:
            raise _lost(error) from error


def _lost(error: Exception) -> Error:
    text = (str(error).splitlines() or [type(error).__name__])[0]
    return Error(f"averager: the process group does not deliver, a rank may be lost ({text})", code="io")
