"""What is recorded of messages that an operator deletes: nobody can tell later which they were.

gone = deleted.look(client, key, up_to)      # nothing, where nothing is recorded
...                                          # delete those, and no later ones: `gone.up_to`
deleted.note(gone)
"""

from __future__ import annotations

import os
import time
from typing import Final, NamedTuple

from django.conf import settings
from google.protobuf.message import DecodeError
from redis import Redis

from proto.rmb.reasons import MessageReason
from proto.rmb.types_pb2 import Envelope
from relay.analytics.records import NO_LATENCY, REASON_CODE, Kind
from relay.analytics.uids import message_uid
from relay.queues import headers

_PURGED: Final = REASON_CODE[MessageReason.PURGED]


class Gone(NamedTuple):
    """Messages that are about to be deleted.

    Attributes:
        up_to: id of the last that was looked at.
        rows: uid, both twins, name of the source's session, and size of each.
    """

    up_to: str
    rows: list[tuple[int, int, int, str, int]]


def look(client: Redis, key: str, up_to: str = "") -> Gone | None:
    """Messages of a queue; None where events are not recorded.

    Args:
        client: replies as bytes.
        key: of the session.
        up_to: id of the last entry that counts; empty for all.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    if not settings.RMB.analytics.record:
        return None
    last = ""
    rows: list[tuple[int, int, int, str, int]] = []
    while page := headers.heads(client, key, after=last, up_to=up_to or "+"):
        for entry, size_bytes, _, head, wrong in page:
            last = entry.decode()
            if not wrong:
                rows += _row(head, int(size_bytes))
    return Gone(last or up_to, rows)


def note(gone: Gone | None) -> None:
    """Record that they were deleted."""
    if gone is None or not gone.rows:
        return
    # Not at the top: everybody who deletes imports this, few record.
    from relay.analytics.recording import journal

    events = journal(settings.RMB, f"operator-{os.getpid()}")
    events.begin()
    now_us = int(time.time() * 1e6)
    for row in gone.rows:
        events.put(Kind.DROPPED, now_us, *row, NO_LATENCY, _PURGED)
    events.finish()


def _row(head: bytes, size_bytes: int) -> list[tuple[int, int, int, str, int]]:
    try:
        envelope = Envelope.FromString(head)
    except DecodeError:
        return []
    source, target = envelope.source, envelope.destination.twin
    uid = message_uid(source.twin, target, envelope.WhichOneof("message"), envelope.uid)
    return [(uid, source.twin, target, source.connection, size_bytes)]
