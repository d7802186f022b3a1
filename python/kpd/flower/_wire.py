"""What server and clients say to each other beside the arrays: a ConfigRecord down, one Array up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.app import Error as FlowerError

from kpd._errors import Error
from kpd.gradient import Codec, Encoder, Manifest

# The key of the ConfigRecord in a train message, and of the one Array of a reply.
RECORD = "kpd"
ARRAY = "kpd"
# How an Array says that its bytes are a message of kpd. Whoever takes it for numbers gets Flower's TypeError and no mean of bytes.
STYPE = "kpd.gradient"
VERSION = 1
# Flower's code of a reply that a mod refused (MOD_FAILED_PRECONDITION).
ERROR_CODE = 6


@dataclass(frozen=True)
class Offer:
    """What a server tells its clients: how to compress, the run's secret, which round it is and what weights it takes."""

    codec: tuple[str, ...]
    secret: bytes
    round: int
    max_weight: int
    weight_key: str

    def record(self) -> ConfigRecord:
        return ConfigRecord(
            {
                "version": VERSION,
                "codec": list(self.codec),
                "secret": self.secret,
                "round": self.round,
                "max-weight": self.max_weight,
                "weight-key": self.weight_key,
            }
        )

    @classmethod
    def of(cls, record: Any) -> Offer:
        """Of what came; anything else than record() made is an Error."""
        version = record.get("version") if isinstance(record, ConfigRecord) else None
        if version != VERSION:
            raise Error(f"the server's record '{RECORD}' is of version {version!r}; this kpd has {VERSION}", "unsupported")
        codec, secret, round_, max_weight, key = (record.get(k) for k in ("codec", "secret", "round", "max-weight", "weight-key"))
        if not isinstance(codec, list) or not all(isinstance(text, str) for text in codec):
            raise Error(f"the server's record '{RECORD}' has no codec; expected a list of specs", "corrupt_data")
        if not isinstance(secret, bytes) or len(secret) != 32:
            raise Error(f"the server's record '{RECORD}' has no secret of 32 bytes", "corrupt_data")
        if not isinstance(round_, int) or not isinstance(max_weight, int) or round_ < 0 or max_weight < 1:
            raise Error(f"the server's record '{RECORD}' has no round or no largest weight", "corrupt_data")
        if not isinstance(key, str):
            raise Error(f"the server's record '{RECORD}' does not say where weights are", "corrupt_data")
        return cls(tuple(codec), secret, round_, max_weight, key)


def spec_texts(codec: Codec | str | Sequence[str]) -> tuple[str, ...]:
    """Specs as they travel, after a check that they are some."""
    texts = (codec.spec,) if isinstance(codec, Codec) else (codec,) if isinstance(codec, str) else tuple(codec)
    Encoder(Manifest([("any", "float32", (1,))]), list(texts), bytes(32)).close()
    return texts


def weight_of(content: RecordDict, key: str, max_weight: int) -> int:
    """The examples behind an update, 1 if `key` is empty. Missing, twice, no whole number or out of range is an Error."""
    if not key:
        return 1
    found = [record[key] for record in content.metric_records.values() if key in record]
    if len(found) != 1:
        raise Error(f"the reply has {len(found)} metrics '{key}'; expected one, the weight of the update")
    value = found[0]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value or value in (float("inf"), -float("inf")):
        raise Error(f"'{key}' is no number; expected a whole one from 1 to max_weight, {max_weight}")
    if value != int(value) or not 1 <= value <= max_weight:
        raise Error(f"'{key}' is {value}; expected a whole number from 1 to max_weight, {max_weight}")
    return int(value)


def one_array_record(content: RecordDict) -> tuple[str, ArrayRecord]:
    """A reply's arrays and under which key; none or several are an Error."""
    records = list(content.array_records.items())
    if len(records) != 1:
        raise Error(f"the reply has {len(records)} ArrayRecords; expected one")
    return records[0]


def model_for(key: str, sent: Mapping[str, Any]) -> Any:
    """Of the records that a server sent, the one to which the reply's record `key` is an update: of its name, or the only one."""
    if key in sent:
        return sent[key]
    if len(sent) != 1:
        raise Error(f"the reply's arrays are in '{key}'; expected one of the records received: {', '.join(sorted(sent)) or 'none'}")
    return next(iter(sent.values()))


def is_compressed(record: ArrayRecord) -> bool:
    return any(array.stype == STYPE for array in record.values())


def pack(message: bytes) -> ArrayRecord:
    return ArrayRecord({ARRAY: Array(dtype="uint8", shape=(len(message),), stype=STYPE, data=message)})


def unpack(record: ArrayRecord) -> bytes:
    """The message that pack() packed; anything else is an Error."""
    if list(record) != [ARRAY] or record[ARRAY].stype != STYPE:
        if not is_compressed(record):
            raise Error("its arrays came uncompressed; expected kpd.flower.mod() first in its ClientApp's mods", "mismatch")
        raise Error("its ArrayRecord holds something beside one message of kpd", "corrupt_data")
    return record[ARRAY].data


def error_reply(reason: str, message: Message) -> Message:
    return Message(FlowerError(ERROR_CODE, f"kpd: {reason}"), reply_to=message)


def is_train(message: Message) -> bool:
    return message.metadata.message_type.split(".")[0] == "train"
