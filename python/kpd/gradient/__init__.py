"""Vectors on the wire at a few bits a number: EDEN and the methods it is measured against.

Many machines hold a vector each and want the mean. ``encode`` and ``decode`` are for one array or one state dict whose
bytes say all that a reader needs; ``Encoder``, ``Decoder`` and ``Aggregator`` are for rounds between machines that agree
on a ``Manifest`` and on a secret of 32 bytes. Guide: docs/guide/python.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, overload

from kpd import _kpd
from kpd._errors import Error
from kpd._kpd import Aggregator, Codec, Decoder, Encoder, EncodeReport, Manifest, MessageIds, RoundReport, Verdict

if TYPE_CHECKING:
    import numpy
    from typing_extensions import Buffer

__all__ = [
    "Aggregator",
    "Codec",
    "Decoder",
    "EncodeReport",
    "Encoder",
    "Manifest",
    "MessageIds",
    "RoundReport",
    "Verdict",
    "decode",
    "encode",
    "load",
    "mean",
    "new_secret",
    "save",
    "secret_from_seed",
    "synthetic",
]

NonFinite: TypeAlias = Literal["refuse", "zero", "pass"]
CodecLike: TypeAlias = "Codec | str | Sequence[str]"
Array: TypeAlias = "numpy.ndarray[Any, numpy.dtype[Any]]"

_DEFAULT = "eden:bits=1"

for _public in (Aggregator, Codec, Decoder, EncodeReport, Encoder, Manifest, MessageIds, RoundReport, Verdict):
    _public.__module__ = __name__


def new_secret() -> bytes:
    """32 bytes from the system's random numbers, for both sides of a run."""
    return os.urandom(32)


def secret_from_seed(seed: int) -> bytes:
    """The secret that a number stands for: for tests and measurements, as whoever guesses the number knows it."""
    return _kpd.secret_from_seed(seed)


def _fresh_seed() -> int:
    return int.from_bytes(os.urandom(7), "little") >> 3  # below 2^53, as the program's


@overload
def encode(
    tensors: Any,
    spec: CodecLike = ...,
    *,
    seed: int | None = ...,
    client: int = ...,
    round: int = ...,
    nonfinite: NonFinite = ...,
    dtype: str | None = ...,
    metadata: Mapping[str, str] | None = ...,
    threads: int = ...,
    out: None = ...,
) -> bytes: ...
@overload
def encode(
    tensors: Any,
    spec: CodecLike = ...,
    *,
    seed: int | None = ...,
    client: int = ...,
    round: int = ...,
    nonfinite: NonFinite = ...,
    dtype: str | None = ...,
    metadata: Mapping[str, str] | None = ...,
    threads: int = ...,
    out: Buffer,
) -> memoryview: ...
def encode(
    tensors: Any,
    spec: CodecLike = _DEFAULT,
    *,
    seed: int | None = None,
    client: int = 0,
    round: int = 0,
    nonfinite: NonFinite = "refuse",
    dtype: str | None = None,
    metadata: Mapping[str, str] | None = None,
    threads: int = 1,
    out: Any = None,
) -> Any:
    """Compresses one array, or a mapping of names to arrays, into bytes that ``decode`` reads and the program ``kpd decode`` too.

    tensors: numpy arrays, CPU tensors of torch, or buffers. float32, float16, bfloat16 and float64 are read as they lie and coded
    as float32; integers, bool and 8-bit floats travel as they are. What is not contiguous is copied first.
    spec: e.g. ``"eden:bits=1"``, a ``Codec``, or a list of specs and PATTERN=SPEC for tensors by name.
    seed, client, round: choose the rotations. Vectors that are to be averaged must differ in one of them, or their errors do not
    cancel; without ``seed`` a fresh one is drawn. The same numbers give the same bytes, on every machine.
    nonfinite: NaN and infinity are refused, sent as 0 (``"zero"``), or their tensors sent as float32 (``"pass"``).
    dtype: ``"bfloat16"`` says that arrays of uint16 hold those.
    out: bytes to write into; returned is a memoryview of what was written. Without it new ``bytes``.
    """
    names: list[str] | None = None
    if isinstance(tensors, Mapping):
        names = list(tensors)
        tensors = list(tensors.values())
    return _kpd.encode_file(
        names,
        tensors,
        spec,
        _fresh_seed() if seed is None else seed,
        round,
        client,
        nonfinite,
        threads,
        dtype,
        list((metadata or {}).items()),
        out,
    )


def decode(message: Buffer, *, out: Any = None, threads: int = 1) -> Any:
    """What ``encode`` or ``kpd encode`` was given: an array, or a dict of arrays by name.

    Elements have the type that they had; bfloat16, which numpy does not have, comes as float32. out: an array, a mapping or a list
    of arrays to write into, contiguous and writable, of any floating type where the message has one.
    """
    names, arrays = _kpd.decode_file(message, out, threads)
    if len(names) == 1 and names[0] == "":
        return arrays[0]
    return dict(zip(names, arrays))


def save(path: str | os.PathLike[str], tensors: Any, spec: CodecLike = _DEFAULT, **options: Any) -> int:
    """Writes what ``encode`` makes to a .kpdg file and returns its bytes. The file appears when it is complete."""
    message = encode(tensors, spec, **options)
    target = os.fspath(path)
    part = f"{target}.{os.getpid()}.part"
    try:
        with open(part, "wb") as file:
            file.write(message)
        os.replace(part, target)
    except BaseException:
        if os.path.exists(part):
            os.unlink(part)
        raise
    return len(message)


def load(path: str | os.PathLike[str], *, out: Any = None, threads: int = 1) -> Any:
    """What a .kpdg file holds, as ``decode`` returns it. The file may come from ``save`` or from ``kpd encode``."""
    with open(path, "rb") as file:
        message = file.read()
    try:
        return decode(message, out=out, threads=threads)
    except Error as error:
        raise Error(f"{os.fspath(path)}: {error}", error.code, error.offset) from None


def mean(
    updates: Iterable[Any],
    weights: Sequence[float] | None = None,
    spec: CodecLike = _DEFAULT,
    *,
    seed: int | None = None,
    threads: int = 1,
) -> Any:
    """The mean that a server has of updates which came compressed: each is encoded as its client's and decoded into the sum.

    updates: arrays, or mappings of names to arrays, all alike. weights: one for each, not all 0. The result is an array or a dict
    of float32 arrays. Its error is that of one message divided by their number.
    """
    updates = list(updates)
    if not updates:
        raise Error("updates: none; expected at least one")
    shares = [1.0] * len(updates) if weights is None else [float(w) for w in weights]
    if len(shares) != len(updates):
        raise Error(f"weights: {len(shares)} for {len(updates)} updates")
    total = sum(shares)
    if not total > 0 or min(shares) < 0:
        raise Error("weights: expected numbers of at least 0, not all of them 0")
    named = isinstance(updates[0], Mapping)
    manifest = Manifest.from_state_dict(updates[0] if named else {"": updates[0]})
    secret = new_secret() if seed is None else secret_from_seed(seed)
    encoder = Encoder(manifest, spec, secret, threads=threads)
    decoder = Decoder(manifest, secret, threads=threads)
    sums = _zeros(manifest)
    room = bytearray(encoder.max_bytes)
    for client, (update, share) in enumerate(zip(updates, shares)):
        message = encoder.encode(update, round=0, client=client, out=room)
        decoder.decode_add(message, sums, share / total, round=0, client=client)
    return dict(zip(manifest.names, sums)) if named else sums[0]


def _zeros(manifest: Manifest) -> list[Array]:
    import numpy

    return [numpy.zeros(shape, numpy.float32) for _, _, shape in manifest.tensors]


def synthetic(
    kind: str, dim: int, *, clients: int = 1, seed: int = 0, correlation: float = 0.0, trial: int = 0, threads: int = 1
) -> Array:
    """Vectors for measurements, float32 [clients, dim], a function of its arguments (those of ``kpd mean --synthetic``).

    kind: lognormal, normal, exponential, sparse:K, halves:R or blocks:R1,R2,...; correlation: between clients, 0 to 1.
    """
    return cast("Array", _kpd.synthetic(kind, dim, clients, seed, correlation, trial, threads))
