"""What test_types.py lets mypy --strict read: each line is a use that must type-check."""

import numpy as np

import kpd
from kpd import gradient

x = np.zeros(100, np.float32)
message: bytes = gradient.encode(x, "eden:bits=1", seed=1, client=2)
written: memoryview = gradient.encode(x, gradient.Codec("eden:bits=1"), out=bytearray(1000))
restored: np.ndarray[tuple[int], np.dtype[np.float32]] = gradient.decode(message, threads=2)
manifest = gradient.Manifest.from_state_dict({"x": x})
rows: list[tuple[str, str, tuple[int, ...]]] = manifest.tensors
secret: bytes = gradient.new_secret()
with gradient.Encoder(manifest, ["eden:bits=1", "*norm*=float32"], secret, nonfinite="zero") as encoder:
    update: bytes = encoder.encode([x], round=0, client=1)
    part: memoryview = encoder.encode([x], round=0, client=1, out=bytearray(encoder.max_bytes))
    error: float = encoder.report.vnmse
server = gradient.Aggregator(manifest, secret, codec="eden:bits=1")
server.begin_round(round=0)
verdict: gradient.Verdict = server.add(1, update, weight=1)
refusal: str | None = verdict.refusal
refused: dict[str, int] = server.report.refused
try:
    gradient.Decoder(manifest, secret).decode(update, round=0, client=1)
except kpd.Error as caught:
    code: str = caught.code
    offset: int | None = caught.offset
version: str = kpd.__version__
gradient.encode(x, seed="one")  # type: ignore[call-overload]  # and this one must not
gradient.Codec(1)  # type: ignore[arg-type]
