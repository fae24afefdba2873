"""The commands that put entries into the lists programs and services read."""

from __future__ import annotations

from peer.gateway import bodies, keys
from peer.gateway.bounds import MAX_QUEUE_ENTRIES, QUEUE_TTL_S, SEEN_ENTRIES
from peer.gateway.commits import Commits
from peer.modules.api import Request
from redispipe.resp import command


class QueueWrites:
    """Writes entries; the oldest above the bound are dropped, as clients expect.

    All entries of a list that come before the next batch is closed are one command in it.

    Args:
        commits: the writing half of Redis.
    """

    def __init__(self, commits: Commits) -> None:
        self._commits = commits
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
            self._push(queue, entries, MAX_QUEUE_ENTRIES)
            self._commits.add(command("EXPIRE", queue, QUEUE_TTL_S))
        for queue, entries in answers.items():
            self._push(queue, entries, MAX_QUEUE_ENTRIES)
            if not keys.is_own(queue):
                self._commits.add(command("EXPIRE", queue, QUEUE_TTL_S))
        if seen:
            self._push(keys.SEEN, seen, SEEN_ENTRIES)

    def _push(self, queue: bytes, entries: list[bytes], bound: int) -> None:
        self._commits.add(command("LPUSH", queue, *entries))
        self._commits.add(command("LTRIM", queue, 0, bound - 1))
