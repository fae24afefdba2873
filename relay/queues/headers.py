"""Headers of waiting messages, which is all that may be shown of them; payloads never are.

A script in Redis cuts the payload out of each envelope, so it does not even reach this process.
Entries that are not envelopes are listed as such: they take space in the queue like any other.
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
"""Bytes of envelopes per run of the script, which blocks Redis for some milliseconds."""
HEADER_BYTES: Final = 16 << 10
"""Longest header that is parsed, in bytes. The relay's own bounds keep headers far below this;
those of other programs that write to Redis may be longer."""
MAX_TEXT_CHARS: Final = 200
"""Characters shown of a text that clients choose (uid, command, session id): one text must not fill
a page."""

_ENTRY: Final = re.compile(r"\d{1,19}-\d{1,19}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Header:
    """What is shown of one message.

    Attributes:
        entry: Id of its entry in the stream.
        at: Unix time at which it was stored.
        size_bytes: Size of the envelope.
        payload_bytes: Size of its payload, which stays in Redis.
        source, destination: `<twin>` or `<twin>:<sid>`; empty if the envelope has none.
        kind: request, response, error, ping or pong; empty if the bytes are not an envelope.
        deadline: Unix time according to the envelope itself; 0 if it has none.
        expired: Whether its deadline passed while it waited; the relay will not deliver it.
        tags_bytes: Size of its tags, which are not shown.
        problem: What is wrong with the entry: `no_envelope`, `unparsable` or `too_large`.
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
        """The deadline if it applies; 0 if it had already passed on arrival."""
        return self.deadline if self.deadline > self.at else 0


def is_entry(name: str) -> bool:
    """Check whether a text is the id of a stream entry."""
    return _ENTRY.fullmatch(name) is not None


def following(entry: str) -> str:
    """Return the lowest id above an entry's."""
    milliseconds, _, number = entry.partition("-")
    return f"{milliseconds}-{int(number) + 1}"


def stored_at(entry: str) -> float:
    """Return the Unix time at which an entry was added, from its id."""
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
    """Return the oldest messages of a queue, in order; fewer than `count` if they are large.

    Args:
        client: Redis client that returns replies as bytes.
        key: Key of the session.
        after: Id of the entry to start behind; empty: start with the first one.
        up_to: Id of the last entry to return.
        count: Maximum number of messages.
        now: Unix time in seconds; the clock's if None.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    moment = time.time() if now is None else now
    return [_header(each, moment) for each in heads(client, key, after, up_to, count)]


def heads(
    client: Redis, key: str, after: str = "", up_to: str = "+", count: int = PAGE_MESSAGES
) -> list[list[Any]]:
    """Do the same as `read`, but return the script's own values.

    Returns:
        For each entry: id, bytes of the envelope, bytes of its payload, the envelope without it,
            and what is wrong with the entry.
    """
    start = f"({after}" if after else "-"
    reply: Any = client.eval(
        scripts.source("heads"), 1, keys.stream(key), start, up_to, count, PAGE_BYTES, HEADER_BYTES
    )
    return [reply[at : at + 5] for at in range(0, len(reply), 5)]


def read_all(
    client: Redis, key: str, *, after: str = "", up_to: str = "+"
) -> Iterator[list[Header]]:
    """Yield what `read` returns, page by page to the end."""
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
