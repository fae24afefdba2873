"""Messages of the outbox and dead letters as operators see them: headers, tries, never payloads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import DecodeError
from redis import Redis

from proto.rmb import address
from proto.rmb.types_pb2 import Envelope
from relay.federation import outbox
from relay.federation.live import queue_heads, stored_at
from relay.ops.redis_client import text
from relay.queues import keys

MAX_SHOWN: Final = 100
"""Messages on one page."""
PAGE_BYTES: Final = 32 << 20
"""Payloads read for one page, since headers are inside of them; what is older is left out."""
MAX_TEXT_CHARS: Final = 200
"""Clients choose uid, command and tags: no page is made of them."""


@dataclass(frozen=True, slots=True)
class Try:
    """One failed try: when (unix seconds), at which relay, what it answered, how long it took."""

    at: float
    relay: str
    answer: str
    ms: float


@dataclass(frozen=True, slots=True)
class Letter:
    """What may be shown of a stored message.

    Attributes:
        entry: id in its stream.
        shard: of the outbox it is or was in.
        at: unix time it was stored, or died.
        account: the relays it was for, joined.
        why: reason of its death; empty while it is pending.
        kind: of message, such as `request`; empty where the bytes are no envelope.
        deadline: unix time by its own account; 0 where it has none.
    """

    entry: str
    shard: int
    at: float
    account: str
    why: str
    source: str
    destination: str
    kind: str
    command: str
    uid: str
    tags: str
    deadline: int
    size_bytes: int
    tries: tuple[Try, ...] = ()


def dead(client: Redis) -> list[Letter]:
    """The latest dead letters, the newest first.

    Args:
        client: replies as bytes.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    letters: list[Letter] = []
    size_bytes, end = 0, "+"
    while len(letters) < MAX_SHOWN and size_bytes < PAGE_BYTES:
        found: Any = client.xrevrange(keys.DEAD_LETTERS, max=end, count=1)
        if not found:
            break
        entry, fields = found[0]
        letter = _letter(text(entry), _texts(fields), fields)
        letters.append(letter)
        size_bytes += letter.size_bytes
        end = f"({letter.entry}"
    return letters


def pending(client: Redis) -> list[Letter]:
    """The oldest messages of the outbox over all shards, with the tries they had.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    names = _oldest(client)
    letters: list[Letter] = []
    size_bytes = 0
    for shard, entry in names:
        if size_bytes >= PAGE_BYTES:
            break
        found: Any = client.xrange(keys.outbox(shard), min=entry, max=entry)
        if not found:
            continue  # delivered meanwhile
        fields = found[0][1]
        tries = client.lrange(keys.tries(shard, entry), 0, outbox.MAX_TRIES - 1)
        letter = _letter(entry, {**_texts(fields), "shard": str(shard)}, fields, tries)
        letters.append(letter)
        size_bytes += letter.size_bytes
    return letters


def _oldest(client: Redis) -> list[tuple[int, str]]:
    """Shard and id of the oldest entries, the oldest first."""
    with client.pipeline(transaction=False) as pipe:
        queue_heads(pipe, MAX_SHOWN)
        (reply,) = pipe.execute()
    names = [(shard, text(entry)) for shard, heads in enumerate(reply) for entry in heads[1::2]]
    return sorted(names, key=lambda name: stored_at(name[1]))[:MAX_SHOWN]


def _letter(
    entry: str,
    values: Mapping[str, str],
    fields: Mapping[Any, Any],
    tries: Iterable[bytes | str] = (),
) -> Letter:
    payload = fields.get(outbox.ENVELOPE.encode(), b"")
    envelope = Envelope()
    try:
        envelope.ParseFromString(payload)
    except DecodeError:
        envelope = Envelope()
    kind = envelope.WhichOneof("message") or ""
    deadline = envelope.timestamp + envelope.expiration if envelope.expiration else 0
    return Letter(
        entry=entry,
        shard=int(values["shard"]) if values.get("shard", "").isdecimal() else 0,
        at=stored_at(entry),
        account=values.get(outbox.ACCOUNT, ""),
        why=values.get("why", ""),
        source=_address(envelope, "source") or values.get(outbox.ORIGIN, ""),
        destination=_address(envelope, "destination"),
        kind=kind,
        command=_short(envelope.request.command) if kind == "request" else "",
        uid=_short(envelope.uid),
        tags=_short(envelope.tags),
        deadline=deadline,
        size_bytes=len(payload),
        tries=tuple(_tries(tries or _stored_tries(values.get("tries", "")))),
    )


def _texts(fields: Mapping[Any, Any]) -> dict[str, str]:
    """The fields but for the payload."""
    return {text(name): text(value) for name, value in fields.items() if name != b"_"}


def _address(envelope: Envelope, field: str) -> str:
    if not envelope.HasField(field):
        return ""
    part = getattr(envelope, field)
    sid = part.connection if part.HasField("connection") else None
    return _short(address.format((part.twin, sid)))


def _stored_tries(document: str) -> list[str]:
    """A dead letter holds its tries as one list; each is an object or its text."""
    try:
        found = json.loads(document) if document else []
    except ValueError:
        return []
    if not isinstance(found, list):
        return []
    return [
        each if isinstance(each, str) else json.dumps(each) for each in found[: outbox.MAX_TRIES]
    ]


def _tries(documents: Iterable[bytes | str]) -> Iterator[Try]:
    for document in documents:
        try:
            found = json.loads(document)
            yield Try(
                at=float(found["at"]),
                relay=_short(str(found["relay"])),
                answer=_short(str(found["answer"])),
                ms=float(found["ms"]),
            )
        except (ValueError, TypeError, KeyError):
            continue  # of another release


def _short(value: str) -> str:
    return value if len(value) <= MAX_TEXT_CHARS else f"{value[:MAX_TEXT_CHARS]}…"
