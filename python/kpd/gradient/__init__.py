"""Vectors on the wire at a few bits a number: EDEN and the methods it is measured against."""

from __future__ import annotations

import os
from typing import Any

from kpd import _kpd

__all__ = ["decode", "encode"]


def encode(array: Any, spec: str = "eden:bits=1", *, seed: int | None = None, client: int = 0) -> bytes:
    """Compresses an array of float32; ``decode`` restores it from the bytes alone."""
    if seed is None:
        seed = int.from_bytes(os.urandom(8), "little")
    return _kpd.encode(array, spec, seed, client)


def decode(message: bytes) -> Any:
    """The array that ``encode`` made the message of, as a new float32 array."""
    return _kpd.decode(message)
