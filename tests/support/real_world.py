"""World of a run of real processes: two workers, one Valkey, clients, a foreign writer.

Facts that a simulated world knows exactly are gathered here from outside:

- which data reached a client's kernel, from `KernelClient`; when, as an interval;
- what Redis stores, from its append-only file (`appendfsync no`: nothing answered is missing);
- claims of keys from the same file, since an epoch is the time of its claim, and releases from a
  subscription;
- what a worker accepted, from the pong that followed; what it refused, from the error to the
  sender.

Pongs and errors are judged when they arrive. Other arrivals are judged at the end, when everything
that may excuse a duplicate is known.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import redis
from redis.asyncio import Redis
from websockets.exceptions import InvalidHandshake
from websockets.frames import CloseCode

from proto.rmb.address import SessionKey, parse
from proto.rmb.types_pb2 import Envelope
from relay.queues import keys
from tests.support import envelopes
from tests.support.append_only import AppendOnlyTail, Command
from tests.support.identities import TEST_DOMAIN
from tests.support.kernel_client import KernelClient
from tests.support.real_worker import READY_S, RealWorker, real_worker
from tests.support.redis_servers import RedisServer, start_valkey
from tests.support.relay_process import make_data_folder
from tests.support.sim.oracle import Connection, Message, Oracle, PromiseBroken
from tests.support.waiting import eventually
from tests.support.world import ELSEWHERE_TWIN, TWINS, UNKNOWN_TWIN

SETTLE_S = 90.0
ACKNOWLEDGE_S = 0.25  # a kernel's delayed acknowledgement takes 0.2 s at most
ROUND_TRIP_S = 0.3  # processes share few cores
BEAT_S = 0.01
NO_READER = (UNKNOWN_TWIN.id, ELSEWHERE_TWIN.id)
SETTINGS = {
    "relay.domains": TEST_DOMAIN,
    "relay.handshakes_per_ip_per_s": "0",
    "relay.drain_s": "0.5",
    # Small bounds, so that every run reaches them.
    "relay.session_messages": "8",
    "relay.session_bytes": "6000",
}


class WallClock:
    """Clock of the time that Redis and all processes share."""

    @property
    def now(self) -> float:
        return time.time()


class Visitor:
    """A client's connection, from before it is made until after it has ended.

    It provides what the oracle asks about the connection (`tests.support.sim.oracle.Client`).
    """

    def __init__(self, world: RealWorld, worker: RealWorker, key: SessionKey) -> None:
        self.world = world
        self.worker = worker
        self.key = key
        self.record: Connection = world.oracle.opened(key, worker.name)
        self.record.client = self
        self.sent: list[Message] = []
        self.awaited: dict[str, int] = {}  # uid of a ping -> messages sent before it
        self.kernel: KernelClient | None = None
        self._signed_in_at = 0.0
        self._has_room = not world.receive_buffer_bytes  # the kernel accepts everything
        self._broken_at: float | None = None
        self._stopped_at: float | None = None
        self._ended_at: float | None = None
        self.opening = asyncio.create_task(self._open())

    async def _open(self) -> None:
        process = self.worker.name
        try:
            kernel = await KernelClient.connect(
                self.worker.url,
                TWINS[self.key[0]].token(self.key[1]),
                self._arrived,
                receive_buffer_bytes=self.world.receive_buffer_bytes,
                timeout_s=READY_S,  # the worker may be starting, on a busy machine
            )
        except (OSError, InvalidHandshake, TimeoutError) as error:
            self.world.oracle.note(f"connection {self.record.number} failed: {error!r}")
            self._ended_at = time.time()
            return
        self.kernel = kernel
        self._signed_in_at = time.time()
        self.world.oracle.note(f"connection {self.record.number} is signed in")
        if self.worker.name != process:  # its worker is unknown
            self.reset()
        await kernel.over.wait()
        self._ended_at = time.time()
        self.world.oracle.note(f"connection {self.record.number} ended: {kernel.close}")

    # What the oracle asks

    @property
    def alive(self) -> bool:
        return self.kernel is not None and self.kernel.alive

    @property
    def reading(self) -> bool:
        return self.kernel is not None and self.kernel.reading

    @property
    def ended(self) -> bool:
        return self._ended_at is not None or self._broken_at is not None

    @property
    def acknowledged_position(self) -> float:
        """Latest certainly acknowledged position: the time by which a message was in the kernel."""
        looks = [float("inf")]
        if self._broken_at is not None:
            looks.append(self._broken_at)
        if not self._has_room:
            # With room, everything is acknowledged within the time that a holder waits for that.
            looks.append(self.world.oracle.claim_after(self.key, self._signed_in_at))
            if self._ended_at is not None and not self._closed_cleanly:
                looks.append(self._ended_at)
        return min(looks) - ACKNOWLEDGE_S

    @property
    def _closed_cleanly(self) -> bool:
        if self.kernel is None or self.kernel.close is None:
            return False
        return self.kernel.closed_first and self.kernel.close.code == CloseCode.NORMAL_CLOSURE

    # What it does

    def send(self, to: SessionKey, size_bytes: int = 0, tags: str | None = None) -> None:
        """Send a request: if it is refused, the sender always gets an error."""
        assert self.kernel is not None
        envelope = self.world.envelope(self.key, to, size_bytes, tags)
        self.sent.append(self.world.oracle.sent(self.record, envelope))
        self.kernel.send(envelope.SerializeToString())

    def ping(self) -> None:
        assert self.kernel is not None
        ping = envelopes.ping(self.key)
        self.awaited[ping.uid] = len(self.sent)
        self.world.oracle.pinged(self.record, ping.uid)
        self.kernel.send(ping.SerializeToString())

    def close(self) -> None:
        self._note("closes")
        if self.kernel is not None:
            self.start_reading()
            self.kernel.begin_close()

    def reset(self) -> None:
        self._break("resets")
        if self.kernel is not None:
            self.kernel.reset()

    def vanish(self) -> None:
        self._break("vanishes")
        if self.kernel is not None:
            self.kernel.vanish()

    def stop_reading(self) -> None:
        if self.kernel is not None and self.alive and self._stopped_at is None:
            self._note("stops reading")
            self._has_room = False
            self._stopped_at = self.world.awake_at
            self.kernel.stop_reading()

    def start_reading(self) -> None:
        if self.kernel is not None and self._stopped_at is not None:
            self._note("reads")
            self.kernel.start_reading()
            # The data that the kernel has by now is read in the next turns.
            asyncio.get_running_loop().call_later(10 * BEAT_S, self._reads_at_once)

    def _reads_at_once(self) -> None:
        if self.kernel is not None and self.kernel.reading:
            self._stopped_at = None

    def leave(self) -> None:
        """End the connection for good, in whatever state it is."""
        self.opening.cancel()
        if self.kernel is not None:
            self.kernel.discard()

    def _break(self, how: str) -> None:
        self._note(how)
        if self._broken_at is None:
            self._broken_at = time.time()

    def _note(self, what: str) -> None:
        self.world.oracle.note(f"connection {self.record.number} {what}")

    def _arrived(self, payload: bytes) -> None:
        now = time.time()
        envelope = Envelope.FromString(payload)
        if envelope.HasField("pong") or envelope.HasField("error"):
            self.world.look()
            if envelope.HasField("pong"):
                self._took(self.awaited.pop(envelope.uid, 0))
            else:
                self._refused(envelope)
            self.world.judge(Told(self.record, payload, now, now))
        else:
            since = self._stopped_at or self.world.awake_at
            self.world.arrivals.append(Told(self.record, payload, since, now))

    def _took(self, count: int) -> None:
        for message in self.sent[:count]:
            if not message.taken_by:
                self.world.oracle.took(message, self.record.worker)

    def _refused(self, error: Envelope) -> None:
        message = self.world.oracle.messages.get(error.uid)
        if message is not None:
            self.world.oracle.dropped(message, error.error.message)


class Told(NamedTuple):
    """A message that arrived in a client's kernel between two times."""

    connection: Connection
    payload: bytes
    since: float
    at: float


class RealWorld:
    """Two workers, one Valkey and clients. `begin` starts a run, `settle` judges it.

    Attributes:
        oracle: oracle of the present run.
        awake_at: time, some milliseconds ago, at which everything received had been read.
        redis_there: whether Valkey runs, and is not paused.
    """

    def __init__(self, server: RedisServer, workers: list[RealWorker]) -> None:
        self.server = server
        self.workers = workers
        self.oracle = Oracle(WallClock(), ROUND_TRIP_S)
        self.visitors: list[Visitor] = []
        self.arrivals: list[Told] = []
        self.receive_buffer_bytes = 0
        self.awake_at = self._awake_again_at = time.time()
        self.redis_there = True
        self._broken: PromiseBroken | None = None
        self._tail = AppendOnlyTail(server.folder)
        self._client = redis.Redis(unix_socket_path=server.socket_path, socket_timeout=60)
        self._foreign = self.oracle.opened(None, "outside")
        self._numbers = itertools.count()
        self._runs = 0
        for worker in workers:
            worker.on_cut = self._cut

    def begin(self, receive_buffer_bytes: int) -> None:
        """Begin a new run, with twins that the last ones did not use."""
        self._tail.skip()
        self.oracle = Oracle(WallClock(), ROUND_TRIP_S)
        self._foreign = self.oracle.opened(None, "outside")
        self.receive_buffer_bytes = receive_buffer_bytes
        self.visitors, self.arrivals = [], []
        self._broken = None
        self._runs += 1

    def twin(self, number: int) -> int:
        """Return the id of one of the ten twins of this run."""
        twins = list(TWINS)
        return twins[(10 * self._runs + number) % len(twins)]

    # Traffic

    def connect(self, worker: RealWorker, key: SessionKey) -> Visitor:
        visitor = Visitor(self, worker, key)
        self.visitors.append(visitor)
        return visitor

    def envelope(
        self, source: SessionKey, to: SessionKey, size_bytes: int, tags: str | None = None
    ) -> Envelope:
        uid = f"m{next(self._numbers)}"
        return envelopes.request(source, to, bytes(size_bytes), uid=uid, tags=tags, expiration=0)

    def write_from_outside(self, to: SessionKey) -> None:
        """XADD and PUBLISH in one MULTI, as federation and tools do; not while Redis is down."""
        if not self.redis_there:
            return
        envelope = self.envelope((7_000, None), to, 40)
        envelope.response.SetInParent()
        self.oracle.sent(self._foreign, envelope)
        text = keys.key_text(to)
        writing = self._client.pipeline()
        writing.xadd(keys.stream(text), {"_": envelope.SerializeToString()})
        writing.publish(keys.wake(text), "new")
        try:
            writing.execute()
        except redis.ResponseError:
            del self.oracle.messages[envelope.uid]  # out of memory

    # What is seen from outside

    def look(self) -> None:
        """Process what Redis has written since the last call."""
        for unit in self._tail.units():
            self._guard(lambda unit=unit: self.oracle.wrote(unit))
            for command in unit:
                self._claimed(command)

    def _claimed(self, command: Command) -> None:
        if command[0].upper() == b"HSET" and command[1] == keys.SESSIONS.encode():
            epoch = int(command[3].split(b" ")[0])
            self.oracle.claimed(tuple(parse(command[2].decode())), epoch, epoch / 1e6)

    def judge(self, told: Told) -> None:
        """Let the oracle judge one arrival. `settle` raises the first broken promise."""
        connection, payload, since, at = told
        self._guard(lambda: self.oracle.arrived(connection, payload, at, since, at))

    def _guard(self, judging: object) -> None:
        try:
            judging()  # type: ignore[operator]
        except PromiseBroken as broken:
            self.oracle.note(f"BROKEN: {broken}")
            self._broken = self._broken or broken

    def _cut(self, name: str) -> None:
        self.oracle.commit_connection_lost(name)

    async def watch(self) -> None:
        """Follow the channels of keys, and the time, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._beat())
            group.create_task(self._listen())

    async def _beat(self) -> None:
        while True:
            self.awake_at, self._awake_again_at = self._awake_again_at, time.time()
            await asyncio.sleep(BEAT_S)

    async def _listen(self) -> None:
        while True:
            with contextlib.suppress(redis.ConnectionError, OSError):
                client = Redis(unix_socket_path=self.server.socket_path, protocol=2)
                async with client, client.pubsub() as pubsub:
                    await pubsub.psubscribe("wake:*")
                    async for message in pubsub.listen():
                        if message["type"] == "pmessage":
                            self._published(message["channel"], message["data"])
            await asyncio.sleep(BEAT_S)  # Redis is unavailable

    def _published(self, channel: bytes, payload: bytes) -> None:
        if payload.startswith(b"released"):
            self.oracle.published(channel, payload)

    # The end of a run

    async def settle(self) -> None:
        """Read every queue until it is empty, and judge the run, after every fault was undone.

        Raises:
            PromiseBroken: A promise of the delivery model does not hold.
        """
        for visitor in self.visitors:
            visitor.start_reading()
            if visitor.alive:
                visitor.ping()
        await eventually(self._all_said, SETTLE_S, "every connection to be done or answered")
        readers = {message.to for message in self.oracle.messages.values()}
        readers |= {visitor.key for visitor in self.visitors}
        last = [
            self.connect(self.workers[number % len(self.workers)], key)
            for number, key in enumerate(sorted(readers, key=str))
            if key[0] not in NO_READER
        ]
        await asyncio.gather(*(self._signed_in(visitor) for visitor in last))
        try:
            await eventually(self._all_read, SETTLE_S)
        except AssertionError:
            self._explain()
        self._judge_all()
        if self._broken is not None:
            raise self._broken
        self.oracle.check_all()

    def end(self) -> None:
        """End the remaining connections of the run."""
        for visitor in self.visitors:
            visitor.leave()

    async def _signed_in(self, visitor: Visitor) -> None:
        await eventually(
            lambda: visitor.kernel is not None or visitor.ended, SETTLE_S, "a last reader"
        )
        assert visitor.kernel is not None, f"the last reader of {visitor.key} was not let in"

    def _all_said(self) -> bool:
        return all(
            visitor.opening.done() or (visitor.alive and not visitor.awaited) or visitor.ended
            for visitor in self.visitors
        )

    def _all_read(self) -> bool:
        self.look()
        self._judge_all()
        return not self.oracle.open_messages() and not self._streams_left()

    def _judge_all(self) -> None:
        told, self.arrivals = self.arrivals, []
        for each in told:
            self.judge(each)

    def _streams_left(self) -> dict[str, int]:
        twins = {message.to[0] for message in self.oracle.messages.values()} - set(NO_READER)
        left = {}
        for twin in twins:
            for name in self._client.scan_iter(f"stream:{twin}*", count=1000):
                left[name.decode()] = int(self._client.xlen(name))
        return {name: length for name, length in left.items() if length}

    def _explain(self) -> None:
        if self._broken is not None:
            raise self._broken
        lost = self.oracle.open_messages()
        fates = ", ".join(f"{message} stored={message.ever_stored}" for message in lost[:5])
        if lost:
            raise PromiseBroken(f"{len(lost)} messages have no end: {fates}")
        raise PromiseBroken(f"entries are left in streams: {self._streams_left()}")


@contextlib.asynccontextmanager
async def real_world(folder: Path) -> AsyncIterator[RealWorld]:
    """Start everything, and end it after the block."""
    data = await asyncio.to_thread(make_data_folder, folder / "site")
    server = await asyncio.to_thread(
        start_valkey,
        folder / "redis",
        *("--auto-aof-rewrite-percentage", "0"),
        append_fsync="no",
    )
    settings = {**SETTINGS, "data.dir": str(data)}
    try:
        async with (
            real_worker("left", server, settings) as left,
            real_worker("right", server, settings) as right,
        ):
            world = RealWorld(server, [left, right])
            watching = asyncio.create_task(world.watch())
            await asyncio.gather(left.start(), right.start())
            try:
                yield world
            finally:
                world.end()
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
                world._client.close()
    finally:
        await asyncio.to_thread(server.remove)
