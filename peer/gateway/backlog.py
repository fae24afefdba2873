"""Look-up of the list that receives the answers to a request, by uid, while the request lives.

The authoritative record is `msgbus.backlog.<uid>` in Redis, with the protobuf body of rmb-peer 1.5
and a time to live, so that answers are delivered after a restart. Entries of requests that this
process sent are in memory too, and need no look-up.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import NamedTuple

from google.protobuf.message import DecodeError

from peer.gateway import keys
from peer.gateway.bounds import BACKLOG_ENTRIES
from peer.gateway.commits import Commits
from proto.rmb.peer_pb2 import Backlog
from redispipe.resp import command


class Waiting(NamedTuple):
    """A program that waits for answers."""

    ret: str
    """List on which the program waits."""
    reference: str | None
    """The program's own reference for the request."""
    deadline: int
    """Unix time at which the request expires, in seconds."""


class Backlogs:
    """All programs that wait for answers.

    Args:
        commits: the writing half of Redis.
    """

    def __init__(self, commits: Commits) -> None:
        self._commits = commits
        # A plain dict takes longer and longer to find its first entry as earlier ones are removed.
        self._entries: OrderedDict[str, Waiting] = OrderedDict()

    def add(self, uid: str, waiting: Waiting) -> bytes:
        """Record which program waits, in memory and in Redis; return the body for Redis."""
        entries = self._entries
        entries[uid] = waiting
        if len(entries) > BACKLOG_ENTRIES:
            entries.popitem(last=False)
        ttl_s = max(waiting.deadline - int(time.time()), 1)
        body = encode(uid, waiting, ttl_s)
        self._commits.add(command("SET", keys.backlog(uid), body, "EX", ttl_s))
        return body

    def peek(self, uid: str) -> Waiting | None:
        """Return the program that waits, if it is in memory; None does not mean that none waits."""
        waiting = self._entries.get(uid)
        if waiting is not None and waiting.deadline <= time.time():
            del self._entries[uid]
            return None
        return waiting

    async def get(self, uid: str) -> Waiting | None:
        """Return the program that waits, None if none does; wait while Redis is unavailable."""
        found = await self._commits.ask("GET", keys.backlog(uid))
        return decode(found) if found is not None else None


def encode(uid: str, waiting: Waiting, ttl_s: int) -> bytes:
    """Return the body of a backlog entry."""
    body = Backlog(uid=uid, reference=waiting.reference, reply_to=waiting.ret, ttl=ttl_s)
    return body.SerializeToString()


def decode(body: bytes) -> Waiting | None:
    """Parse the body of a backlog entry; return None if it is invalid."""
    try:
        found = Backlog.FromString(body)
    except DecodeError:
        return None
    reference = found.reference if found.HasField("reference") else None
    return Waiting(found.reply_to, reference, int(time.time()) + found.ttl)
