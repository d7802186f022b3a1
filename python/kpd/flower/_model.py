"""The model that a server sent, updates as differences to it, and models again.

Both sides derive the manifest of their messages from the arrays of the server's message. Floating tensors travel as float32
differences, which the codec compresses. Integers and bools travel exactly, as differences of a signed type that holds them: so
what all clients have in common is 0 in a mean, whatever its size.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
from flwr.app import Array

from kpd._errors import Error
from kpd.gradient import Manifest

Values: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

# Of a tensor's type, in which its differences are computed.
_DIFFERENCE = {
    "float16": "float32",
    "float32": "float32",
    "float64": "float64",
    "bool": "int8",
    "int8": "int16",
    "uint8": "int16",
    "int16": "int32",
    "uint16": "int32",
    "int32": "int64",
    "uint32": "int64",
    "int64": "int64",  # from here on modulo 2^64
    "uint64": "int64",
}


def _values(arrays: Mapping[str, Array], what: str) -> dict[str, Values]:
    values = {}
    for name, array in arrays.items():
        try:
            values[name] = array.numpy()
        except (TypeError, ValueError, EOFError, OSError) as error:
            raise Error(f"{what}: tensor '{name}' is no numpy array of Flower ({error})") from None
    return values


class Model:
    """Named arrays as a message carried them. Their values are read once, when they are needed."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self.arrays = dict(arrays.items())
        self.bytes = sum(len(array.data) for array in self.arrays.values())
        self._values: dict[str, Values] | None = None
        self._manifest: Manifest | None = None
        self._hash: int | None = None

    @property
    def values(self) -> dict[str, Values]:
        if self._values is None:
            values = _values(self.arrays, "model")
            for name, value in values.items():
                if value.dtype.name not in _DIFFERENCE:
                    raise Error(f"model: tensor '{name}' has elements of {value.dtype.name}; expected a floating or integer type")
            self._values = values
        return self._values

    @property
    def manifest(self) -> Manifest:
        """Of the differences: names, their types and shapes, in the model's order."""
        if self._manifest is None:
            self._manifest = Manifest([(name, self._wire_type(value), value.shape) for name, value in self.values.items()])
        return self._manifest

    @property
    def hash(self) -> int:
        """64 bits of a SHA-256 over names and bytes, by which a message names the model that it is a difference to."""
        if self._hash is None:
            digest = hashlib.sha256()
            for name, array in self.arrays.items():
                head = f"{len(name.encode())} {name} {len(array.data)} "
                digest.update(head.encode())
                digest.update(array.data)
            self._hash = int.from_bytes(digest.digest()[:8], "little")
        return self._hash

    @staticmethod
    def _wire_type(value: Values) -> str:
        return "float32" if value.dtype.kind == "f" else _DIFFERENCE[value.dtype.name]

    def difference(self, update: Mapping[str, Array]) -> dict[str, Values]:
        """update - model, tensor by tensor. An update of other names or shapes is an Error."""
        if set(update) != set(self.arrays):
            odd = sorted(set(update) ^ set(self.arrays))[0]
            where = "update" if odd in update else "model"
            raise Error(f"update: tensor '{odd}' is in the {where} only; expected the names of the model that was received")
        new = _values({name: update[name] for name in self.arrays}, "update")
        differences = {}
        for name, base in self.values.items():
            value = new[name]
            if value.shape != base.shape:
                raise Error(f"update: tensor '{name}' has shape {value.shape}; expected {base.shape}")
            # Flower's strategies make floats of integers that they average; clients answer with integers again.
            fits = value.dtype.kind in "fiub" if base.dtype.kind == "f" else value.dtype == base.dtype
            if not fits:
                raise Error(f"update: tensor '{name}' has elements of {value.dtype.name}; expected {base.dtype.name}")
            wide = _DIFFERENCE[base.dtype.name]
            with np.errstate(over="ignore", invalid="ignore"):
                differences[name] = np.asarray(value.astype(wide, copy=False) - base.astype(wide, copy=False))
        return differences

    def plus(self, differences: Sequence[Values]) -> dict[str, Values]:
        """The arrays of one update, of the model's types: what difference() was given, but for the codec's error."""
        arrays = {}
        for (name, base), difference in zip(self.values.items(), differences):
            wide = _DIFFERENCE[base.dtype.name]
            with np.errstate(over="ignore", invalid="ignore"):
                arrays[name] = np.asarray(base.astype(wide, copy=False) + difference).astype(base.dtype, copy=False)
        return arrays

    def plus_mean(self, mean: Sequence[Values]) -> dict[str, Values]:
        """The same of a mean of differences, which is float32 also where they are integers: those are rounded."""
        steps = []
        for base, value in zip(self.values.values(), mean):
            if base.dtype.kind == "f":
                steps.append(value)
                continue
            limit = min(2**62, np.iinfo(_DIFFERENCE[base.dtype.name]).max)
            step = np.clip(np.rint(value.astype(np.float64)), -limit, limit)
            steps.append(step.astype(_DIFFERENCE[base.dtype.name]))
        return self.plus(steps)

    def zeros(self) -> list[Values]:
        """Memory for a sum of differences."""
        return [cast("Values", np.zeros(value.shape, np.float32)) for value in self.values.values()]
