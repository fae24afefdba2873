"""Messages of the outbox and dead letters as operators see them: headers, tries, never payloads."""

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
"""Messages on one page."""
PAGE_BYTES: Final = 32 << 20
"""Payloads read for one page, since headers are inside of them; what is older is left out."""
MAX_LOOKS: Final = 1000
"""Dead letters that are looked at in one step for those that are wanted."""
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


def dead(client: Redis, before: str = "", limit: int = MAX_SHOWN) -> list[Letter]:
    """The latest dead letters, the newest first.

    Args:
        client: replies as bytes.
        before: only those that died before this entry.
        limit: most of them; fewer come where payloads are large.

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
    """The latest dead letters of a relay, or of a reason, the newest first, by their ids.

    Args:
        client: replies as bytes.
        relay: one of those a letter is for.
        why: the reason of its death.
        before: where the list before said that it goes on.
        limit: most of them; fewer come where only few of many letters are wanted.

    Returns:
        The ids, and where the list goes on; empty at its end.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    start, *found = client.eval(
        scripts.source("letters"), 1, keys.DEAD_LETTERS, f"({before}" if before else "+",
        limit, MAX_LOOKS, fold(relay), why,
    )  # fmt: skip
    return [text(each) for each in found], text(start).removeprefix("(")


def all_dead_ids(client: Redis, relay: str) -> list[str]:
    """Every dead letter of a relay, the oldest first; there are some ten thousand at most.

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
    """These dead letters but for those that are gone; and whether large ones left some out.

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
    """One dead letter; None where it is gone.

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
    """The oldest messages of the outbox over all shards, with the tries they had.

    Args:
        client: replies as bytes.
        after: only those after this entry of this shard, in the order of this list.
        limit: most of them; fewer come where payloads are large.

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
    """The oldest messages for a relay, of the `live.HEADS` oldest of each shard.

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
    """One message of the outbox; None where it is gone.

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
    """Where a message is in the order of `pending`."""
    stored_ms, _, number = entry.partition("-")
    return (int(stored_ms), int(number or 0), shard)


def _oldest(client: Redis, after: tuple[str, int] | None, limit: int) -> list[tuple[int, str]]:
    """Shard and id of the oldest entries, the oldest first."""
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
