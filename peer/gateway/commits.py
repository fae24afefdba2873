"""Everything the gateway writes to Redis: in batches that are applied once, and in order.

What one turn of the loop wants written becomes one MULTI/EXEC, and exactly one of them is
unanswered at a time; the next fills meanwhile. Each sets `msgbus.committed` to its number. When a
connection ends with a batch unanswered, that number tells on the next one whether it was applied,
so that an answer is not pushed to a program twice, and nothing is left out. A batch that Redis
refuses (it is out of memory, or loads its data) is tried again, without the messages in it that
have expired meanwhile; half of those that are not sent yet go into the next one, so that a large
one, for which there is no room, does not hold up what there is room for.

A Redis that accepts and never answers is left after `ANSWER_S`. What was written to it may still be
carried out, so every batch is bound to its connection: that watches `msgbus.committed`, a new one
touches the key before it reads the number, and from then on Redis voids what comes by the old one.

    add(command)  ->  MULTI ... SET msgbus.committed n, EXEC  ->  written()  ->  then()

What is to happen only when something is on record need not wait for Redis to say so: once the
kernel has a batch (`written`), the end of this process no longer keeps it from Redis. A large batch
waits all the same: that Redis has no room for it is likely enough to be worth knowing first. So do
those after one that was refused. What had happened by then is put on record by `lua/record.lua`,
for which there is room, or a gateway that ends now would send it again as something new.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable
from importlib import resources
from typing import Any, Final, NamedTuple

import hiredis

from peer.gateway import keys
from peer.gateway.bounds import PIPE_BYTES
from redispipe.pipe import LinkLost, RedisPipe
from redispipe.resp import Argument, command

log = logging.getLogger(__name__)

REFUSED_RETRY_S: Final = 0.5

ANSWER_S: Final = 10.0
"""How long Redis may take to answer; then the connection is given up. A disk that is slow to sync
takes seconds, and half an hour is what the messages have at most."""

MAX_EARLY_BYTES: Final = 1024 * 1024
"""Of a batch that counts as written before Redis has answered."""

_MULTI: Final = command("MULTI")
_EXEC: Final = command("EXEC")
_WATCH: Final = command("WATCH", keys.COMMITTED)
_RECORD: Final = (
    resources.files("peer.gateway").joinpath("lua/record.lua").read_text(encoding="utf-8")
)

Then = Callable[[], None]


class _Limited(NamedTuple):
    """A record that makes no sense later."""

    until: float  # unix seconds
    payload: bytes  # HSET
    written: Then
    give_up: Then


class _Batch:
    """Commands of one MULTI, and what is to be done when they are written, and applied."""

    __slots__ = ("commands", "limited", "put_first", "recorded", "size_bytes", "then", "written")

    def __init__(self) -> None:
        self.commands: list[bytes] = []
        self.limited: list[_Limited] = []
        self.put_first = 0  # limited commands of batches before, at the front
        self.written: list[Then] = []
        self.then: list[Then] = []
        self.size_bytes = 0
        self.recorded = False  # what was written early is in Redis, although it refused the batch

    def written_early(self) -> list[bytes]:
        """The limited commands whose `written` was called."""
        unwritten = self._unwritten()
        return [each.payload for each in self.limited if id(each.written) not in unwritten]

    def without_late(self, now: float) -> list[Then]:
        """Takes out the commands whose time is over; returns what gives them up."""
        late = [each for each in self.limited if each.until <= now]
        unwritten = self._unwritten()
        self._take_out(late)
        return [each.give_up for each in late if id(each.written) in unwritten]

    def halve(self) -> list[_Limited]:
        """Takes out the later half of the limited commands that the kernel never had.

        What depends on one of the others may be under way: it must not be written before that.
        """
        unwritten = self._unwritten()
        waiting = [each for each in self.limited if id(each.written) in unwritten]
        found = waiting[len(waiting) // 2 :]
        self._take_out(found)
        return found

    def put(self, found: list[_Limited]) -> None:
        """Takes in what was taken out of the batch before: in front of all but such."""
        at = self.put_first
        self.limited[at:at] = found
        self.commands[at:at] = [each.payload for each in found]
        self.written += [each.written for each in found]
        self.size_bytes += sum(len(each.payload) for each in found)
        self.put_first += len(found)

    def _unwritten(self) -> set[int]:
        return set(map(id, self.written))  # the others were called: the kernel had the command

    def _take_out(self, found: list[_Limited]) -> None:
        out = {id(part) for each in found for part in (each, each.payload, each.written)}
        self.limited = [each for each in self.limited if id(each) not in out]
        self.commands = [each for each in self.commands if id(each) not in out]
        self.written = [each for each in self.written if id(each) not in out]
        self.size_bytes -= sum(len(each.payload) for each in found)


class Commits:
    """The writing half of the gateway's Redis.

    Args:
        url: of Redis.
        on_room: called when there is room again after `full`.
    """

    def __init__(self, url: str, on_room: Then | None = None) -> None:
        self.pipe = RedisPipe.to(url, "rmb-peer-writes", self._came_up)
        self.refused = 0  # batches Redis did not take
        self._on_room = on_room
        self._boot = uuid.uuid4().hex
        self._number = 0
        self._filling = _Batch()
        self._late: list[Then] = []  # add what they gathered just before a batch is closed
        self._gathered_bytes = 0  # of what they gathered
        self._unanswered: _Batch | None = None
        self._was_full = False
        self._scheduled = False
        self._retry: asyncio.TimerHandle | None = None  # of a batch that was refused
        self._limit: asyncio.TimerHandle | None = None  # of the batch that is unanswered
        self._unread = False  # the last thing that was asked was refused
        self._early = True  # the last batch was not refused
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def full(self) -> bool:
        """Whether so much waits that nothing more should be taken in."""
        waiting = self._gathered_bytes + self._filling.size_bytes
        if self._unanswered is not None:
            waiting += self._unanswered.size_bytes
        self._was_full = self._was_full or waiting > PIPE_BYTES
        return waiting > PIPE_BYTES

    def start(self) -> None:
        """Begins to connect."""
        self.pipe.start()

    async def aclose(self, timeout_s: float) -> None:
        """Waits for what is not written yet, and ends."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            log.warning("ended with writes that redis did not take")
        await self.pipe.close()

    def add(self, payload: bytes, then: Then | None = None, *, written: Then | None = None) -> None:
        """Has one encoded command written at the end of this turn.

        Args:
            payload: the command; its reply is not looked at, except for an error, which is logged.
            then: called when it is applied.
            written: called when the kernel has it (see `MAX_EARLY_BYTES`), before or together with
                `then`.
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
        """As `add`, for what is in hand: what Redis refuses until then is left out.

        Args:
            until: unix seconds.
            fields: of `msgbus.processing`, each with its value; the first is there already.
            written: called when the kernel has it.
            give_up: called instead when it is left out.
        """
        payload = command("HSET", keys.PROCESSING, *fields)
        self._filling.limited.append(_Limited(until, payload, written, give_up))
        self.add(payload, written=written)

    def gather(self, late: Then) -> None:
        """Has `late` called just before the next batch is closed, to `add` what it gathered.

        What it adds is in the same batch as all that was added before.
        """
        self._late.append(late)
        self._schedule()

    def gathered(self, size_bytes: int) -> None:
        """Takes note that so much more waits to be added."""
        self._gathered_bytes += size_bytes

    async def applied(self) -> None:
        """Returns when all that was added or gathered so far is applied."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def then() -> None:
            if not future.done():
                future.set_result(None)

        self._filling.then.append(then)
        self._schedule()
        await future

    async def ask(self, *arguments: Argument) -> Any:
        """Reads something, as often as it takes: redis may be away, or refuse it for a while.

        After a refusal it is asked on a new connection, which may lead to another server.
        """
        while True:
            await self.pipe.wait_usable()
            connection = self.pipe.connections
            try:
                async with asyncio.timeout(ANSWER_S):
                    found = await self.pipe.call(*arguments)
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
                await asyncio.sleep(REFUSED_RETRY_S)
                if self.pipe.connections == connection:  # once for all that were refused
                    self.pipe.drop()
                continue
            self._unread = False
            return found

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._idle.clear()
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        if self._unanswered is not None:
            self._scheduled = False
            return  # its answer writes the next
        late, self._late, self._gathered_bytes = self._late, [], 0
        for each in late:
            each()
        self._scheduled = False
        if not self._filling.commands:
            _run(self._filling.then)
            self._idle.set()
            return
        self._unanswered, self._filling = self._filling, _Batch()
        self._number += 1
        if self.pipe.usable:
            self._write()

    def _write(self) -> None:
        batch = self._unanswered
        assert batch is not None
        for give_up in batch.without_late(time.time()):
            asyncio.get_running_loop().call_soon(give_up)
        mark = command("SET", keys.COMMITTED, f"{self._boot} {self._number}")
        payload = b"".join((_MULTI, *batch.commands, mark, _EXEC))
        # MULTI, each command and the mark are answered before EXEC is.
        self._limit = asyncio.get_running_loop().call_later(ANSWER_S, self._give_up)
        self.pipe.submit(payload, self._answered, len(batch.commands) + 2)
        self.pipe.submit(_WATCH, self._watched, at_once=True)
        if self._early and batch.written and len(payload) <= MAX_EARLY_BYTES:
            # Uvloop writes at the end of a turn.
            asyncio.get_running_loop().call_soon(self._look_written, batch)

    def _look_written(self, batch: _Batch) -> None:
        if self.pipe.flushed:
            _run(batch.written)

    def _give_up(self) -> None:
        log.error("redis has not answered for %.0f s, it is connected to anew", ANSWER_S)
        self.pipe.drop()

    def _watched(self, reply: Any) -> None:
        if isinstance(reply, hiredis.ReplyError):
            self.pipe.drop()  # the next batch would not be bound to the connection

    def _answered(self, reply: Any) -> None:
        if self._limit is not None:
            self._limit.cancel()
        if isinstance(reply, LinkLost):
            return  # `_came_up` finds out
        if reply is None:
            log.error("another gateway has connected to the same redis")
            self.pipe.drop()
            return
        if isinstance(reply, hiredis.ReplyError):
            self.refused += 1
            if self.refused == 1 or not self.refused % 100:
                log.error("redis refused a write, it is tried again: %s", reply)
            self._early = False
            self._record()
            self._retry = asyncio.get_running_loop().call_later(REFUSED_RETRY_S, self._again)
            return
        for each in reply:
            if isinstance(each, hiredis.ReplyError):
                log.error("redis could not do a write: %s", each)
        self._settle()

    def _record(self) -> None:
        """Puts on record what was sent before the batch with the record of it was refused."""
        batch = self._unanswered
        assert batch is not None
        sent = [] if batch.recorded else batch.written_early()

        def recorded(reply: Any) -> None:
            batch.recorded = not isinstance(reply, Exception)  # else with the next refusal

        for payload in sent:
            reader = hiredis.Reader()
            reader.feed(payload)
            _, key, *fields = reader.gets()
            self.pipe.submit(command("EVAL", _RECORD, 1, key, *fields), recorded)

    def _again(self) -> None:
        """Writes a refused batch again, with less in it; without a connection the next one does."""
        batch = self._unanswered
        assert batch is not None
        self._filling.put(batch.halve())
        if not batch.commands:  # what came meanwhile is tried together with it
            self._filling.then[:0] = batch.then
            self._unanswered = None
            self._flush()
        elif self.pipe.usable:
            self._write()

    def _settle(self) -> None:
        batch, self._unanswered = self._unanswered, None
        assert batch is not None
        self._early = True
        _run(batch.written)
        _run(batch.then)
        self._flush()
        if self._was_full and not self.full:
            self._was_full = False
            if self._on_room is not None:
                self._on_room()

    async def _came_up(self) -> None:
        """On a new connection: was the batch that was unanswered applied?"""
        # In this order: what an old connection still brings is applied before, or void.
        await self.pipe.call("APPEND", keys.COMMITTED, b"")
        await self.pipe.call("WATCH", keys.COMMITTED)
        if self._unanswered is None:
            return
        if self._retry is not None:
            self._retry.cancel()
        found = await self.pipe.call("GET", keys.COMMITTED)
        loop = asyncio.get_running_loop()
        if found == f"{self._boot} {self._number}".encode():
            loop.call_soon(self._settle)
        else:
            loop.call_soon(self._write)


def _run(callbacks: list[Then]) -> None:
    """Calls each, and no one twice."""
    for each in callbacks:
        each()
    callbacks.clear()
