"""Which list gets the answers to a request: found by the uid, for as long as the request lives.

The truth is `msgbus.backlog.<uid>` in Redis, with the protobuf body of rmb-peer 1.5 and a time to
live, so that answers find their way after a restart. What this process sent itself is in memory
too, and needs no look-up.
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
    """Its list."""
    reference: str | None
    """Its own name for the request."""
    deadline: int
    """Unix seconds."""


class Backlogs:
    """All programs that wait.

    Args:
        commits: the writing half of Redis.
    """

    def __init__(self, commits: Commits) -> None:
        self._commits = commits
        # A plain dict looks for its first entry longer and longer when those before it are gone.
        self._entries: OrderedDict[str, Waiting] = OrderedDict()

    def add(self, uid: str, waiting: Waiting) -> bytes:
        """Remembers who waits, here and in Redis; returns the body of the entry there."""
        entries = self._entries
        entries[uid] = waiting
        if len(entries) > BACKLOG_ENTRIES:
            entries.popitem(last=False)
        ttl_s = max(waiting.deadline - int(time.time()), 1)
        body = encode(uid, waiting, ttl_s)
        self._commits.add(command("SET", keys.backlog(uid), body, "EX", ttl_s))
        return body

    def peek(self, uid: str) -> Waiting | None:
        """Who waits, if that is in memory; None says nothing."""
        waiting = self._entries.get(uid)
        if waiting is not None and waiting.deadline <= time.time():
            del self._entries[uid]
            return None
        return waiting

    async def get(self, uid: str) -> Waiting | None:
        """Who waits; None: nobody does, or no longer. Waits for a Redis that is away."""
        found = await self._commits.ask("GET", keys.backlog(uid))
        return decode(found) if found is not None else None


def encode(uid: str, waiting: Waiting, ttl_s: int) -> bytes:
    """The body of a backlog entry."""
    body = Backlog(uid=uid, reference=waiting.reference, reply_to=waiting.ret, ttl=ttl_s)
    return body.SerializeToString()


def decode(body: bytes) -> Waiting | None:
    """Reads the body of a backlog entry; None: it is none."""
    try:
        found = Backlog.FromString(body)
    except DecodeError:
        return None
    reference = found.reference if found.HasField("reference") else None
    return Waiting(found.reply_to, reference, int(time.time()) + found.ttl)
