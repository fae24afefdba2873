"""Envelopes for tests, as clients create them."""

from __future__ import annotations

import itertools
import time

from proto.rmb import address
from proto.rmb import types_pb2 as pb

SessionKey = tuple[int, str | None]

_uids = itertools.count(1)


def new_uid(prefix: str = "t") -> str:
    """Return a uid that is unique in this process."""
    return f"{prefix}-{next(_uids)}"


def request(
    source: SessionKey,
    destination: SessionKey | None,
    payload: bytes = b"",
    *,
    uid: str | None = None,
    tags: str | None = None,
    timestamp: int | None = None,
    expiration: int = 300,
    command: str = "test.cmd",
) -> pb.Envelope:
    """Return an unsigned request; with `destination` None the field is not set."""
    envelope = pb.Envelope(
        uid=new_uid() if uid is None else uid,
        timestamp=int(time.time()) if timestamp is None else timestamp,
        expiration=expiration,
        plain=payload,
    )
    envelope.source.CopyFrom(address.to_message(source))
    if destination is not None:
        envelope.destination.CopyFrom(address.to_message(destination))
    envelope.request.command = command
    if tags is not None:
        envelope.tags = tags
    return envelope


def response(source: SessionKey, destination: SessionKey, payload: bytes = b"") -> pb.Envelope:
    """Return an unsigned response."""
    envelope = request(source, destination, payload)
    envelope.response.SetInParent()
    return envelope


def ping(source: SessionKey, uid: str | None = None) -> pb.Envelope:
    """Return a ping as the TypeScript client sends it: to twin 0, with empty optional fields."""
    envelope = pb.Envelope(
        uid=new_uid("ping") if uid is None else uid,
        tags="",
        timestamp=int(time.time()),
        expiration=40,
        signature=b"",
    )
    envelope.source.CopyFrom(address.to_message(source))
    envelope.destination.twin = 0
    envelope.ping.SetInParent()
    return envelope
