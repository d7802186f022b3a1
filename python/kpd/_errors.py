"""The one exception of the package."""

from __future__ import annotations


class Error(Exception):
    """What kpd refuses or cannot do, in one sentence that names the argument, tensor or byte and what was expected.

    ``code`` is one of invalid_argument, corrupt_data, unsupported, limit_exceeded, io, mismatch, cancelled, internal
    and out_of_memory. ``offset`` is the byte of a message or file at which it is wrong, where that is known.
    """

    code: str
    offset: int | None

    def __init__(self, message: str, code: str = "invalid_argument", offset: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.offset = offset

    def __reduce__(self) -> tuple[type[Error], tuple[str, str, int | None]]:
        return type(self), (self.args[0], self.code, self.offset)
