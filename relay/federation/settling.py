"""Settling: the outcome of a message is known, and its entry leaves the outbox.

What was accepted is gathered for a turn of the event loop and removed by one script. Every other
end of a message (dead letter, notice to its sender, its twin moved here) is one script of its own.
Both change nothing when they are run again, so what was not answered when the connection to Redis
broke is simply sent again.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from relay.federation import outbox, scripts
from relay.federation.dead_letters import MAX_LETTERS
from relay.federation.lane import Entry
from relay.queues import keys, resp
from relay.queues.pipe import LinkLost, RedisPipe

log = logging.getLogger(__name__)

MAX_SETTLED: Final = 512
"""Entries in one script: below a millisecond of Redis' time."""
MAX_DEAD_BYTES: Final = 64 << 20
"""Memory of all dead letters; above it the older half goes."""
REFUSED_AGAIN_S: Final = 1.0
"""Redis refused a script (it is loading, say): the next attempt."""
MAX_TRIES: Final = 32
TRIES_S: Final = 86_400


class Settler:
    """Settles the entries of one shard.

    Attributes:
        waiting: scripts that Redis has not answered.
    """

    def __init__(self, pipe: RedisPipe, shard: int, retention_s: int) -> None:
        """
        Args:
            pipe: for commands.
            shard: whose entries.
            retention_s: how long sessions' queues are kept.
        """
        self.waiting = 0
        self._pipe = pipe
        self._loop = asyncio.get_running_loop()
        self._shard = shard
        self._retention_s = retention_s
        self._stream = keys.outbox(shard)
        self._done: list[Entry] = []
        self._scheduled = False
        self._unanswered: list[bytes] = []
        self._quiet = asyncio.Event()
        self._quiet.set()

    def done(self, entry: Entry) -> None:
        """A message was accepted."""
        entry.over = True
        entry.payload = None
        self._done.append(entry)
        if not self._scheduled:
            self._scheduled = True
            self._quiet.clear()
            self._loop.call_soon(self._flush)

    def finish(
        self,
        entry: Entry,
        why: str = "",
        notice: bytes | None = None,
        deliver_to: str = "",
    ) -> None:
        """A message ends in another way.

        Args:
            entry: the message.
            why: reason, for a dead letter; empty for none.
            notice: envelope for its sender.
            deliver_to: text of the session key of this relay that gets the message.
        """
        entry.over = True
        names = [
            self._stream,
            keys.held(entry.account),
            keys.tries(self._shard, entry.id.decode()),
            keys.DEAD_LETTERS,
        ]
        self._send(
            scripts.call(
                "finish",
                names,
                entry.id,
                outbox.source_of(entry.origin),
                outbox.pack(1, entry.size_bytes),
                why,
                self._shard,
                MAX_LETTERS,
                MAX_DEAD_BYTES,
                entry.origin if notice is not None else "",
                notice or b"",
                deliver_to,
                2 * self._retention_s,
            )
        )

    def note_try(self, entries: list[Entry], document: str) -> None:
        """Keeps a failed try of some messages, for the pages."""
        names = []
        for entry in entries:
            entry.tried = True
            names.append(keys.tries(self._shard, entry.id.decode()))
        command = scripts.call("note_tries", names, document, MAX_TRIES, TRIES_S)
        self._pipe.submit(command, _ignore)

    def again(self) -> None:
        """The connection is there again: what was not answered is sent again."""
        commands, self._unanswered = self._unanswered, []
        for command in commands:
            self.waiting -= 1
            self._send(command)

    async def quiet(self) -> None:
        """Waits until everything is settled."""
        await self._quiet.wait()

    def _flush(self) -> None:
        self._scheduled = False
        done, self._done = self._done, []
        for first in range(0, len(done), MAX_SETTLED):
            self._settle(done[first : first + MAX_SETTLED])
        if not done and not self.waiting:
            self._quiet.set()

    def _settle(self, entries: list[Entry]) -> None:
        groups: dict[tuple[str, str], list[Entry]] = {}
        for entry in entries:
            group = (entry.account, entry.origin)
            found = groups.get(group)
            if found is None:
                groups[group] = [entry]
            else:
                found.append(entry)
        names = [self._stream]
        index: dict[str, int] = {}
        arguments: list[resp.Argument] = []
        for (account, origin), members in groups.items():
            at = index.get(account)
            if at is None:
                names.append(keys.held(account))
                at = index[account] = len(names)
            arguments += (at, outbox.source_of(origin), len(members))
            for entry in members:
                arguments += (entry.id, (entry.size_bytes << outbox.MESSAGE_BITS) + 1)
        self._send(scripts.call("settle", names, *arguments))
        tried = [keys.tries(self._shard, entry.id.decode()) for entry in entries if entry.tried]
        if tried:
            self._pipe.submit(resp.command("DEL", *tried), _ignore)

    def _send(self, command: bytes) -> None:
        self.waiting += 1
        self._quiet.clear()
        self._pipe.submit(command, lambda reply: self._answered(command, reply))

    def _answered(self, command: bytes, reply: Any) -> None:
        if isinstance(reply, LinkLost):
            self._unanswered.append(command)
            return
        if isinstance(reply, Exception):
            log.error("redis refused to settle messages of shard %d: %s", self._shard, reply)
            self._unanswered.append(command)
            self._loop.call_later(REFUSED_AGAIN_S, self.again)
            return
        self.waiting -= 1
        if not self.waiting and not self._scheduled:
            self._quiet.set()


def _ignore(reply: Any) -> None:
    """Tries are for the pages; the message itself is elsewhere."""
