"""Resources of the REST API, as `RelayApi` returns them."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from typing import Any


@dataclasses.dataclass(frozen=True)
class Session:
    """An open session; in SBD, `peer` is the public key and `twin` is None."""

    key: str
    protocol: str
    twin: int | None
    sid: str | None
    peer: str | None
    epoch: int
    worker: str
    address: str
    opened_at: datetime
    messages_in: int
    messages_out: int
    bytes_in: int
    bytes_out: int
    backlog: int
    drops: int


@dataclasses.dataclass(frozen=True)
class PastSession(Session):
    """A session of the history."""

    id: int
    closed_at: datetime | None
    close_reason: str


@dataclasses.dataclass(frozen=True)
class Twin:
    """A twin as this relay knows it; pass `etag` to change it only in this state."""

    id: int
    account: str
    pk: str | None
    relays: list[str]
    source: str
    version: int
    updated: datetime
    etag: str = ""


@dataclasses.dataclass(frozen=True)
class Limit:
    """Limits, ban and note of a twin."""

    twin: int
    count: int | None
    size: int | None
    banned: bool
    ban_reason: str
    banned_until: datetime | None
    note: str
    updated: datetime
    etag: str = ""


@dataclasses.dataclass(frozen=True)
class Relay:
    """Decisions about a partner relay."""

    domain: str
    trusted: bool
    paused: bool
    blocked: bool
    note: str
    updated: datetime
    etag: str = ""


@dataclasses.dataclass(frozen=True)
class Queue:
    """Queue of one session."""

    key: str
    twin: int
    connected: bool
    messages: int
    size_bytes: int
    oldest: datetime | None
    newest_entry: str


@dataclasses.dataclass(frozen=True)
class Letter:
    """Headers of a waiting message for a partner relay, or of a dead letter."""

    entry: str
    shard: int
    at: datetime | None
    relays: str
    why: str
    source: str
    destination: str
    uid: str
    command: str
    size_bytes: int


@dataclasses.dataclass(frozen=True)
class AuditEntry:
    """One change, or one sign-in."""

    number: int
    at: datetime
    actor: str
    face: str
    address: str
    action: str
    target: str
    before: Any
    after: Any
    hash: str


@dataclasses.dataclass(frozen=True)
class Event:
    """One event of a stream."""

    id: str
    kind: str
    data: Any
