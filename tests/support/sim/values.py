"""Values that SimRedis stores, and its replies with their RESP2 form."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import Any

StreamId = tuple[int, int]

MAX_SEQUENCE = 2**64 - 1
"""Largest value of either half of a stream id."""

ENTRY_OVERHEAD_BYTES = 40
"""Approximate size of a stream entry besides its bytes; only the order of magnitude matters."""

TRIM_NODE_ENTRIES = 100
"""Default number of entries in a server's node; `XTRIM ~` removes whole nodes."""


class ReplyError(Exception):
    """An error reply; its text starts with the error's code."""


@dataclass(frozen=True, slots=True)
class Status:
    """A simple string reply, as in `+OK`."""

    text: str


OK = Status("OK")
QUEUED = Status("QUEUED")


@dataclass(slots=True)
class Stream:
    """A stream: entries in id order, and the highest id ever given."""

    ids: list[StreamId] = field(default_factory=list)
    entries: dict[StreamId, list[bytes]] = field(default_factory=dict)
    last_id: StreamId = (0, 0)
    size_bytes: int = 0

    def add(self, entry_id: StreamId, fields: list[bytes]) -> None:
        self.ids.append(entry_id)
        self.entries[entry_id] = fields
        self.last_id = entry_id
        self.size_bytes += _entry_size(fields)

    def remove(self, entry_id: StreamId) -> bool:
        fields = self.entries.pop(entry_id, None)
        if fields is None:
            return False
        del self.ids[bisect_left(self.ids, entry_id)]
        self.size_bytes -= _entry_size(fields)
        return True

    def between(self, start: StreamId, end: StreamId) -> list[StreamId]:
        return self.ids[bisect_left(self.ids, start) : bisect_right(self.ids, end)]

    def drop_first(self, count: int, approximate: bool) -> int:
        if approximate:
            count -= count % TRIM_NODE_ENTRIES
        for entry_id in self.ids[:count]:
            self.remove(entry_id)
        return count


def _entry_size(fields: list[bytes]) -> int:
    return ENTRY_OVERHEAD_BYTES + sum(map(len, fields))


def size_of(value: Any) -> int:
    """Return the approximate size of a value, in bytes."""
    if isinstance(value, Stream):
        return 200 + value.size_bytes
    if isinstance(value, bytes):
        return 64 + len(value)
    if isinstance(value, dict):
        return 128 + sum(32 + len(name) + len(content) for name, content in value.items())
    if isinstance(value, set):
        return 128 + sum(32 + len(member) for member in value)
    raise TypeError(type(value))


def format_id(entry_id: StreamId) -> bytes:
    return b"%d-%d" % entry_id


def parse_id(text: bytes, default_sequence: int = 0) -> StreamId:
    milliseconds, dash, sequence = text.partition(b"-")
    try:
        parsed = int(milliseconds), int(sequence) if dash else default_sequence
    except ValueError:
        parsed = (-1, -1)
    if not all(0 <= part <= MAX_SEQUENCE for part in parsed):
        raise ReplyError("ERR Invalid stream ID specified as stream command argument")
    return parsed


def encode_reply(reply: Any) -> bytes:
    """Return the RESP2 bytes of a reply."""
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if reply is None:
        return b"$-1\r\n"
    if isinstance(reply, Status):
        return b"+%b\r\n" % reply.text.encode()
    if isinstance(reply, ReplyError):
        return b"-%b\r\n" % str(reply).encode()
    if isinstance(reply, list):
        return b"*%d\r\n%b" % (len(reply), b"".join(map(encode_reply, reply)))
    raise TypeError(type(reply))
