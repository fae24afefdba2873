"""The commands that put entries into the lists programs and services read."""

from __future__ import annotations

from collections import Counter

from peer.gateway import bodies, keys
from peer.gateway.batch import Why
from peer.gateway.bounds import MAX_QUEUE_ENTRIES, QUEUE_TTL_S, SEEN_ENTRIES
from peer.gateway.commits import Commits
from peer.modules.api import Request
from redispipe.resp import command


class QueueWrites:
    """Writes entries; the oldest above the bound are dropped, as clients expect.

    All entries of a list that come before the next batch is closed are one command in it.

    Args:
        commits: the writing half of Redis.
        counters: what happened, by name.
    """

    def __init__(self, commits: Commits, counters: Counter[str]) -> None:
        self._commits = commits
        self._counters = counters
        self._requests: dict[bytes, list[bytes]] = {}
        self._answers: dict[bytes, list[bytes]] = {}
        self._seen: list[bytes] = []
        self._gathered = False

    def request(self, request: Request, timestamp: int, expiration_s: int) -> None:
        """Gives a request to whoever serves its command."""
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
        self._requests.setdefault(keys.command(request.command), []).append(body)
        self._gather(len(body))

    def answer(self, ret: str, body: bytes) -> None:
        """Gives an answer to the program that waits at a list; nobody waits at ""."""
        if ret:
            self._answers.setdefault(ret.encode(), []).append(body)
            self._gather(len(body))

    def seen(self, signature: bytes) -> None:
        """Keeps the signature of a message whose entry is in the same batch."""
        self._seen.append(signature)
        self._gather(len(signature))

    async def applied(self) -> None:
        """Returns when Redis has all that was given so far."""
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
        for queue, entries in requests.items():
            self._push(queue, entries, expires=True)
        for queue, entries in answers.items():
            self._push(queue, entries, expires=not keys.is_own(queue))
        if seen:
            for each in _pushed(keys.SEEN, seen, SEEN_ENTRIES):
                self._commits.add(each)

    def _push(self, queue: bytes, entries: list[bytes], expires: bool) -> None:
        commands = _pushed(queue, entries, MAX_QUEUE_ENTRIES)
        if expires:
            commands.append(command("EXPIRE", queue, QUEUE_TTL_S))

        def give_up(why: Why) -> None:
            self._counters["dropped:list"] += len(entries)

        self._commits.push(queue, commands, give_up, patient=True)


def _pushed(queue: bytes, entries: list[bytes], bound: int) -> list[bytes]:
    """The commands that put entries into a list, and keep its newest."""
    return [command("LPUSH", queue, *entries), command("LTRIM", queue, 0, bound - 1)]
