"""Messages of the outbox and dead letters for operators: headers and attempts, never payloads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import DecodeError
from redis import Redis

from proto.federation.domains import fold
from proto.rmb import address
from proto.rmb.types_pb2 import Envelope
from relay.federation import live, outbox, scripts
from relay.federation.live import stored_at
from relay.ops.redis_client import text
from relay.queues import keys

MAX_SHOWN: Final = 100
"""Maximum number of messages on one page."""
PAGE_BYTES: Final = 32 << 20
"""Maximum size of the payloads read for one page, in bytes, since they contain the headers. The
page ends early when it is exceeded."""
MAX_LOOKS: Final = 1000
"""Dead letters examined in one step of a filtered list."""
MAX_TEXT_CHARS: Final = 200
"""Maximum length of a text shown: clients choose uid, command and tags, and could fill the page."""


@dataclass(frozen=True, slots=True)
class Try:
    """One failed attempt: time (unix seconds), relay, its answer, and duration in milliseconds."""

    at: float
    relay: str
    answer: str
    ms: float


@dataclass(frozen=True, slots=True)
class Letter:
    """Headers of a stored message.

    Attributes:
        entry: id in its stream.
        shard: shard of the outbox that it is or was in.
        at: unix time at which it was stored, or became a dead letter.
        account: relays it is for, joined.
        why: reason why it is a dead letter; empty while it waits.
        kind: kind of message, such as `request`; empty if the bytes are not an envelope.
        deadline: unix time at which it expires by its envelope; 0 if it sets none.
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


def dead(client: Redis, before: str = "", limit: int = MAX_SHOWN) -> list[Letter]:
    """Return the latest dead letters, the newest first.

    Args:
        client: connection whose replies are bytes.
        before: only letters before this entry.
        limit: maximum number; there are fewer if payloads are large.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    letters: list[Letter] = []
    size_bytes, end = 0, f"({before}" if before else "+"
    while len(letters) < limit and size_bytes < PAGE_BYTES:
        found: Any = client.xrevrange(keys.DEAD_LETTERS, max=end, count=1)
        if not found:
            break
        entry, fields = found[0]
        letter = _letter(text(entry), _texts(fields), fields)
        letters.append(letter)
        size_bytes += letter.size_bytes
        end = f"({letter.entry}"
    return letters


def dead_ids(
    client: Redis, *, relay: str = "", why: str = "", before: str = "", limit: int = MAX_SHOWN
) -> tuple[list[str], str]:
    """Return ids of the latest dead letters of a relay, or with a reason, the newest first.

    Args:
        client: connection whose replies are bytes.
        relay: one of the relays that a letter is for.
        why: reason why it is a dead letter.
        before: position at which the previous list ended.
        limit: maximum number; there are fewer if only few of the letters examined match.

    Returns:
        The ids, and the position at which the list continues; empty at its end.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    start, *found = client.eval(
        scripts.source("letters"), 1, keys.DEAD_LETTERS, f"({before}" if before else "+",
        limit, MAX_LOOKS, fold(relay), why,
    )  # fmt: skip
    return [text(each) for each in found], text(start).removeprefix("(")


def all_dead_ids(client: Redis, relay: str) -> list[str]:
    """Return the ids of all dead letters of a relay, the oldest first; at most about ten thousand.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    found: list[str] = []
    more = ""
    while True:
        some, more = dead_ids(client, relay=relay, before=more, limit=MAX_LOOKS)
        found += some
        if not more:
            return found[::-1]


def read_dead(client: Redis, ids: Iterable[str]) -> tuple[list[Letter], bool]:
    """Return those of these dead letters that still exist.

    Returns:
        The letters, and whether some were omitted because the payloads are large.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    found: list[Letter] = []
    size_bytes = 0
    for entry in ids:
        if size_bytes >= PAGE_BYTES:
            return found, True
        letter = dead_one(client, entry)
        if letter is not None:
            found.append(letter)
            size_bytes += letter.size_bytes
    return found, False


def dead_one(client: Redis, entry: str) -> Letter | None:
    """Return one dead letter; None if it does not exist any more.

    Args:
        entry: a well-formed id of the stream (`relay.queues.headers.is_entry`).

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    found: Any = client.xrange(keys.DEAD_LETTERS, min=entry, max=entry)
    return _letter(entry, _texts(found[0][1]), found[0][1]) if found else None


def pending(
    client: Redis, after: tuple[str, int] | None = None, limit: int = MAX_SHOWN
) -> list[Letter]:
    """Return the oldest messages of the outbox over all shards, with their failed attempts.

    Args:
        client: connection whose replies are bytes.
        after: only messages after this entry of this shard, in the order of this list.
        limit: maximum number; there are fewer if payloads are large.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    letters: list[Letter] = []
    size_bytes = 0
    for shard, entry in _oldest(client, after, limit):
        if size_bytes >= PAGE_BYTES:
            break
        letter = pending_one(client, shard, entry)
        if letter is None:
            continue  # delivered meanwhile
        letters.append(letter)
        size_bytes += letter.size_bytes
    return letters


def pending_for(client: Redis, relay: str, limit: int = MAX_SHOWN) -> list[Letter]:
    """Return the oldest messages for a relay, among the `live.HEADS` oldest of each shard.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    relay = fold(relay)
    with client.pipeline(transaction=False) as pipe:
        live.queue_heads(pipe, live.HEADS)
        (heads,) = pipe.execute()
    wanted = [
        (text(entry), shard)
        for shard, (_, *entries) in enumerate(heads)
        for entry, account in zip(entries[::2], entries[1::2], strict=True)
        if relay in map(fold, text(account).split(outbox.ACCOUNT_SEPARATOR))
    ]
    found: list[Letter] = []
    size_bytes = 0
    for entry, shard in sorted(wanted, key=lambda each: place(*each))[:limit]:
        if size_bytes >= PAGE_BYTES:
            break
        letter = pending_one(client, shard, entry)
        if letter is not None:
            found.append(letter)
            size_bytes += letter.size_bytes
    return found


def pending_one(client: Redis, shard: int, entry: str) -> Letter | None:
    """Return one message of the outbox; None if it does not exist any more.

    Args:
        entry: a well-formed id of the shard's stream.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    found: Any = client.xrange(keys.outbox(shard), min=entry, max=entry)
    if not found:
        return None
    fields = found[0][1]
    tries = client.lrange(keys.tries(shard, entry), 0, outbox.MAX_TRIES - 1)
    return _letter(entry, {**_texts(fields), "shard": str(shard)}, fields, tries)


def place(entry: str, shard: int) -> tuple[int, int, int]:
    """Return the sort key of a message in the order of `pending`."""
    stored_ms, _, number = entry.partition("-")
    return (int(stored_ms), int(number or 0), shard)


def _oldest(client: Redis, after: tuple[str, int] | None, limit: int) -> list[tuple[int, str]]:
    """Return shard and id of the oldest entries, the oldest first."""
    shards = range(keys.OUTBOX_SHARDS)
    starts = ["-"] * len(shards)
    if after is not None:
        entry, last = after
        starts = [entry if shard > last else f"({entry}" for shard in shards]
    names = [keys.outbox(shard) for shard in shards]
    reply: Any = client.eval(scripts.source("ids"), len(names), *names, limit, *starts)
    found = [(shard, text(entry)) for shard, ids in enumerate(reply) for entry in ids]
    return sorted(found, key=lambda each: place(each[1], each[0]))[:limit]


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
    """Return all fields but the payload."""
    return {text(name): text(value) for name, value in fields.items() if name != b"_"}


def _address(envelope: Envelope, field: str) -> str:
    if not envelope.HasField(field):
        return ""
    part = getattr(envelope, field)
    sid = part.connection if part.HasField("connection") else None
    return _short(address.format((part.twin, sid)))


def _stored_tries(document: str) -> list[str]:
    """Return the failed attempts stored in a dead letter, each as JSON text.

    The stored list may contain objects or their JSON texts.
    """
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
            continue  # written by another release


def _short(value: str) -> str:
    return value if len(value) <= MAX_TEXT_CHARS else f"{value[:MAX_TEXT_CHARS]}…"
