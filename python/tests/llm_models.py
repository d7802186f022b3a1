"""The small models of tests/golden, and what transformers said about them."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
MODELS = CHECKOUT / "tests/golden/models"
CHAT = MODELS / "chat"
SMOLLM2 = CHECKOUT / "build/models/smollm2.gguf"

needs_smollm2 = pytest.mark.skipif(not SMOLLM2.exists(), reason="build/models/smollm2.gguf is not there (./quickstart fetches it)")


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    data = path.read_bytes()
    (n,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + n]).items():
        assert entry["dtype"] == "F32"
        begin, end = entry["data_offsets"]
        tensors[name] = np.frombuffer(data[8 + n + begin : 8 + n + end], np.float32).reshape(entry["shape"])
    return tensors


def log_likelihood(logits: np.ndarray, targets: list[int]) -> float:
    """Of targets[i] by row i."""
    x = logits.astype(np.float64)
    top = x.max(1, keepdims=True)
    sums = np.log(np.exp(x - top).sum(1)) + top[:, 0]
    return float(sum(x[i, t] - sums[i] for i, t in enumerate(targets)))
