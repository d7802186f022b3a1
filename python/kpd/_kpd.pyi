# The extension module, python/src.
from typing import Any

from kpd import _kpd_llm

llm = _kpd_llm

__version__: str

def encode(array: Any, spec: str, seed: int, client: int) -> bytes: ...
def decode(message: bytes) -> Any: ...
