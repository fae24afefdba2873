"""The world of a simulated run: workers, clients, a foreign writer, and all faults.

The workers are the production classes. They get sockets of clients that are signed in already;
authentication is not simulated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from proto.rmb.address import SessionKey, to_message
from proto.rmb.reasons import MessageReason, SessionReason
from proto.rmb.types_pb2 import Envelope
from relay.federation.outbox import OutboxBounds
from relay.queues import keys
from relay.queues.batch import QueuePolicy
from relay.sessions.options import SessionBounds, WorkerOptions
from relay.sessions.recent import Recent
from relay.sessions.recorder import Recorder
from relay.sessions.worker import Worker
from relay.twins.cache import MISSING
from relay.twins.source import TwinRecord
from tests.support.sim.loop import LimitReached, SimLoop, Simulation
from tests.support.sim.net import Link, Network
from tests.support.sim.oracle import Connection, Message, Oracle, PromiseBroken
from tests.support.sim.redis import SimRedis
from tests.support.sim.socket import SimClient

DOMAIN = "relay.test"
GUEST_TWIN = 50
"""A twin that lists only another relay."""
UNKNOWN_TWIN = 99

QUEUE_POLICY = QueuePolicy(max_messages=400)
OUTBOX_BOUNDS = OutboxBounds()
SESSION_BOUNDS = SessionBounds(session_messages=8, session_bytes=6_000)
"""Small bounds, so that every run reaches them."""

MEMORY_BYTES = 50_000_000
"""Memory in use that a worker reports."""

SETTLE_S = 90.0
"""Seconds after the last fault within which everything must have arrived: heartbeats, the check and
the life of a dead worker's entries take far less."""


class Twins:
    """The twin cache of a worker, with a source that knows the twins of the test."""

    def __init__(self, simulation: Simulation) -> None:
        self.generation = 0
        self._simulation = simulation
        self._known: dict[int, TwinRecord | None] = {}

    def get(self, twin: int) -> Any:
        return self._known.get(twin, MISSING)

    def doubts(self, twin: int) -> bool:
        return False

    async def look_near(self, twin: int) -> Any:
        return self.get(twin)

    async def look_up(self, twin: int) -> TwinRecord | None:
        await asyncio.sleep(0.01 * self._simulation.rng.random())
        record = None if twin == UNKNOWN_TWIN else twin_record(twin)
        self._known[twin] = record
        return record

    def invalidate(self, ids: Any) -> None:
        self.generation += 1


def twin_record(twin: int) -> TwinRecord:
    relays = ("elsewhere.test",) if twin == GUEST_TWIN else (DOMAIN,)
    return TwinRecord(twin, bytes(32), None, relays, 1)


class OracleRecorder(Recorder):
    """Recorder that passes a worker's reports on to the oracle, and stores all of them."""

    follows = True

    def __init__(self, process: WorkerProcess) -> None:
        self._process = process

    def _told(self, what: str, envelope: Envelope | None, *more: Any) -> None:
        self._process.told.append((what, "" if envelope is None else envelope.uid, *more))

    def opened(self, session: Any) -> None:
        self._told("opened", None, session.destination.text)

    def accepted(
        self, sender: Any, destination: Any, envelope: Envelope, size_bytes: int, batch: Any
    ) -> None:
        self._told("accepted", envelope, size_bytes)

    def waits(self, sender: Any, destination: Any, payload: bytes, envelope: Envelope) -> None:
        self._told("waits", envelope, destination.text)

    def trimmed(self, entry_id: bytes, payload: bytes, reason: Any) -> None:
        self._told("trimmed", Envelope.FromString(payload))

    def queued(self, destination: Any, sender: Any, envelope: Envelope, entry_id: bytes) -> None:
        self._told("queued", envelope, destination.text)
        self._process.world.oracle.reported_queued(envelope)

    def delivered(self, session: Any, envelope: Envelope, size_bytes: int, entry_id: bytes) -> None:
        self._told("delivered", envelope, session.destination.text)

    def federated(self, sender: Any, envelope: Envelope, entry_id: Any, size_bytes: int) -> None:
        self._told("federated", envelope)

    def dropped(self, sender: Any, envelope: Envelope | None, reason: MessageReason) -> None:
        self._told("dropped", envelope, reason)
        if self._process.alive:
            self._process.world.oracle.reported_dropped(envelope, str(reason))

    def closed(self, session: Any, reason: SessionReason) -> None:
        self._told("closed", None, session.destination.text, reason)
        if self._process.alive:
            self._process.world.oracle.note(
                f"{self._process.name} ends {session.destination.text}"
                f" epoch {session.epoch}: {reason}"
            )


class WorkerProcess:
    """One relay worker: a process with its own loop."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.name = f"worker-{number}"
        self.loop: SimLoop = world.simulation.loop(self.name)
        self.alive = True
        self.worker: Worker | None = None
        self.clients: list[SimClient] = []
        self.told: list[tuple[Any, ...]] = []  # to its recorder, in order
        self.loop.call_soon(self._boot)

    def _boot(self) -> None:
        options = WorkerOptions(
            boot_id=self.name,
            domains=frozenset((DOMAIN,)),
            queue=self.world.queue_policy,
            outbox=self.world.outbox,
            bounds=self.world.bounds,
            drain_s=0.5,
        )
        self.worker = Worker(
            options,
            self.world.network.connector(self.loop),
            [("CLIENT", "SETNAME", self.name)],
            Twins(self.world.simulation),
            recorder=OracleRecorder(self),
            wall_clock=self.world.simulation.unix_time,
        )
        # The heartbeat contains the memory; that of the real process would differ between runs.
        self.worker.upkeep.recent = Recent(self.worker.metrics, lambda: MEMORY_BYTES)
        self.worker.start()

    @property
    def links(self) -> list[Link]:
        return self.world.network.links_of(self.loop)

    @property
    def commit_link(self) -> Link | None:
        return next((link for link in self.links if not link.is_pubsub), None)

    @property
    def pubsub_link(self) -> Link | None:
        return next((link for link in self.links if link.is_pubsub), None)


class Twin:
    """A client's connection, as the test uses it."""

    def __init__(self, world: World, process: WorkerProcess, key: SessionKey) -> None:
        self.world = world
        self.process = process
        self.key = key
        self.record: Connection = world.oracle.opened(key, process.name)
        self.client = SimClient(
            world.simulation,
            process.loop,
            receive_window_bytes=world.receive_window_bytes,
            send_queue_bytes=world.send_queue_bytes,
            remote=f"192.0.2.{self.record.number % 250}",
        )
        self.record.client = self.client
        self.client.on_message = self._arrived
        process.clients.append(self.client)
        process.loop.call_soon(self._accept)

    @property
    def got(self) -> list[str]:
        """Uids of the messages that arrived here."""
        envelopes = map(Envelope.FromString, self.client.arrived)
        return [envelope.uid for envelope in envelopes]

    def send(self, to: SessionKey, size_bytes: int = 0, **options: Any) -> Message:
        envelope = self.world.envelope(self.key, to, size_bytes, **options)
        message = self.world.oracle.sent(self.record, envelope)
        self.client.send(envelope.SerializeToString())
        return message

    def ping(self, size_bytes: int = 0) -> str:
        envelope = self.world.envelope(self.key, (0, None), size_bytes)
        envelope.uid = "ping-" + envelope.uid
        envelope.ping.SetInParent()
        self.world.oracle.pinged(self.record, envelope.uid)
        self.client.send(envelope.SerializeToString())
        return envelope.uid

    def _accept(self) -> None:
        worker = self.process.worker
        assert worker is not None
        if worker.draining:
            self.client.socket.abort()
            return
        self.session = worker.open(self.key, self.client.socket, twin_record(self.key[0]))
        self.client.socket.start(self)

    def _arrived(self, payload: bytes) -> None:
        socket = self.client.socket
        position = socket.sent[len(self.client.arrived) - 1][0]
        self.world.oracle.arrived(self.record, payload, position)

    # Receiver: events of the socket pass through here to the session

    def messages_received(self, messages: list[bytes]) -> None:
        for payload in messages:
            self.world.oracle.taken(self.record, payload, self.process.name)
        self.session.messages_received(messages)

    def writable(self) -> None:
        self.session.writable()

    def closed(self, code: int, detail: Any) -> None:
        self.world.oracle.note(f"connection {self.record.number} closed: {code}")
        self.session.closed(code, detail)


class World:
    """Two workers (or more), one Redis, any number of clients, one foreign writer."""

    def __init__(
        self,
        seed: int = 0,
        *,
        workers: int = 2,
        like_62: bool | None = None,
        queue_policy: QueuePolicy = QUEUE_POLICY,
        outbox: OutboxBounds = OUTBOX_BOUNDS,
        bounds: SessionBounds = SESSION_BOUNDS,
        receive_window_bytes: int = 4_000,
        send_queue_bytes: int = 6_000,
    ) -> None:
        self.simulation = Simulation(seed)
        self.queue_policy = queue_policy
        self.outbox = outbox
        self.bounds = bounds
        self.receive_window_bytes = receive_window_bytes
        self.send_queue_bytes = send_queue_bytes
        rng = self.simulation.rng
        self.redis = SimRedis(
            self.simulation.unix_time,
            rng,
            like_62=rng.random() < 0.5 if like_62 is None else like_62,
        )
        self.redis_loop = self.simulation.loop("redis")
        self.network = Network(self.simulation, self.redis, self.redis_loop)
        self.oracle = Oracle(self.simulation)
        self.redis.on_write = self.oracle.wrote
        self.redis.on_lost = self.oracle.forgot
        self.redis.on_publish = self.oracle.published
        self.network.on_lost = self._link_lost
        self.faulty = False  # whether a fault may have lost a wake or a worker
        self.twins: list[Twin] = []
        self.workers: list[WorkerProcess] = []
        self._numbers: Iterator[int] = iter(range(10**9))
        self._foreign = self.oracle.opened(None, "outside")
        for _ in range(workers):
            self.start_worker()
        self.run_until(self._ready, 10)

    # Time

    def run_for(self, duration_s: float) -> None:
        self.simulation.run_for(duration_s)

    def run_until(self, predicate: Any, limit_s: float = 30.0) -> None:
        self.simulation.run_until(predicate, limit_s)

    def _ready(self) -> bool:
        return all(
            process.worker is not None
            and process.worker.commit.pipe.usable
            and process.worker.hub.pipe.usable
            for process in self.workers
            if process.alive
        )

    # Workers

    def start_worker(self) -> WorkerProcess:
        process = WorkerProcess(self, len(self.workers))
        self.workers.append(process)
        return process

    @property
    def living(self) -> list[WorkerProcess]:
        return [process for process in self.workers if process.alive]

    @property
    def taking(self) -> list[WorkerProcess]:
        """Living workers that accept new sessions."""
        return [p for p in self.living if p.worker is None or not p.worker.draining]

    def kill_worker(self, process: WorkerProcess, late_s: float = 0.0) -> None:
        """Kill a worker (kill -9); its kernel's rest for Redis is executed `late_s` later."""
        self.faulty = True
        process.alive = False
        process.loop.kill()
        self.oracle.worker_died(process.name)
        self.network.process_died(process.loop, late_s)
        for client in process.clients:
            client.socket.process_died()

    # Clients

    def connect(self, process: WorkerProcess, key: SessionKey) -> Twin:
        twin = Twin(self, process, key)
        self.twins.append(twin)
        return twin

    def connect_live(self, process: WorkerProcess, key: SessionKey) -> Twin:
        """Connect and wait until the session has everything that was in its stream."""
        twin = self.connect(process, key)
        self.run_until(lambda: getattr(twin, "session", None) and twin.session.memory_mode, 10)
        return twin

    def envelope(
        self,
        source: SessionKey,
        to: SessionKey,
        size_bytes: int,
        *,
        request: bool = True,
        tags: str | None = None,
        expiration: int = 0,
    ) -> Envelope:
        envelope = Envelope(
            uid=f"m{next(self._numbers)}",
            timestamp=int(self.simulation.unix_time()),
            expiration=expiration,
            plain=bytes(size_bytes),
        )
        envelope.source.CopyFrom(to_message(source))
        if to[0]:
            envelope.destination.CopyFrom(to_message(to))
        if request:
            envelope.request.command = "test"
        else:
            envelope.response.SetInParent()
        if tags is not None:
            envelope.tags = tags
        return envelope

    def write_from_outside(self, to: SessionKey, size_bytes: int = 0) -> Message | None:
        """XADD and PUBLISH in one MULTI, as federation and tools do; return None if refused."""
        if not self.redis.up or self.redis.out_of_memory or self.redis_loop.frozen:
            return None
        envelope = self.envelope((7_000, None), to, size_bytes, request=False)
        message = self.oracle.sent(self._foreign, envelope)
        text = keys.key_text(to)
        self.redis.run("XADD", keys.stream(text), "*", "_", envelope.SerializeToString())
        self.redis.run("PUBLISH", keys.wake(text), "new")
        return message

    # Redis

    def crash_redis(self, lose: int = 0) -> None:
        self.faulty = True
        for process in self.living:
            # Redis has read it and not executed it: unanswered, though nothing is in flight.
            if process.worker is not None and not process.worker.commit.idle:
                self.oracle.commit_connection_lost(process.name)
        self.oracle.redis_crashed(self.redis.crash(lose))

    def restart_redis(self, loading_s: float = 0.0) -> None:
        self.redis.restart(loading_s)

    def streams(self) -> list[bytes]:
        """Return the names in Redis of the queues that are not empty."""
        found = self.redis.run("SCAN", "0", "MATCH", "stream:*", "COUNT", "1000000")[1]
        return [name for name in found if self.redis.run("XLEN", name)]

    def stream_length(self, key: SessionKey) -> int:
        return int(self.redis.run("XLEN", keys.stream(keys.key_text(key))))

    def holder(self, key: SessionKey) -> bytes | None:
        """Return the directory entry of a key."""
        entry: bytes | None = self.redis.run("HGET", keys.SESSIONS, keys.key_text(key))
        return entry

    def _link_lost(self, link: Link, unanswered: bool) -> None:
        self.faulty = True
        if unanswered and not link.is_pubsub:
            self.oracle.commit_connection_lost(link.loop.name)

    # The end of a run

    def heal(self) -> None:
        """Undo every remaining fault."""
        self.network.unreachable = False
        for link in self.network.links:
            link.up.release()
            link.down.release()
        self.redis_loop.thaw()
        for process in self.living:
            process.loop.thaw()
        if not self.redis.up:
            self.restart_redis()
        self.redis.free_memory()
        for twin in self.twins:
            twin.client.start_reading()

    def settle(self) -> None:
        """Undo the faults, read every queue until it is empty, and judge the run.

        Raises:
            PromiseBroken: A promise of the delivery model does not hold.
        """
        self.heal()
        self.run_for(3)
        if not self.taking:
            self.start_worker()
        self.run_until(self._ready, SETTLE_S)  # Redis may still be loading
        # The claim of a client that has left, made later than a reader's, would take over its key.
        self.run_until(self._claimed, SETTLE_S)
        readers = {message.to for message in self.oracle.messages.values()}
        readers |= {twin.key for twin in self.twins}
        for key in sorted(readers, key=str):
            if key[0] not in (UNKNOWN_TWIN, GUEST_TWIN, 0):
                self.connect(self.simulation.rng.choice(self.taking), key)
        try:
            self.run_until(self._settled, SETTLE_S)
        except LimitReached:
            self._explain_unsettled()
        self.oracle.check_all()
        if not self.faulty:
            found = sum(p.worker.metrics.check_found for p in self.living if p.worker)
            if found:
                raise PromiseBroken(f"the check found {found} entries in a run without faults")

    def _claimed(self) -> bool:
        workers = [process.worker for process in self.living if process.worker]
        sessions = [session for worker in workers for session in worker.sessions]
        return all(session.held or session.end_reason is not None for session in sessions)

    def _settled(self) -> bool:
        return not self.oracle.open_messages() and not self._streams_left()

    def _streams_left(self) -> dict[bytes, int]:
        left = {
            key: len(value.ids)
            for key, value in self.redis.db.values.items()
            if key.startswith(b"stream:") and value.ids
        }
        return {key: n for key, n in left.items() if not key.startswith(b"stream:%d" % GUEST_TWIN)}

    def _explain_unsettled(self) -> None:
        lost = [message for message in self.oracle.open_messages()]
        if lost:
            fates = ", ".join(
                f"{message} stored={message.ever_stored} taken by {message.taken_by or 'nobody'}"
                for message in lost[:5]
            )
            raise PromiseBroken(f"{len(lost)} messages have no end: {fates}")
        raise PromiseBroken(
            f"entries are left in streams though all arrived: {self._streams_left()}"
        )
