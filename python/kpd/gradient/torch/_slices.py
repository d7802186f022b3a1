"""How a vector of many tensors is cut: slices that are coded, moved and decoded side by side, and their shards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kpd import _kpd

# Elements of a slice: two of the segments that a thread codes at a time. A message of 2^19 numbers at one bit has 64 KiB.
SLICE = 1 << 19
# Where it can, a shard begins at a block of its slice.
BLOCK = 4096

# Name, first element, number of elements, elements of the whole tensor.
Part = tuple[str, int, int, int]


@dataclass
class Slice:
    """Elements [start, stop) of the vector; shard s of it is [bounds[s], bounds[s + 1]), counted from start."""

    start: int
    stop: int
    parts: list[Part]
    bounds: list[int]
    shards: list[_kpd.SliceMessages]
    seconds: list[_kpd.SliceMessages]


def cut(tensors: Sequence[tuple[str, int]]) -> list[list[Part]]:
    """Parts in their order, of at most SLICE elements a slice; a tensor longer than that is cut."""
    slices: list[list[Part]] = []
    room = 0
    for name, count in tensors:
        first = 0
        while first < count:
            if room == 0:
                slices.append([])
                room = SLICE
            taken = min(room, count - first)
            slices[-1].append((name, first, taken, count))
            first += taken
            room -= taken
    return slices


def shard_bounds(count: int, shards: int) -> list[int]:
    """Bounds of nearly equal shards; every shard has at least one element if there are so many."""
    step = BLOCK if count >= 8 * BLOCK * shards else 1
    return [count * s // shards // step * step for s in range(shards)] + [count]


def parts_within(parts: Sequence[Part], start: int, stop: int) -> list[Part]:
    """What of a slice's parts lies in its elements [start, stop)."""
    inside: list[Part] = []
    at = 0
    for name, first, count, whole in parts:
        low, high = max(start, at), min(stop, at + count)
        if low < high:
            inside.append((name, first + low - at, high - low, whole))
        at += count
    return inside
