"""Taking over the outbox of the reference relay, when this relay replaces it on the same Redis.

The stream `relay.federation.stream` of the reference relay holds bare envelopes. Each is moved into
our outbox, and is from then on like any other message. Its sender is the envelope's source, since
it came from a session of this relay. The messages are counted for no particular relay, because
looking up twins is left to the drainer.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.message import DecodeError
from redis import Redis

from proto.rmb import address
from proto.rmb.types_pb2 import Envelope
from relay.federation import outbox, scripts
from relay.queues import keys
from relay.queues.held import pack

logger = logging.getLogger(__name__)

PAGE: Final = 100
MOST: Final = 1000
"""Entries after which one run stops; the next run follows within seconds."""
ACCOUNT: Final = ""


def take_over(client: Redis) -> int:
    """Move the entries of the reference relay's outbox, and return their number.

    Entries that are not envelopes are removed: the reference relay could not send them either.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    moved = 0
    while moved < MOST:
        page: list[Any] = client.xrange(keys.REFERENCE_OUTBOX, count=PAGE)  # type: ignore[assignment]
        for entry, fields in page:
            moved += _move(client, entry, fields)
        if len(page) < PAGE:
            break
    if moved:
        logger.info("%d messages of the reference relay's outbox taken over", moved)
    return moved


def _move(client: Redis, entry: bytes, fields: Mapping[bytes, bytes]) -> int:
    payload = fields.get(outbox.ENVELOPE.encode()) or next(iter(fields.values()), b"")
    try:
        envelope = Envelope.FromString(payload)
    except DecodeError:
        envelope = Envelope()
    twin = envelope.destination.twin
    if not twin:
        logger.warning("entry %r of %s is not an envelope", entry, keys.REFERENCE_OUTBOX)
        client.xdel(keys.REFERENCE_OUTBOX, entry)
        return 0
    source = address.from_message(envelope.source)
    origin = str(source) if source.twin else ""
    return int(
        client.eval(
            scripts.source("take_over"),
            3,
            keys.REFERENCE_OUTBOX,
            keys.outbox(twin),
            keys.held(ACCOUNT),
            entry,
            payload,
            origin,
            ACCOUNT,
            outbox.source_of(origin),
            pack(1, len(payload)),
        )
    )
