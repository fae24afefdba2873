"""Taking entries from a system list, so that a gateway that was killed finds them again.

Blocking commands remove entries without a trace, and a script cannot block. So each read is two
commands in one write: one that blocks until the list is not empty and changes nothing (`BLMOVE` of
its last entry to where it was), and `lua/take.lua`, which Redis runs as soon as the first is done.
While the list holds more than one step takes, the blocking command is omitted.

Redis moves entries into the hash `msgbus.processing`, each under a field that the gateway chose:

    <microseconds, 16 hex digits>-<uid>      sorts by age, and contains the uid of the message

A reply that was lost with its connection leaves entries there that are not being processed. `held`
lists the fields: the app checks them after each reconnect and at the start, and resumes what it
finds.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from importlib import resources
from typing import Any, Final

import hiredis

from peer.gateway import keys
from peer.gateway.bounds import TAKE_BYTES, TAKE_ENTRIES, TAKE_FIRST, WAIT_S
from peer.randomness import random_bytes
from proto.rmb.sealing import new_uid
from redispipe.pipe import RedisPipe
from redispipe.resp import command

log = logging.getLogger(__name__)

REQUEST: Final = b"r"
RESPONSE: Final = b"a"
SEALED: Final = b"s"
"""Kinds of values in `msgbus.processing`: unread requests, unread answers, and sealed messages."""

UID_AT: Final = 17  # in a field, after the time and a hyphen
UID_CHARS: Final = 36
_ANSWER_S: Final = 10.0  # time-out for the answer, in addition to the wait
_SPARE_S: Final = 1.0
MAX_FIELD_AGE_S: Final = math.ceil(WAIT_S + _ANSWER_S + _SPARE_S)
"""Maximum time from the creation of a field until an entry is under it, in seconds: one read."""

_REFUSED_PAUSE_S: Final = 0.5
_SCRIPT: Final = (
    resources.files("peer.gateway").joinpath("lua/take.lua").read_text(encoding="utf-8")
)

Taken = Callable[[str, bytes], None]
Ask = Callable[..., Awaitable[Any]]
"""Function that sends one command, given as its arguments, and returns the reply."""


class Fields:
    """Generator of fields of `msgbus.processing`, each later in order than all before."""

    def __init__(self) -> None:
        self._last_us = 0

    def make(self) -> str:
        """Return a new field, with a new uid in it."""
        self._last_us = max(self._last_us + 1, time.time_ns() // 1000)
        return f"{self._last_us:016x}-{new_uid(random_bytes)}"


def taken_before(field: str) -> int:
    """Return the Unix second before which the entry of a field was taken."""
    try:
        made_us = int(field[: UID_AT - 1], 16)
    except ValueError:
        made_us = 0
    return made_us // 1_000_000 + MAX_FIELD_AGE_S


def uid_of(field: str) -> str:
    """Return the uid in a field."""
    return field[UID_AT : UID_AT + UID_CHARS]


class SystemQueue:
    """Takes entries from one system list while it runs.

    Args:
        url: URL of Redis.
        queue: the list.
        kind: REQUEST or RESPONSE.
        fields: generator of fields, shared by all queues.
        on_taken: called with the field and the entry.
        on_read: called after each read that returned entries, and after `on_taken` for each.
        on_up: called on each new connection after the first.
    """

    def __init__(
        self,
        url: str,
        queue: bytes,
        kind: bytes,
        fields: Fields,
        on_taken: Taken,
        on_read: Callable[[], None],
        on_up: Callable[[], None],
    ) -> None:
        self.pipe = RedisPipe.to(url, f"rmb-peer-{queue.decode()}", self._came_up)
        self._queue = queue
        self._kind = kind
        self._fields = fields
        self._on_taken = on_taken
        self._on_read = on_read
        self._on_up = on_up
        self._spare: list[str] = []  # fields that are not used by an entry yet
        self._spare_since = 0.0  # loop time when the first of them was made
        self._asked: list[str] = []  # fields of the read in progress
        self._asked_at = 0.0  # loop time when it began
        self._loop = asyncio.get_running_loop()
        self._reading: asyncio.Future[None]  # done when no read is in progress
        self._ask = TAKE_FIRST  # maximum number of entries of the next read
        self._refused = False  # whether the last read was refused
        self._open = asyncio.Event()
        self._open.set()
        self._sha: bytes = b""
        self._wait = command("BLMOVE", queue, queue, "RIGHT", "RIGHT", str(WAIT_S))

    def pause(self) -> None:
        """Take no more entries until `resume`; those of a read in progress still come."""
        self._open.clear()

    def resume(self) -> None:
        """Continue to take entries."""
        self._open.set()

    @property
    def taking(self) -> bool:
        """Whether the queue is not paused."""
        return self._open.is_set()

    def asks(self, field: str) -> bool:
        """Return whether an entry with this field may be in an outstanding reply."""
        return field in self._asked

    async def run(self) -> None:
        """Take entries until cancelled; those of a read in progress then are found again later."""
        self.pipe.start()
        # Not `finally`: the compiled form must not await inside it.
        try:
            while True:
                await self._open.wait()
                await self.pipe.wait_usable()
                self._reading = self._loop.create_future()
                self._read(blocking=True)
                await self._read_on()
                if self._refused:
                    await asyncio.sleep(_REFUSED_PAUSE_S)
                    self.pipe.drop()  # a new connection loads the script again
        except BaseException as error:
            ended = error
        await self.pipe.close()
        raise ended

    async def _read_on(self) -> None:
        """Wait until no read is in progress any more; each read starts the next one.

        Raises:
            Exception: an exception that the owner raised for an entry.
        """
        reading = self._reading
        while not reading.done():
            left_s = self._asked_at + WAIT_S + _ANSWER_S - self._loop.time()
            if left_s > 0:
                await asyncio.wait((reading,), timeout=left_s)
            else:
                self.pipe.drop()
                await asyncio.wait((reading,))
        reading.result()

    def _read(self, *, blocking: bool) -> None:
        """Start one read."""
        now = self._asked_at = self._loop.time()
        if now - self._spare_since > _SPARE_S:
            self._spare = []  # a field records when its entry was taken
        ask, fields = self._ask, self._spare
        if not fields:
            self._spare_since = now
        fields.extend(self._fields.make() for _ in range(ask - len(fields)))
        asked = self._asked = fields[:ask]
        named = (self._queue, keys.PROCESSING)
        take = command("EVALSHA", self._sha, 2, *named, self._kind, TAKE_BYTES, *asked)
        payload, skip = (self._wait + take, 1) if blocking else (take, 0)
        self.pipe.submit(payload, self._answered, skip, at_once=True)

    def _answered(self, reply: Any) -> None:
        try:
            goes_on = self._take(reply)
        except Exception as error:
            self._reading.set_exception(error)
        else:
            if not goes_on:
                self._reading.set_result(None)

    def _take(self, reply: Any) -> bool:
        """Process the reply of a read and start the next one; return False if it did not start."""
        asked, self._asked = self._asked, []
        if isinstance(reply, Exception):
            # The fields may be in use: the next sweep finds entries under them.
            self._spare = []
            refused = isinstance(reply, hiredis.ReplyError)
            if refused and not self._refused:
                log.error("%s: redis refused to be read: %s", self._queue.decode(), reply)
            self._refused = refused
            return False
        self._refused = False
        ask, count = len(asked), len(reply)
        self._spare = self._spare[count:]
        self._ask = min(ask * 2, TAKE_ENTRIES) if count == ask else max(ask // 2, TAKE_FIRST)
        for field, entry in zip(asked, reply, strict=False):
            self._on_taken(field, entry)
        if count:
            self._on_read()
        if not self._open.is_set():
            return False
        self._read(blocking=count < ask)
        return True

    async def _came_up(self) -> None:
        self._sha = await self.pipe.call("SCRIPT", "LOAD", _SCRIPT)
        if self.pipe.connections:
            self._on_up()


async def held(ask: Ask) -> list[str]:
    """Return the fields of everything in hand, oldest first."""
    found: list[bytes] = await ask("HKEYS", keys.PROCESSING)
    return sorted(field.decode() for field in found)


async def value(ask: Ask, field: str) -> bytes | None:
    """Return the value in hand under a field; None if it was settled meanwhile."""
    found: Any = await ask("HGET", keys.PROCESSING, field)
    return found if found is None else bytes(found)
