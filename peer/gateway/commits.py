"""All writes of the gateway to Redis, in batches that are applied exactly once, and in order.

All writes of one turn of the event loop become one MULTI/EXEC. Exactly one of these is unanswered
at a time; the next one fills meanwhile. Each sets `msgbus.committed` to its number. When a
connection ends with a batch unanswered, that number shows on the next connection whether the batch
was applied, so that an answer is neither pushed to a program twice nor lost. A batch that Redis
refuses (it is out of memory, or loads its data) is retried, without the messages in it that have
expired meanwhile. Half of those that are not sent yet move to the next batch, so that a large
message for which there is no room does not block smaller ones. A single list that Redis refuses
permanently (its user may not write there) is removed from the batch, and so is a request when Redis
has had no room for `ROOM_S`: the writes behind them continue.

A Redis that accepts writes and never answers is disconnected after `ANSWER_S`. It may still carry
out what was written to it, so every batch is bound to its connection: that watches
`msgbus.committed`, a new connection touches the key before it reads the number, and from then on
Redis discards what comes over the old one.

    add(command)  ->  MULTI ... SET msgbus.committed n, EXEC  ->  written()  ->  then()

An action that requires a record in Redis need not wait for Redis to confirm it: once the kernel has
a batch (`written`), Redis receives it even if this process ends. A large batch waits nevertheless,
because Redis may well have no room for it, and so do batches after one that was refused. Actions
performed by then are recorded by `lua/record.lua`, for which there is room. Otherwise a gateway
that ends at that point would send the messages again as new ones.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib import resources
from typing import Any, Final

import hiredis

from peer.gateway import keys
from peer.gateway.batch import TEMPORARY, Batch, Limited, Push, Then, Why
from peer.gateway.bounds import PIPE_BYTES
from redispipe.errors import LinkLost
from redispipe.pipe import RedisPipe
from redispipe.resp import Argument, command

log = logging.getLogger(__name__)

REFUSED_RETRY_S: Final = 0.5

ANSWER_S: Final = 10.0
"""Seconds that Redis may take to answer before the connection is given up.

A disk that is slow to sync takes seconds, and messages live for half an hour at most."""

ROOM_S: Final = 10.0
"""Seconds that a push that is not patient waits for a Redis that has no memory."""

MAX_EARLY_BYTES: Final = 1024 * 1024
"""Maximum size of a batch that counts as written before Redis has answered, in bytes."""

_MULTI: Final = command("MULTI")
_EXEC: Final = command("EXEC")
_WATCH: Final = command("WATCH", keys.COMMITTED)
_RECORD: Final = (
    resources.files("peer.gateway").joinpath("lua/record.lua").read_text(encoding="utf-8")
)


class Commits:
    """The writing half of the gateway's Redis connections.

    Args:
        url: URL of Redis.
        on_room: called when there is room again after `full`.
    """

    def __init__(self, url: str, on_room: Then | None = None) -> None:
        self.pipe = RedisPipe.to(url, "rmb-peer-writes", self._came_up)
        self.refused = 0  # number of batches that Redis refused
        self._on_room = on_room
        self._loop = asyncio.get_running_loop()  # looking it up each time costs a system call
        self._boot = uuid.uuid4().hex
        self._number = 0
        self._filling = Batch()
        self._late: list[Then] = []  # called before a batch is closed, to add what they gathered
        self._gathered_bytes = 0  # of what they gathered
        self._unanswered: Batch | None = None
        self._was_full = False
        self._scheduled = False
        self._retry: asyncio.TimerHandle | None = None  # of a batch that was refused
        self._limit: asyncio.TimerHandle | None = None  # timer that checks `_asked_at`
        self._asked_at: float | None = None  # loop time at which the unanswered batch was sent
        self._unread = False  # whether the last read was refused
        self._early = True  # whether the last batch was accepted
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def full(self) -> bool:
        """Whether so many writes wait that no more messages should be accepted."""
        waiting = self._gathered_bytes + self._filling.size_bytes
        if self._unanswered is not None:
            waiting += self._unanswered.size_bytes
        self._was_full = self._was_full or waiting > PIPE_BYTES
        return waiting > PIPE_BYTES

    def start(self) -> None:
        """Start to connect."""
        self.pipe.start()

    async def aclose(self, timeout_s: float) -> None:
        """Wait up to `timeout_s` seconds for pending writes, and close the connection."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            log.warning("ended with writes that Redis had not accepted")
        await self.pipe.close()

    def add(self, payload: bytes, then: Then | None = None, *, written: Then | None = None) -> None:
        """Write one encoded command at the end of this turn of the event loop.

        Args:
            payload: the command; its reply is ignored, except for an error, which is logged.
            then: called when the command is applied.
            written: called when the kernel has the command (see `MAX_EARLY_BYTES`), before or
                together with `then`.
        """
        batch = self._filling
        batch.commands.append(payload)
        batch.size_bytes += len(payload)
        if then is not None:
            batch.then.append(then)
        if written is not None:
            batch.written.append(written)
        self._schedule()

    def record_until(
        self, until: float, fields: list[str | bytes], written: Then, give_up: Then
    ) -> None:
        """Like `add`, for records of entries in hand: removed if Redis refuses them too long.

        Args:
            until: Unix time of the deadline, in seconds.
            fields: fields of `msgbus.processing`, each followed by its value; the first exists
                already.
            written: called when the kernel has the record.
            give_up: called instead when the record is removed.
        """
        payload = command("HSET", keys.PROCESSING, *fields)
        self._filling.limited.append(Limited(until, payload, written, give_up))
        self.add(payload, written=written)

    def push(
        self,
        queue: bytes,
        commands: Iterable[bytes],
        give_up: Callable[[Why], None],
        *,
        patient: bool,
    ) -> None:
        """Like `add`, for a list whose name others chose: removed if Redis refuses only this list.

        Args:
            queue: the list.
            commands: the encoded commands.
            give_up: called when the commands are removed.
            patient: whether they wait as long as Redis has no room; others wait for `ROOM_S`.
        """
        push = Push(queue, tuple(commands), patient, give_up)
        self._filling.pushes.append(push)
        for each in push.commands:
            self.add(each)

    def flush(self) -> None:
        """Write pending commands now instead of at the end of this turn, if possible."""
        if self._scheduled and self._unanswered is None:
            self._flush()

    def gather(self, late: Then) -> None:
        """Call `late` just before the next batch is closed, so that it can `add` what it gathered.

        These commands are in the same batch as everything that was added before.
        """
        self._late.append(late)
        self._schedule()

    def gathered(self, size_bytes: int) -> None:
        """Count bytes that were gathered and will be added later."""
        self._gathered_bytes += size_bytes

    async def applied(self) -> None:
        """Wait until everything that was added or gathered so far is applied."""
        future: asyncio.Future[None] = self._loop.create_future()

        def then() -> None:
            if not future.done():
                future.set_result(None)

        self._filling.then.append(then)
        self._schedule()
        await future

    async def ask(self, *arguments: Argument) -> Any:
        """Send a read command, repeatedly while Redis is unavailable or refuses it.

        After a refusal the command is sent on a new connection, which may lead to another server.
        """
        while True:
            await self.pipe.wait_usable()
            connection = self.pipe.connections
            try:
                async with asyncio.timeout(ANSWER_S):
                    found = await self.pipe.call(*arguments)
                self._unread = False
                return found
            except LinkLost:
                continue
            except TimeoutError:
                if self.pipe.connections == connection:
                    self._give_up()
                continue
            except hiredis.ReplyError as error:
                if not self._unread:
                    log.error("redis refused a read, it is tried again: %s", error)
                self._unread = True
            # Outside the exception handler: the compiled form must not await inside it.
            await asyncio.sleep(REFUSED_RETRY_S)
            if self.pipe.connections == connection:  # only once for all refused reads
                self.pipe.drop()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._idle.clear()
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        if self._unanswered is not None:
            self._scheduled = False
            return  # the next batch is written when the answer comes
        late, self._late, self._gathered_bytes = self._late, [], 0
        for each in late:
            each()
        self._scheduled = False
        if not self._filling.commands:
            _run(self._filling.then)
            self._idle.set()
            return
        self._unanswered, self._filling = self._filling, Batch()
        self._number += 1
        if self.pipe.usable:
            self._write()

    def _write(self, errors: dict[int, Exception] | None = None) -> None:
        """Write the unanswered batch.

        Args:
            errors: collects the errors of its commands, by their ids; passed after one was refused.
        """
        batch, loop = self._unanswered, self._loop
        assert batch is not None
        for give_up in batch.without_late(time.time()):
            loop.call_soon(give_up)
        mark = command("SET", keys.COMMITTED, f"{self._boot} {self._number}")
        parts = (_MULTI, *batch.commands, mark)
        # Redis answers each of the parts before EXEC.
        self._asked_at = loop.time()
        if self._limit is None:
            self._limit = loop.call_later(ANSWER_S, self._look_answered)
        if errors is None:
            payload = b"".join((*parts, _EXEC))
            self.pipe.submit(payload, self._answered, len(parts))
            if self._early and batch.written and len(payload) <= MAX_EARLY_BYTES:
                # Uvloop writes at the end of a turn.
                loop.call_soon(self._look_written, batch)
        else:
            for each in parts:
                self.pipe.submit(each, partial(_note, errors, id(each)))
            self.pipe.submit(_EXEC, partial(self._answered, errors=errors))
        self.pipe.submit(_WATCH, self._watched, at_once=True)

    def _look_written(self, batch: Batch) -> None:
        if self.pipe.flushed:
            _run(batch.written)

    def _look_answered(self) -> None:
        """Give up a connection whose answer is late; one timer serves many batches."""
        self._limit = None
        if self._asked_at is None:
            return
        left_s = self._asked_at + ANSWER_S - self._loop.time()
        if left_s > 0:
            self._limit = self._loop.call_later(left_s, self._look_answered)
        else:
            self._asked_at = None
            self._give_up()

    def _give_up(self) -> None:
        log.error("redis has not answered for %.0f s; connecting again", ANSWER_S)
        self.pipe.drop()

    def _watched(self, reply: Any) -> None:
        if isinstance(reply, hiredis.ReplyError):
            self.pipe.drop()  # the next batch would not be bound to the connection

    def _answered(self, reply: Any, errors: dict[int, Exception] | None = None) -> None:
        self._asked_at = None
        if isinstance(reply, LinkLost):
            return  # `_came_up` checks whether the batch was applied
        if reply is None:
            log.error("another gateway has connected to the same redis")
            self.pipe.drop()
            return
        if isinstance(reply, hiredis.ReplyError):
            self._refused(reply, errors)
            return
        batch = self._unanswered
        assert batch is not None
        failed = {
            id(sent): each
            for sent, each in zip(batch.commands, reply, strict=False)  # the mark is the last
            if isinstance(each, hiredis.ReplyError)
        }
        if failed:
            # The first command of a push adds the entries: the others are dispensable.
            forbidden = [push for push in batch.pushes if id(push.commands[0]) in failed]
            self._forbid(forbidden, failed)
            for push in forbidden:
                for each in push.commands:
                    failed.pop(id(each), None)
            for error in failed.values():
                log.error("redis could not do a write: %s", error)
        self._settle()

    def _refused(self, error: Exception, errors: dict[int, Exception] | None) -> None:
        """Handle a refusal: find the refused lists if it is permanent, else retry later."""
        batch = self._unanswered
        assert batch is not None
        self._early = False
        loop = self._loop
        if errors:
            forbidden = batch.without_forbidden(errors)
            error = next(iter(errors.values()))
            if forbidden:
                self._forbid(forbidden, errors)
                self._rewrite()
                return
        elif batch.pushes and errors is None and not str(error).startswith(TEMPORARY):
            self._write({})
            return
        self.refused += 1
        if self.refused == 1 or not self.refused % 100:
            log.error("redis refused a write, it is tried again: %s", error)
        if not str(error).startswith("OOM"):
            batch.no_room_since = None
        elif batch.no_room_since is None:
            batch.no_room_since = loop.time()
        self._record()
        self._retry = loop.call_later(REFUSED_RETRY_S, self._again)

    def _forbid(self, pushes: list[Push], errors: Mapping[int, Exception]) -> None:
        for push in pushes:
            error = next(errors[id(each)] for each in push.commands if id(each) in errors)
            name = push.queue.decode(errors="replace")
            log.error("Redis refuses writes to list %.80r: %s", name, error)
        _leave_out(pushes, Why.FORBIDDEN)

    def _record(self) -> None:
        """Record messages that were sent before the batch with their record was refused."""
        batch = self._unanswered
        assert batch is not None
        sent = [] if batch.recorded else batch.written_early()

        def recorded(reply: Any) -> None:
            batch.recorded = not isinstance(reply, Exception)  # else retried at the next refusal

        for payload in sent:
            reader = hiredis.Reader()
            reader.feed(payload)
            _, key, *fields = reader.gets()
            self.pipe.submit(command("EVAL", _RECORD, 1, key, *fields), recorded)

    def _again(self) -> None:
        """Write a refused batch again with less in it; if disconnected, `_came_up` does."""
        batch = self._unanswered
        assert batch is not None
        self._filling.put(batch.halve())
        now = self._loop.time()
        if batch.no_room_since is not None and now - batch.no_room_since >= ROOM_S:
            _leave_out(batch.without_impatient(), Why.NO_ROOM)
        self._rewrite()

    def _rewrite(self) -> None:
        batch = self._unanswered
        if batch is None:
            return
        if not batch.commands:  # all were removed: continue with the next batch
            self._filling.then[:0] = batch.then
            self._unanswered = None
            self._flush()
            self._tell_room()
        elif self.pipe.usable:
            self._write()

    def _settle(self) -> None:
        batch, self._unanswered = self._unanswered, None
        assert batch is not None
        self._early = True
        _run(batch.written)
        _run(batch.then)
        self._flush()
        self._tell_room()

    def _tell_room(self) -> None:
        if self._was_full and not self.full:
            self._was_full = False
            if self._on_room is not None:
                self._on_room()

    async def _came_up(self) -> None:
        """Check on a new connection whether the unanswered batch was applied."""
        # In this order: what the old connection still delivers is applied before, or discarded.
        await self.pipe.call("APPEND", keys.COMMITTED, b"")
        await self.pipe.call("WATCH", keys.COMMITTED)
        if self._unanswered is None:
            return
        if self._retry is not None:
            self._retry.cancel()
        found = await self.pipe.call("GET", keys.COMMITTED)
        loop = self._loop
        if found == f"{self._boot} {self._number}".encode():
            loop.call_soon(self._settle)
        else:
            loop.call_soon(self._write)


def _run(callbacks: list[Then]) -> None:
    """Call each callback once, and clear the list."""
    for each in callbacks:
        each()
    callbacks.clear()


def _note(errors: dict[int, Exception], part: int, reply: Any) -> None:
    """Store the reply of one command of a batch if it is an error."""
    if isinstance(reply, hiredis.ReplyError):
        errors[part] = reply


def _leave_out(pushes: list[Push], why: Why) -> None:
    """Call `give_up` of removed pushes at the end of this turn."""
    for each in pushes:
        asyncio.get_running_loop().call_soon(each.give_up, why)
