"""Settling: once the outcome of a message is known, its entry is removed from the outbox.

Accepted messages are gathered for a moment, and as long as the previous script is unanswered, then
removed by one script. Every other end of a message (dead letter, notice to its sender, its twin
moved here) takes a script of its own. Running either script again changes nothing, so scripts that
were not answered when the connection to Redis broke are simply sent again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Any, Final, NamedTuple

from redispipe import resp
from redispipe.errors import LinkLost
from redispipe.pipe import RedisPipe
from relay.federation import outbox, scripts
from relay.federation.dead_letters import MAX_LETTERS
from relay.federation.lane import Entry
from relay.queues import keys
from relay.queues.held import pack

log = logging.getLogger(__name__)

MAX_SETTLED: Final = 512
"""Maximum number of entries in one script, which takes Redis less than a millisecond."""
GATHER_S: Final = 0.002
"""Seconds for which accepted messages are gathered. Settling is not urgent, and when an answer
arrives Redis and this process have the next message to handle."""
MAX_DEAD_BYTES: Final = 64 << 20
"""Maximum memory of all dead letters, in bytes; above it the older half is removed."""
REFUSED_AGAIN_S: Final = 1.0
"""Seconds until the next attempt after Redis refused a script, for example while it is loading."""
TRIES_S: Final = 86_400


class Settler:
    """Settles entries of the shards of one process."""

    def __init__(self, pipe: RedisPipe, retention_s: int) -> None:
        """
        Args:
            pipe: connection for commands.
            retention_s: seconds for which sessions' queues are kept.
        """
        self._pipe = pipe
        self._loop = asyncio.get_running_loop()
        self._retention_s = retention_s
        self._done: list[tuple[int, Entry]] = []
        self._waiting: Counter[int] = Counter()  # unsettled entries by shard
        self._unanswered: list[_Script] = []
        self._settling = 0  # unanswered scripts for accepted messages
        self._settled = asyncio.Event()

    def done(self, shard: int, entry: Entry) -> None:
        """Settle a message that was accepted."""
        entry.over = True
        if not self._done and not self._settling:
            self._loop.call_later(GATHER_S, self._flush)
        self._done.append((shard, entry))
        self._waiting[shard] += 1

    def finish(
        self,
        shard: int,
        entry: Entry,
        why: str = "",
        notice: bytes | None = None,
        deliver_to: str = "",
    ) -> None:
        """Settle a message that ends in another way.

        Args:
            shard: shard of the message.
            entry: the message.
            why: reason, if it becomes a dead letter; otherwise empty.
            notice: envelope for its sender.
            deliver_to: text of the session key of this relay that gets the message.
        """
        entry.over = True
        names = [
            keys.outbox(shard),
            keys.held(entry.account),
            keys.tries(shard, entry.id.decode()),
            keys.DEAD_LETTERS,
        ]
        command = scripts.call(
            "finish",
            names,
            entry.id,
            outbox.source_of(entry.origin),
            pack(1, entry.size_bytes),
            why,
            shard,
            MAX_LETTERS,
            MAX_DEAD_BYTES,
            entry.origin if notice is not None else "",
            notice or b"",
            deliver_to,
            2 * self._retention_s,
        )
        self._waiting[shard] += 1
        self._send(_Script(command, Counter({shard: 1}), False))

    def note_try(self, shard: int, entries: list[Entry], document: str) -> None:
        """Record a failed attempt of some messages, to be shown on pages."""
        names = []
        for entry in entries:
            entry.tried = True
            names.append(keys.tries(shard, entry.id.decode()))
        command = scripts.call("note_tries", names, document, outbox.MAX_TRIES, TRIES_S)
        self._pipe.submit(command, _ignore)

    def again(self) -> None:
        """Send unanswered scripts again, now that the connection is back."""
        unanswered, self._unanswered = self._unanswered, []
        for script in unanswered:
            self._send(script)

    def waiting(self, shard: int) -> int:
        """Return the number of a shard's messages whose settling was not answered."""
        return self._waiting[shard]

    async def quiet(self, shard: int) -> None:
        """Wait until all messages of a shard are settled."""
        while self._waiting[shard]:
            self._settled.clear()
            await self._settled.wait()

    def _flush(self) -> None:
        done, self._done = self._done, []
        for first in range(0, len(done), MAX_SETTLED):
            self._settle(done[first : first + MAX_SETTLED])

    def _settle(self, done: list[tuple[int, Entry]]) -> None:
        groups: dict[tuple[int, str], list[resp.Argument]] = {}
        tried: list[str] = []
        for shard, entry in done:
            group = groups.get((shard, entry.account))
            if group is None:
                group = groups[shard, entry.account] = []
            source = outbox.source_of(entry.origin)
            group += (entry.id, source, pack(1, entry.size_bytes))
            if entry.tried:
                tried.append(keys.tries(shard, entry.id.decode()))
        index: dict[str, int] = {}
        counts: Counter[int] = Counter()
        arguments: list[resp.Argument] = []
        for (shard, account), entries in groups.items():
            stream = index.setdefault(keys.outbox(shard), len(index) + 1)
            held = index.setdefault(keys.held(account), len(index) + 1)
            count = len(entries) // 3
            counts[shard] += count
            arguments += (stream, held, count, *entries)
        self._settling += 1
        self._send(_Script(scripts.call("settle", list(index), *arguments), counts, True))
        if tried:
            self._pipe.submit(resp.command("DEL", *tried), _ignore)

    def _send(self, script: _Script) -> None:
        self._pipe.submit(script.command, lambda reply: self._answered(script, reply))

    def _answered(self, script: _Script, reply: Any) -> None:
        if isinstance(reply, Exception):
            self._unanswered.append(script)
            if not isinstance(reply, LinkLost):
                log.error("redis refused to settle messages: %s", reply)
                self._loop.call_later(REFUSED_AGAIN_S, self.again)
            return
        self._waiting.subtract(script.counts)
        self._settled.set()
        if script.accepted:
            self._settling -= 1
            if self._done and not self._settling:
                self._flush()


class _Script(NamedTuple):
    """One run of a script.

    Attributes:
        command: encoded command.
        counts: number of messages it settles, by shard.
        accepted: whether they were accepted.
    """

    command: bytes
    counts: Counter[int]
    accepted: bool


def _ignore(reply: Any) -> None:
    """Ignore the reply: attempts are only shown on pages."""
