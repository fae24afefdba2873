"""Continuous measurement of the rates of a worker's sessions and queues, published in Redis.

Sessions count their messages and bytes anyway; a queue also counts the messages stored in it. A
worker reads the counters of each session once per window: the rate is their growth divided by the
time that really passed. The readings are spread over the ticks of the worker, and each tick sends
the changes to Redis in a few commands, so that 50,000 idle sessions cause none. A message costs
nothing but its counters.

    relay:rates:<boot id>    <session key>          -> rates of a session that this worker holds
                             sbd:<key>              -> rates of an SBD connection
                             stream:<session key>   -> rate of a queue that it fills for another

The hash contains active sessions and queues only, and expires after its worker. Sites read it
(`relay.sessions.published_rates`).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from redispipe import resp
from relay.queues import keys

if TYPE_CHECKING:
    from relay.queues.destination import Destination
    from relay.sbd.connection import Connection
    from relay.sessions.session import Session
    from relay.sessions.worker import Worker

WINDOW_S: Final = 2
"""Seconds over which rates are measured: a load that begins in one window is shown in full after
the next one."""
LIFE_S: Final = 5 * WINDOW_S
"""Seconds after which the rates of a stopped worker expire; it renews them once per window."""
PARTS: Final = 16
"""Ticks that share the readings of a window; a window has a few more, to allow for late ones."""
PART: Final = 250
"""Minimum number of sessions read in one tick."""

_PACKED: Final = struct.Struct("<Q5f")


class Rates(NamedTuple):
    """Rates per second.

    Attributes:
        messages_in, bytes_in: from the client of a session.
        messages_out, bytes_out: to the client.
        stored: messages stored in its queue.
    """

    messages_in: float = 0.0
    messages_out: float = 0.0
    bytes_in: float = 0.0
    bytes_out: float = 0.0
    stored: float = 0.0


Packed = tuple[int, float, float, float, float, float]
"""Epoch of a connection, and `Rates`; the epoch is 0 if the session is not held."""


def pack(epoch: int, rates: tuple[float, ...]) -> bytes:
    """Encode the value of a field."""
    return _PACKED.pack(epoch, *rates)


def unpack(value: bytes) -> Packed | None:
    """Decode the value of a field; return None if another program wrote it."""
    return _PACKED.unpack(value) if len(value) == _PACKED.size else None


class RateMeter:
    """The rates of one worker.

    Attributes:
        filled: queues with recent messages that were not delivered from memory; values are unused.
        peers: SBD connections by key.
    """

    def __init__(self, worker: Worker) -> None:
        self.filled: dict[Destination, object] = {}
        self.peers: Mapping[bytes, Connection] = {}
        self._worker = worker
        self._name = keys.rates(worker.boot_id)
        self._round_at = worker.loop.time()  # start of this round of readings
        self._round_s = float(WINDOW_S)  # from the start of the previous round to that of this one
        self._part = PART
        self._sessions: list[Session] = []  # to be read in this round
        self._peers: list[Connection] = []
        self._queues: list[Destination] = []
        self._filling: dict[bytes, None] = {}  # fields of the queues in this round
        self._seen: dict[Session | Connection, list[float]] = {}  # time, and counters then
        self._published: dict[str | bytes, bytes] = {}
        self._changed: dict[str | bytes, bytes] = {}
        self._gone: dict[str | bytes, None] = {}
        self._begins = True  # the content of the hash is unknown

    def tick(self, now: float) -> None:
        """Read the counters of the next sessions and queues, and publish what changed.

        Args:
            now: loop time.
        """
        left = self._sessions or self._queues or self._peers
        if not left and now - self._round_at >= WINDOW_S:
            self._begin_round(now)
        for session in _taken(self._sessions, self._part):
            self._read(session, now)
        for peer in _taken(self._peers, self._part):
            if peer.epoch and not peer.ended:
                self._compare(peer, peer.text, 0, now)
        for queue in _taken(self._queues, self._part):
            self._read_queue(queue)
        if self._changed or self._gone:
            self._publish()

    def ended(self, session: Session) -> None:
        """Forget the rates of a session that has ended."""
        self._seen.pop(session, None)
        if session.destination.session is None:
            session.destination.stored = 0
            self._remove(session.destination.text)

    def peer_ended(self, peer: Connection) -> None:
        """Forget the rates of an SBD connection that has ended."""
        if self._seen.pop(peer, None) is not None:
            self._remove(peer.text)

    def _begin_round(self, now: float) -> None:
        worker = self._worker
        self._round_s = now - self._round_at
        self._round_at = now
        self._sessions = list(worker.sessions)
        self._peers = list(self.peers.values())
        queues, self.filled = self.filled, {}
        self._queues = [each for each in queues if each.session is None and each.stored]
        longest = max(len(self._sessions), len(self._queues), len(self._peers))
        self._part = max(PART, -(-longest // PARTS))
        filling = dict.fromkeys(each.stream for each in self._queues)
        for field in self._filling:
            if field not in filling:
                self._remove(field)
        self._filling = filling
        if self._published:
            self._ask(self._renewed, "EXPIRE", self._name, LIFE_S)

    def _read(self, session: Session, now: float) -> None:
        if session.end_reason is not None or not session.epoch:
            return
        destination = session.destination
        stored, destination.stored = destination.stored, 0
        self._compare(session, destination.text, stored, now)

    def _compare(self, session: Session | Connection, text: str, stored: int, now: float) -> None:
        """Publish the growth of a session's counters since its last reading."""
        messages_in, messages_out = session.messages_in, session.messages_out
        seen = self._seen.get(session)
        if seen is None:
            counted = [now, messages_in, messages_out, session.bytes_in, session.bytes_out]
            self._seen[session] = counted
            self._remove(text)  # of the previous connection
            return
        at, before_in, before_out, bytes_in, bytes_out = seen
        seen[0] = now
        if messages_in == before_in and messages_out == before_out and not stored:
            if text in self._published:
                self._remove(text)
            return
        seen[1:] = messages_in, messages_out, session.bytes_in, session.bytes_out
        elapsed_s = now - at
        rates = (
            (messages_in - before_in) / elapsed_s,
            (messages_out - before_out) / elapsed_s,
            (session.bytes_in - bytes_in) / elapsed_s,
            (session.bytes_out - bytes_out) / elapsed_s,
            stored / elapsed_s,
        )
        self._set(text, pack(session.epoch, rates))

    def _read_queue(self, queue: Destination) -> None:
        stored, queue.stored = queue.stored, 0
        self._set(queue.stream, pack(0, Rates(stored=stored / self._round_s)))

    def _set(self, field: str | bytes, value: bytes) -> None:
        if self._published.get(field) != value:
            self._published[field] = self._changed[field] = value
            self._gone.pop(field, None)

    def _remove(self, field: str | bytes) -> None:
        if self._published.pop(field, None) is not None:
            self._changed.pop(field, None)
            self._gone[field] = None

    # --- Redis --------------------------------------------------------------------------------

    def _publish(self) -> None:
        if not self._worker.commit.pipe.usable:
            self._lost()
            return
        if self._begins:
            self._begins = False
            self._ask(self._answered, "DEL", self._name)
        changed, self._changed = self._changed, {}
        if changed:
            pairs = [part for pair in changed.items() for part in pair]
            self._ask(self._answered, "HSET", self._name, *pairs)
            self._ask(self._answered, "EXPIRE", self._name, LIFE_S)
        gone = list(islice(self._gone, self._part))
        if gone:
            for field in gone:
                del self._gone[field]
            self._ask(self._answered, "HDEL", self._name, *gone)

    def _ask(self, answered: Any, *arguments: resp.Argument) -> None:
        self._worker.commit.submit(resp.command(*arguments), answered)

    def _answered(self, reply: Any) -> None:
        if isinstance(reply, Exception):
            self._lost()

    def _renewed(self, reply: Any) -> None:
        if reply != 1 and self._published:
            self._lost()

    def _lost(self) -> None:
        """Publish everything again, as Redis may have lost it."""
        self._begins = True
        self._published.clear()
        self._changed.clear()
        self._gone.clear()


def _taken(waiting: list[Any], count: int) -> list[Any]:
    """Remove and return the last items of a list."""
    taken = waiting[-count:]
    del waiting[-count:]
    return taken
