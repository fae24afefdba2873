"""The promises of the delivery model, checked from outside.

The oracle sees what clients send and what reaches their TCP, every atomic write of Redis and every
write that a crash forgets, what the workers report through the recorder hook, and each fault when
it is injected. It knows nothing of how a worker works, nor whether the world is simulated or
consists of real processes.

Order, duplicates and pongs as barriers are checked while the run continues. The rest is checked at
the end (`check_all`), after every fault was undone and every queue was read until it was empty:
nothing stored is lost, every message that a living worker took has an outcome, and every refused
request was answered.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import Protocol

from proto.rmb.address import SessionKey, from_message, parse
from proto.rmb.types_pb2 import Envelope

RELEASE_WAIT_S = 0.5
"""Seconds that a newcomer waits for the former holder (delivery model, take-over)."""
ROUND_TRIP_S = 0.05
"""Allowance, in seconds, for messages over simulated links during that wait."""


class Clock(Protocol):
    """Interface of a world that the oracle needs: its time in seconds."""

    @property
    def now(self) -> float: ...


class Client(Protocol):
    """Interface of a connection's client that the oracle needs."""

    @property
    def alive(self) -> bool: ...
    @property
    def reading(self) -> bool: ...
    @property
    def ended(self) -> bool:
        """Whether the relay's end of the connection has ended."""

    @property
    def acknowledged_position(self) -> float:
        """Position up to which arrivals were certainly acknowledged when the relay last looked."""


class PromiseBroken(AssertionError):
    """A promise does not hold; the text states which, and for which message."""


class Excuse(Enum):
    """Reasons for which a message may arrive twice (delivery model 1.2)."""

    NOT_ACKNOWLEDGED = "not acknowledged at the last look when it died or was taken over"
    SLOW_HOLDER = "the former holder did not answer a take-over in time"
    WORKER_DIED = "the worker died"
    COMMIT_LOST = "the commit connection died with a batch unanswered"
    WENT_BACK = "redis went back in time"


@dataclass(slots=True, eq=False)
class Connection:
    """A sender or receiver, as far as the promises concern it."""

    number: int
    key: SessionKey | None  # None: a writer outside the workers
    worker: str
    opened_at: float
    client: Client | None = None  # None: a writer outside the workers
    sent: int = 0
    pings: int = 0
    answered_pings: int = 0
    taken: list[Message] = field(default_factory=list)  # those a living worker took


@dataclass(slots=True, eq=False)
class Arrival:
    connection: Connection
    at: float  # not later than this,
    since: float  # and not earlier than this
    position: float  # position in the relay's stream to that connection, see `Client`


@dataclass(slots=True, eq=False)
class Message:
    """One message from its sending to its end."""

    uid: str
    sender: Connection
    to: SessionKey
    index: int  # among the messages of the sender
    is_request: bool
    taken_by: str = ""  # the worker whose receiver got it
    stored: int = 0  # times it was written to a stream, minus times a crash forgot it
    ever_stored: bool = False
    forgotten: bool = False
    reported_queued: bool = False
    dropped: list[str] = field(default_factory=list)
    federated: bool = False
    answered: bool = False  # its sender got an error for it
    arrivals: list[Arrival] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.uid} (connection {self.sender.number} to {self.to}, number {self.index})"


class Oracle:
    """Everything that was promised, and whether the promises were kept."""

    def __init__(self, clock: Clock, round_trip_s: float = ROUND_TRIP_S) -> None:
        self.clock = clock
        self.round_trip_s = round_trip_s
        self.messages: dict[str, Message] = {}
        self.connections: list[Connection] = []
        self.highest: dict[tuple[Connection, SessionKey], Message] = {}
        self.excused: Counter[Excuse] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.history: list[str] = []  # shown when a run fails
        self._deaths: dict[str, float] = {}  # time of death by worker
        self._commit_losses: dict[str, list[float]] = defaultdict(list)
        self._went_back: list[float] = []
        self._claims: dict[SessionKey, list[tuple[float, int]]] = defaultdict(list)
        self._releases: dict[tuple[SessionKey, int], float] = {}
        self._pings: dict[str, tuple[Connection, int, int]] = {}

    def note(self, text: str, at: float | None = None) -> None:
        self.history.append(f"{self.clock.now if at is None else at:10.4f} {text}")

    # What clients do

    def opened(self, key: SessionKey | None, worker: str) -> Connection:
        connection = Connection(len(self.connections), key, worker, self.clock.now)
        self.connections.append(connection)
        self.note(f"connection {connection.number} of {key} at {worker}")
        return connection

    def sent(self, sender: Connection, envelope: Envelope) -> Message:
        """Record that a client sends a message, or that a foreign writer stores one."""
        message = Message(
            envelope.uid,
            sender,
            from_message(envelope.destination),
            sender.sent,
            envelope.HasField("request"),
        )
        sender.sent += 1
        self.messages[message.uid] = message
        self.note(f"send {message}")
        return message

    def pinged(self, sender: Connection, uid: str) -> None:
        self._pings[uid] = (sender, sender.sent, sender.pings)
        sender.pings += 1

    def taken(self, sender: Connection, payload: bytes, worker: str) -> None:
        """Record that the receiver of a living worker was handed a message."""
        message = self.messages.get(Envelope.FromString(payload).uid)
        if message is not None:
            self.took(message, worker)

    def took(self, message: Message, worker: str) -> None:
        """Record the same as `taken`, for worlds that know it only afterwards."""
        message.taken_by = worker
        message.sender.taken.append(message)

    # What reaches a client's TCP

    def arrived(
        self,
        connection: Connection,
        payload: bytes,
        position: float,
        since: float | None = None,
        at: float | None = None,
    ) -> None:
        """Judge a message that reached the client's kernel: now, or between `since` and `at`."""
        at = self.clock.now if at is None else at
        envelope = Envelope.FromString(payload)
        self.note(f"arrive {envelope.uid} at connection {connection.number}", at)
        if envelope.HasField("pong"):
            self._pong(connection, envelope.uid)
            return
        message = self.messages.get(envelope.uid)
        if envelope.HasField("error"):
            if message is not None and from_message(envelope.destination) == message.sender.key:
                message.answered = True
            return
        if message is None:
            raise PromiseBroken(f"connection {connection.number} got what nobody sent")
        if message.to != connection.key:
            raise PromiseBroken(f"{message} came to {connection.key}")
        arrival = Arrival(connection, at, at if since is None else since, position)
        if message.arrivals:
            self._judge_double(message, message.arrivals[-1], arrival)
        else:
            self._judge_order(message, arrival)
        message.arrivals.append(arrival)

    def _judge_order(self, message: Message, arrival: Arrival) -> None:
        stream = (message.sender, message.to)
        before = self.highest.get(stream)
        if before is None or before.index < message.index:
            self.highest[stream] = message
            return
        other = before.arrivals[0]
        if other.connection is arrival.connection or other.at <= arrival.since:
            raise PromiseBroken(f"{message} came after {before}")

    def _judge_double(self, message: Message, first: Arrival, again: Arrival) -> None:
        excuse = self._excuse(message, first, again)
        if excuse is None:
            raise PromiseBroken(
                f"{message} came twice without one of the five conditions: to connection"
                f" {first.connection.number} at {first.at:.4f} and to"
                f" {again.connection.number} at {again.at:.4f}"
            )
        self.excused[excuse] += 1
        self.note(f"double of {message.uid}: {excuse.value}")

    def _excuse(self, message: Message, first: Arrival, again: Arrival) -> Excuse | None:
        if again.connection.opened_at < first.connection.opened_at:
            # The former connection's kernel delivered its rest after the successor's arrival.
            first, again = again, first
        former = first.connection
        if any(at >= former.opened_at for at in self._went_back):
            return Excuse.WENT_BACK
        if former is again.connection:
            return None
        client = former.client
        assert client is not None, "only clients receive"
        if first.position > client.acknowledged_position:
            if client.ended or former.worker in self._deaths:
                return Excuse.NOT_ACKNOWLEDGED
            if self._taken_over(message.to, former.opened_at, max(first.at, again.at)):
                return Excuse.NOT_ACKNOWLEDGED
            if self._unanswered_claim(message.to, former.opened_at, max(first.at, again.at)):
                return Excuse.SLOW_HOLDER
        if former.worker in self._deaths:
            return Excuse.WORKER_DIED
        if self._unanswered_claim(message.to, former.opened_at, max(first.at, again.at)):
            return Excuse.SLOW_HOLDER
        if any(first.since - 1 <= at <= again.at for at in self._commit_losses[former.worker]):
            return Excuse.COMMIT_LOST
        return None

    def _taken_over(self, key: SessionKey, since: float, until: float) -> bool:
        """Check whether another session claimed the key from its holder in this time."""
        return any(since <= at <= until for at, _ in self._claims[key][1:])

    def _unanswered_claim(self, key: SessionKey, since: float, until: float) -> bool:
        """Check whether a take-over of the key began in this time and its holder was too slow."""
        claims = self._claims[key]
        for (_, former), (at, _) in pairwise(claims):
            if since <= at <= until:
                released = self._releases.get((key, former), float("inf"))
                if released > at + RELEASE_WAIT_S - self.round_trip_s:
                    return True
        return False

    def _pong(self, connection: Connection, uid: str) -> None:
        """Check that everything sent before the ping is decided and, where it must be, stored."""
        sender, sent_before, number = self._pings[uid]
        if sender is not connection:
            raise PromiseBroken(f"the pong {uid} came to another connection")
        if number != connection.answered_pings:
            raise PromiseBroken(f"the pong {uid} is out of order")
        connection.answered_pings += 1
        for message in sender.taken:
            if message.index >= sent_before:
                break
            if not (message.ever_stored or message.dropped or message.federated):
                raise PromiseBroken(f"a pong passed {message}, which is not decided")
            if message.dropped and message.is_request and not message.answered:
                raise PromiseBroken(f"a pong passed the error for {message}")

    # What Redis does

    def wrote(self, unit: list[list[bytes]]) -> None:
        for message in self._added(unit):
            if message.stored and not message.forgotten:
                raise PromiseBroken(f"{message} was stored twice")
            message.stored += 1
            message.ever_stored = True

    def forgot(self, unit: list[list[bytes]]) -> None:
        for message in self._added(unit):
            message.stored -= 1
            message.forgotten = True

    def _added(self, unit: list[list[bytes]]) -> list[Message]:
        found = []
        for argv in unit:
            if argv[0].upper() == b"XADD":
                uid = Envelope.FromString(argv[argv.index(b"_", 3) + 1]).uid
                message = self.messages.get(uid)
                if message is None:
                    continue  # a notice of the relay
                if argv[1].startswith(b"federation:"):
                    message.federated = True
                else:
                    found.append(message)
        return found

    def published(self, channel: bytes, payload: bytes) -> None:
        """Record news of a key's take-over; worlds may also report a claim with `claimed`."""
        if not channel.startswith(b"wake:"):
            return
        word, _, epoch = payload.partition(b" ")
        key = tuple(parse(channel[len(b"wake:") :].decode()))
        if word == b"evict":
            self.claimed(key, int(epoch), self.clock.now)  # type: ignore[arg-type]
        elif word == b"released":
            self.note(f"released {int(epoch)} for {key}")
            self._releases.setdefault((key, int(epoch)), self.clock.now)  # type: ignore[arg-type]

    def claimed(self, key: SessionKey, epoch: int, at: float) -> None:
        """Record that a holder of the key was entered in the directory."""
        self.note(f"evict {epoch} for {key}", at)
        claims = self._claims[key]
        if not claims or claims[-1][1] != epoch:
            claims.append((at, epoch))

    def claim_after(self, key: SessionKey, since: float) -> float:
        """Return the time of the key's first claim after that time, or infinity without one."""
        return min((at for at, _ in self._claims[key] if at > since), default=float("inf"))

    # What workers report (the recorder hook)

    def reported_queued(self, envelope: Envelope) -> None:
        message = self.messages.get(envelope.uid)
        if message is not None and not envelope.HasField("error"):
            if not message.ever_stored:
                raise PromiseBroken(f"{message} was reported as queued and is not stored")
            message.reported_queued = True

    def reported_dropped(self, envelope: Envelope | None, reason: str) -> None:
        self.outcomes[reason] += 1
        if envelope is None:
            return
        message = self.messages.get(envelope.uid)
        if message is not None and not envelope.HasField("error"):
            self.dropped(message, reason)

    def dropped(self, message: Message, reason: str) -> None:
        """Record that a message ends undelivered.

        Worlds that have only the error to its sender call this directly.
        """
        message.dropped.append(reason)
        self.note(f"drop {message.uid}: {reason}")

    # What is done to the world

    def worker_died(self, worker: str) -> None:
        self._deaths[worker] = self.clock.now
        self.note(f"killed {worker}")

    def commit_connection_lost(self, worker: str) -> None:
        self._commit_losses[worker].append(self.clock.now)
        self.note(f"the commit connection of {worker} ended")

    def redis_crashed(self, lost: int) -> None:
        if lost:
            self._went_back.append(self.clock.now)
        self.note(f"redis crashed and forgot {lost} writes")

    # At the end

    def open_messages(self) -> list[Message]:
        """Return messages that still have to arrive, or to get an outcome."""
        return [message for message in self.messages.values() if not self._settled(message)]

    def _settled(self, message: Message) -> bool:
        if message.arrivals or message.dropped or message.federated:
            return True
        if message.ever_stored:
            return message.forgotten  # the operator's choice of persistence, not the relay's
        return not message.taken_by or message.taken_by in self._deaths

    def check_all(self) -> None:
        """Judge the whole run, after faults were undone and all queues were read."""
        for message in self.messages.values():
            if not self._settled(message):
                fate = "was stored and is lost" if message.ever_stored else "has no outcome"
                raise PromiseBroken(f"{message} {fate}")
            if message.dropped:
                self._check_refusal(message)
            self.outcomes["arrived" if message.arrivals else "not arrived"] += 1

    def _check_refusal(self, message: Message) -> None:
        if len(message.dropped) > 1 and not (self._went_back or self._deaths):
            raise PromiseBroken(f"{message} has several outcomes: {message.dropped}")
        if message.arrivals and "expired" not in message.dropped:
            raise PromiseBroken(f"{message} was refused ({message.dropped}) and came")
        client = message.sender.client
        if (
            message.is_request
            and not message.answered
            and client is not None
            and client.alive
            and client.reading
            and message.sender.worker not in self._deaths
        ):
            raise PromiseBroken(f"nobody told the sender of {message}: {message.dropped}")
