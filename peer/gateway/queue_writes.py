"""Commands that add entries to the lists that programs and services read."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from importlib import resources
from typing import Final

from peer.gateway import bodies, keys
from peer.gateway.batch import Why
from peer.gateway.bounds import MAX_QUEUE_ENTRIES, QUEUE_TTL_S, SEEN_ENTRIES
from peer.gateway.commits import Commits
from peer.modules.api import Request
from redispipe.resp import command

GiveUp = Callable[[Why], None]

_KEEP: Final = resources.files("peer.gateway").joinpath("lua/keep.lua").read_text(encoding="utf-8")


class QueueWrites:
    """Adds entries to lists; the oldest above the limit are dropped, as clients expect.

    All entries of a list that arrive before the next batch is closed are one command in it.

    Args:
        commits: the writing half of Redis.
        counters: counts of events, by name.
    """

    def __init__(self, commits: Commits, counters: Counter[str]) -> None:
        self._commits = commits
        self._counters = counters
        self._requests: dict[bytes, _Requests] = {}
        self._answers: dict[bytes, list[bytes]] = {}
        self._seen: list[bytes] = []
        self._gathered = False

    def request(
        self, request: Request, timestamp: int, expiration_s: int, give_up: GiveUp | None = None
    ) -> None:
        """Add a request to the list of its command.

        Args:
            request: the verified request.
            timestamp: timestamp of its envelope.
            expiration_s: expiration of its envelope, in seconds.
            give_up: called if it is not written after all; without it the request waits for room.
        """
        body = bodies.incoming_request(
            request.uid,
            request.source,
            request.command,
            request.payload,
            request.schema,
            request.tags,
            timestamp,
            expiration_s,
        )
        queue = keys.command(request.command)
        found = self._requests.get(queue)
        if found is None:
            found = self._requests[queue] = _Requests()
        found.entries.append(body)
        found.deadline = max(found.deadline, request.deadline)
        if give_up is None:
            found.patient = True
        else:
            found.give_ups.append(give_up)
        self._gather(len(body))

    def answer(self, ret: str, body: bytes) -> None:
        """Add an answer to the list of the program that waits; discard it if the list is ""."""
        if ret:
            self._answers.setdefault(ret.encode(), []).append(body)
            self._gather(len(body))

    def seen(self, signature: bytes) -> None:
        """Record the signature of a message whose entry is in the same batch."""
        self._seen.append(signature)
        self._gather(len(signature))

    async def applied(self) -> None:
        """Wait until Redis has all entries added so far."""
        await self._commits.applied()

    def _gather(self, size_bytes: int) -> None:
        self._commits.gathered(size_bytes)
        if not self._gathered:
            self._gathered = True
            self._commits.gather(self._write)

    def _write(self) -> None:
        self._gathered = False
        requests, self._requests = self._requests, {}
        answers, self._answers = self._answers, {}
        seen, self._seen = self._seen, []
        for queue, found in requests.items():
            life_s = min(max(found.deadline - int(time.time()), 1), QUEUE_TTL_S)
            commands = _pushed(queue, found.entries, MAX_QUEUE_ENTRIES)
            commands.append(command("EVAL", _KEEP, 1, queue, life_s))
            self._commits.push(queue, commands, found.give_up, patient=found.patient)
        for queue, entries in answers.items():
            commands = _pushed(queue, entries, MAX_QUEUE_ENTRIES)
            if not keys.is_own(queue):
                commands.append(command("EXPIRE", queue, QUEUE_TTL_S))
            self._commits.push(queue, commands, self._dropped(len(entries)), patient=True)
        if seen:
            for each in _pushed(keys.SEEN, seen, SEEN_ENTRIES):
                self._commits.add(each)

    def _dropped(self, count: int) -> GiveUp:
        def give_up(why: Why) -> None:
            self._counters["dropped:list"] += count

        return give_up


class _Requests:
    """Requests for one list."""

    __slots__ = ("deadline", "entries", "give_ups", "patient")

    def __init__(self) -> None:
        self.entries: list[bytes] = []
        self.deadline = 0  # the latest deadline, in Unix seconds
        self.give_ups: list[GiveUp] = []
        self.patient = False

    def give_up(self, why: Why) -> None:
        for each in self.give_ups:
            each(why)


def _pushed(queue: bytes, entries: list[bytes], bound: int) -> list[bytes]:
    """Return the commands that add entries to a list and keep the newest."""
    return [command("LPUSH", queue, *entries), command("LTRIM", queue, 0, bound - 1)]
