"""Events of messages that an operator deletes, which cannot be identified after the deletion.

gone = deleted.look(client, key, up_to)      # None if the relay does not record events
...                                          # delete these, and no later ones: `gone.up_to`
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
        up_to: id of the last entry that was read.
        rows: uid, source twin, destination twin, name of the source's session, and size in bytes of
            each message.
    """

    up_to: str
    rows: list[tuple[int, int, int, str, int]]


def look(client: Redis, key: str, up_to: str = "") -> Gone | None:
    """Return the messages of a queue; None if the relay does not record events.

    Args:
        client: client of Redis that returns bytes.
        key: key of the session's queue.
        up_to: id of the last entry to return; empty for all.

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
    """Record that the messages were deleted."""
    if gone is None or not gone.rows:
        return
    # Not imported at the top: all programs that delete messages import this module, few record.
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
