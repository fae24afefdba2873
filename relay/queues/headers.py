"""What may be seen of messages that wait: the headers of their envelopes, never a payload.

A script in Redis cuts the payload out of each envelope, so it does not even come to this process.
What is no envelope is listed as such: it takes room in the queue like any other.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import DecodeError
from redis import Redis

from proto.rmb import address
from proto.rmb.types_pb2 import Envelope
from relay.ops.redis_client import text
from relay.queues import keys, scripts

PAGE_MESSAGES: Final = 256
PAGE_BYTES: Final = 4 << 20
"""Envelopes one script looks at: Redis does nothing else meanwhile, for some milliseconds."""
HEADER_BYTES: Final = 16 << 10
"""Longest header that is parsed. The relay's own bounds keep each far below; a foreign writer's
need not be."""
MAX_TEXT_CHARS: Final = 200
"""Clients choose uid, command and tags: no page is made of them."""

_ENTRY: Final = re.compile(r"\d{1,19}-\d{1,19}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Header:
    """What is told of one message.

    Attributes:
        entry: its id in the stream.
        at: unix time it was stored.
        size_bytes: of the envelope.
        payload_bytes: of its payload, which stays where it is.
        source, destination: as `<twin>` or `<twin>:<sid>`; empty where the envelope has none.
        kind: request, response, error, ping or pong; empty where the bytes are no envelope.
        deadline: unix time by the envelope's own account; 0 where it has none.
        expired: it will not be delivered: its deadline passed while it waited.
        tags_bytes: of its tags, which are the sender's business.
        problem: what is wrong with the entry: `no_envelope`, `unparsable` or `too_large`.
    """

    entry: str
    at: float
    size_bytes: int
    payload_bytes: int
    source: str = ""
    source_twin: int = 0
    destination: str = ""
    uid: str = ""
    kind: str = ""
    command: str = ""
    deadline: int = 0
    expired: bool = False
    tags_bytes: int = 0
    problem: str = ""

    @property
    def judged_deadline(self) -> int:
        """The deadline where it counts: one that had passed on arrival is none."""
        return self.deadline if self.deadline > self.at else 0


def is_entry(name: str) -> bool:
    """Whether a text is the id of a stream entry."""
    return _ENTRY.fullmatch(name) is not None


def following(entry: str) -> str:
    """The lowest id above one."""
    milliseconds, _, number = entry.partition("-")
    return f"{milliseconds}-{int(number) + 1}"


def stored_at(entry: str) -> float:
    """Unix time an entry was added, by its id."""
    return int(entry.partition("-")[0]) / 1000


def read(
    client: Redis,
    key: str,
    *,
    after: str = "",
    up_to: str = "+",
    count: int = PAGE_MESSAGES,
    now: float | None = None,
) -> list[Header]:
    """The oldest messages of a queue, in their order; fewer than `count` where they are large.

    Args:
        client: replies as bytes.
        key: of the session.
        after: an entry's id; those above it. Empty: from the first on.
        up_to: the last id.
        count: at most so many.
        now: unix seconds; the clock unless given.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    moment = time.time() if now is None else now
    return [_header(each, moment) for each in heads(client, key, after, up_to, count)]


def heads(
    client: Redis, key: str, after: str = "", up_to: str = "+", count: int = PAGE_MESSAGES
) -> list[list[Any]]:
    """As `read`, as the script tells it.

    Returns:
        Id, bytes of the envelope, bytes of its payload, the envelope without it, and what is wrong
        with the entry.
    """
    start = f"({after}" if after else "-"
    reply: Any = client.eval(
        scripts.source("heads"), 1, keys.stream(key), start, up_to, count, PAGE_BYTES, HEADER_BYTES
    )
    return [reply[at : at + 5] for at in range(0, len(reply), 5)]


def read_all(
    client: Redis, key: str, *, after: str = "", up_to: str = "+"
) -> Iterator[list[Header]]:
    """As `read`, page by page to the end."""
    while page := read(client, key, after=after, up_to=up_to):
        yield page
        after = page[-1].entry


def _header(reply: Sequence[Any], now: float) -> Header:
    raw_entry, size_bytes, payload_bytes, head, wrong = reply
    entry, problem = text(raw_entry), text(wrong)
    at = stored_at(entry)
    envelope = Envelope()
    try:
        envelope.ParseFromString(head)
    except DecodeError:
        problem = "unparsable"
    if problem:
        return Header(entry, at, size_bytes, 0, problem=problem)
    kind = envelope.WhichOneof("message") or ""
    # Both are 64 bits wide on the wire and chosen by clients.
    deadline = envelope.timestamp + envelope.expiration if envelope.expiration else 0
    return Header(
        entry=entry,
        at=at,
        size_bytes=size_bytes,
        payload_bytes=payload_bytes,
        source=_address(envelope, "source"),
        source_twin=envelope.source.twin,
        destination=_address(envelope, "destination"),
        uid=_short(envelope.uid),
        kind=kind,
        command=_short(envelope.request.command) if kind == "request" else "",
        deadline=deadline,
        expired=at < deadline <= now,
        tags_bytes=len(envelope.tags.encode()),
    )


def _address(envelope: Envelope, field: str) -> str:
    if not envelope.HasField(field):
        return ""
    return _short(address.format(address.from_message(getattr(envelope, field))))


def _short(value: str) -> str:
    return value if len(value) <= MAX_TEXT_CHARS else f"{value[:MAX_TEXT_CHARS]}…"
