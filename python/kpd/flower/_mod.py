"""The client's side: replies to a server that asks for it are compressed."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from typing import Literal

from flwr.app import Context, Message, RecordDict

from kpd._errors import Error
from kpd.flower._model import Model
from kpd.flower._wire import RECORD, Offer, error_reply, is_train, model_for, one_array_record, pack, weight_of
from kpd.gradient import Encoder

App = Callable[[Message, Context], Message]
Mod = Callable[[Message, Context, App], Message]

_log = logging.getLogger("flwr")


def mod(*, threads: int = 1, nonfinite: Literal["refuse", "zero", "pass"] = "refuse", required: bool = False) -> Mod:
    """A mod for ``ClientApp(mods=[kpd.flower.mod(), ...])`` that replaces the arrays of an update by one message of kpd.

    It belongs first in the list: mods run their second halves from the last to the first, so clipping and noise have then been
    applied to what it compresses, and none after it sees bytes where arrays were.

    The server (``Grid``, ``KpdFedAvg``) says in a ConfigRecord how to compress and with which secret; the app does not see that
    record. A message without it passes unchanged, so one client app serves servers with and without kpd.

    threads: that encode (0: one per processor). nonfinite: NaN and infinity in an update are an error reply that names the tensor
    ("refuse"), are sent as 0 ("zero"), or their tensors go uncompressed ("pass"). required: a train message of a server without kpd
    gets an error reply.

    What cannot be compressed (other names or shapes than the model's, no weight, several ArrayRecords) becomes an error reply with
    the reason; nothing is raised.
    """

    def compress_updates(message: Message, context: Context, call_next: App) -> Message:
        if not message.has_content() or RECORD not in message.content:
            if required and is_train(message):
                return error_reply("the server did not ask for compressed updates, and this client sends no others", message)
            return call_next(message, context)
        try:
            offer = Offer.of(message.content[RECORD])
        except Error as error:
            return error_reply(str(error), message)
        # The app may empty or change the records that it gets; arrays themselves are immutable bytes.
        models = {key: Model(record) for key, record in message.content.array_records.items()}
        request = copy.copy(message)
        request.content = RecordDict({key: record for key, record in message.content.items() if key != RECORD})
        reply = call_next(request, context)
        if not reply.has_content():
            return reply
        try:
            reply.content = _compressed(reply.content, models, offer, message, threads, nonfinite)
        except Error as error:
            return error_reply(str(error), message)
        return reply

    return compress_updates


def _compressed(
    content: RecordDict,
    models: dict[str, Model],
    offer: Offer,
    message: Message,
    threads: int,
    nonfinite: Literal["refuse", "zero", "pass"],
) -> RecordDict:
    key, update = one_array_record(content)
    model: Model = model_for(key, models)
    weight = weight_of(content, offer.weight_key, offer.max_weight)
    encoder = Encoder(model.manifest, list(offer.codec), offer.secret, threads=threads, nonfinite=nonfinite)
    data: bytes = encoder.encode(
        model.difference(update),
        run=message.metadata.run_id,
        round=offer.round,
        client=message.metadata.dst_node_id,
        weight=weight,
        base_model_hash=model.hash,
    )
    _log.debug("kpd: update of %d bytes as %d, squared error %.3g", model.bytes, len(data), encoder.report.vnmse)
    return RecordDict({k: pack(data) if k == key else record for k, record in content.items()})
