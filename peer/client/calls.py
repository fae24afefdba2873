"""Requests that wait for answers, by the uid that their answers have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Protocol, TypeAlias

from peer.client.bodies import Reply
from peer.client.bounds import MAX_ANSWERS
from peer.errors import CallError, ExpiredError
from proto.rmb.address import Address

Outcome: TypeAlias = Reply | CallError


class Waiting(Protocol):
    """A caller that waits for the outcome of a request."""

    asked: Collection[Address]
    """Addresses to which the request was sent."""
    twins: Collection[int]
    """Ids of the twins whose answers are accepted."""
    timeout_s: float
    """Total time-out for the answers, in seconds."""

    def take(self, outcome: Outcome) -> None:
        """Process an answer."""

    def expire(self, why: str) -> None:
        """Stop waiting: no more answers will come."""


class Call:
    """Waits for the first answer of one twin."""

    __slots__ = ("asked", "future", "timeout_s", "twins")

    def __init__(self, asked: Address, timeout_s: float, loop: asyncio.AbstractEventLoop) -> None:
        self.asked: Collection[Address] = (asked,)
        self.twins: Collection[int] = (asked.twin,)
        self.timeout_s = timeout_s
        self.future: asyncio.Future[Reply] = loop.create_future()

    def take(self, outcome: Outcome) -> None:
        if self.future.done():
            return
        if isinstance(outcome, Reply):
            self.future.set_result(outcome)
        else:
            self.future.set_exception(outcome)

    def expire(self, why: str) -> None:
        self.take(ExpiredError(why))


class Asked:
    """Collects all answers of several twins until the request expires."""

    def __init__(self, asked: Collection[Address], timeout_s: float) -> None:
        self.asked = asked
        self.twins: Collection[int] = {each.twin for each in asked}
        self.timeout_s = timeout_s
        self.dropped = 0
        self._answers: asyncio.Queue[Outcome | None] = asyncio.Queue()

    def take(self, outcome: Outcome) -> None:
        if self._answers.qsize() >= MAX_ANSWERS:
            self._answers.get_nowait()
            self.dropped += 1
        self._answers.put_nowait(outcome)

    def expire(self, why: str) -> None:
        self._answers.put_nowait(None)

    async def next(self) -> Outcome | None:
        """Wait for the next answer; return None if there are no more."""
        return await self._answers.get()


class Calls:
    """All waiting requests of one session.

    Args:
        why: returns why a request has no answer, at the moment it expires.
        on_gone: called with the uid of a request that no longer waits.
    """

    def __init__(self, why: Callable[[Waiting], str], on_gone: Callable[[str], None]) -> None:
        self._why = why
        self._on_gone = on_gone
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, tuple[Waiting, asyncio.TimerHandle]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, uid: str, waiting: Waiting, timeout_s: float) -> None:
        """Add a caller that waits for up to `timeout_s` seconds."""
        timer = self._loop.call_later(timeout_s, self._expire, uid)
        self._waiting[uid] = (waiting, timer)

    def get(self, uid: str) -> Waiting | None:
        """Return the caller that waits for the answers with a uid, if any."""
        found = self._waiting.get(uid)
        return found[0] if found is not None else None

    def remove(self, uid: str) -> None:
        """Stop waiting; further calls have no effect."""
        found = self._waiting.pop(uid, None)
        if found is not None:
            found[1].cancel()
            self._on_gone(uid)

    def fail_all(self, error: CallError) -> None:
        """End all waiting requests with an error."""
        for uid in list(self._waiting):
            waiting, _ = self._waiting[uid]
            waiting.take(error)
            waiting.expire(str(error))
            self.remove(uid)

    def _expire(self, uid: str) -> None:
        waiting, _ = self._waiting[uid]
        self.remove(uid)
        waiting.expire(self._why(waiting))
