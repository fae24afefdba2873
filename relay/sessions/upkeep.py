"""The regular tasks of a worker: its heartbeat, the check, and changes made by others.

The heartbeat each second also compares versions (control state, twins, guests), so a lost pub/sub
message costs a second at most. The check visits every held session at least each `CHECK_S`: does
its stream have an entry that the session does not know, and does the directory still name it?
Without lost connections or dead workers it finds nothing.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import logging
from collections.abc import Iterable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import hiredis

from proto.rmb.reasons import MessageReason, SessionReason
from redispipe import resp
from redispipe.errors import LinkLost
from redispipe.pipe import DISK_FULL
from relay.queues import batch, keys
from relay.queues.commit import TEMPORARY
from relay.sessions import charges, scripts
from relay.sessions.burial import LINKS, bury
from relay.sessions.control import Control
from relay.sessions.rates import RateMeter
from relay.sessions.recent import Recent
from relay.sessions.session import NO_ENTRIES

if TYPE_CHECKING:
    from relay.sessions.session import Session
    from relay.sessions.worker import Worker

log = logging.getLogger(__name__)

BEAT_S: Final = 1.0
BEAT_TTL_S: Final = 30
TICK_S: Final = 0.1
CHECK_S: Final = 15.0
SECOND_LOOK_S: Final = 1.0
COMPARED: Final = 500
"""Directory entries requested by one command."""
CHECK_ENTRIES: Final = 16
FULL_LOOKS: Final = 100
"""Full sessions checked in one tick, to find those that accept nothing any more, and those full of
many small messages: sockets report room only when they are nearly empty."""
SWEEP_S: Final = 30.0
SWEEP_LEASE: Final = "relay:sweep"
STREAMS: Final = ("MATCH", "stream:*", "TYPE", "stream", "COUNT", 500)
"""Options of the sweep's SCAN; keys with such a name that are not streams do no harm."""
TRIMS_AT_ONCE: Final = 32
FULL_PART: Final = 0.5
"""Part of a bound from which a queue is listed as nearly full."""
FULLEST: Final = 50
"""Maximum number of queues listed, the fullest first."""


class Upkeep:
    """The timers of one worker."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.control = Control(worker)
        self.loop_lag_s = 0.0  # maximum of the last second
        self.recent = Recent(worker.metrics)
        self.rates = RateMeter(worker)
        self.redis_policy = ""  # Redis' maxmemory-policy, once known
        self._ring: list[Session] = []  # sessions to be checked in this round
        self._to_compare: list[Session] = []  # compared at the end of this turn of the loop
        self._others: set[str] = set()  # workers seen alive
        self._believe_at = 0.0  # loop time from which a missing heartbeat means a dead worker
        self._beats = 0
        self._link = ""  # as last published
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start all timers."""
        loop = self._worker.loop
        self._tasks = [
            loop.create_task(self._every(BEAT_S, self._beat)),
            loop.create_task(self._every(SWEEP_S, self._sweep)),
            loop.create_task(self._ticking()),
        ]

    async def stop(self) -> None:
        """Stop the timers, and remove the worker's entries in Redis."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        boot_id = self._worker.boot_id
        if self._worker.commit.pipe.usable:
            await asyncio.gather(
                self._ask("DEL", keys.worker(boot_id), keys.rates(boot_id)),
                self._ask("SREM", keys.WORKERS, boot_id),
                self._ask("HDEL", LINKS, boot_id),
                return_exceptions=True,
            )

    def refresh(self) -> None:
        """Compare the versions now, as news may have been missed."""
        self._worker.spawn(self._once(self._versions))

    def redis_was_away(self) -> None:
        """Give other workers time to renew heartbeats that expired while Redis was unavailable."""
        self._believe_at = self._worker.loop.time() + BEAT_TTL_S

    # --- the heartbeat ------------------------------------------------------------------------

    async def _every(self, period_s: float, work: Any) -> None:
        while True:
            await self._once(work)
            await asyncio.sleep(period_s)

    async def _once(self, work: Any) -> None:
        try:
            await self._worker.until_usable()
            await work()
        except LinkLost:
            pass  # the next round follows the reconnect
        except hiredis.ReplyError as error:
            if str(error).startswith(TEMPORARY):
                self._worker.commit.refused_for_now(str(error))
            elif str(error).startswith(DISK_FULL):
                self._worker.commit.cannot_store(str(error))
            else:
                log.warning("redis refused the upkeep: %s", error)
        except Exception:
            # Without a heartbeat other workers bury this one: it continues whatever is in Redis.
            log.exception("upkeep")

    def _ask(self, *arguments: resp.Argument) -> asyncio.Future[Any]:
        return self._worker.request(resp.command(*arguments))

    async def _beat(self) -> None:
        worker = self._worker
        worker.hub.follow(worker.commit.run_id)
        name = keys.worker(worker.boot_id)
        try:
            there = await self._ask("EXPIRE", name, BEAT_TTL_S)
        except hiredis.ReplyError as error:
            if not str(error).startswith(DISK_FULL):
                raise
            # No worker can send a heartbeat now: give all of them time to renew it.
            worker.commit.cannot_store(str(error))
            self.redis_was_away()
            await self._versions()
            return
        try:
            await asyncio.gather(
                self._ask("HSET", name, *self._report()),
                self._ask("HSET", keys.WORKERS_SEEN, worker.boot_id, f"{worker.wall_s():.3f}"),
            )
            worker.meters.report_all(worker.wall_s(), worker.loop.time())
            worker.commit.schedule()
            if worker.commit.idle:
                worker.commit.writes_work()
            link = f"{worker.commit.run_id} {worker.commit.client_id}"
            if not there:
                await self._ask("EXPIRE", name, BEAT_TTL_S)
                await self._ask("SADD", keys.WORKERS, worker.boot_id)
            if not there or link != self._link:
                await self._ask("HSET", LINKS, worker.boot_id, link)
                self._link = link
        except hiredis.ReplyError as error:
            if not str(error).startswith("OOM"):
                raise
        if not there and self._beats:
            self.compare_all()  # others may have taken this worker for dead
        self._beats += 1
        if self._beats % 60 == 1 or self._redis_evicts:
            await self._look_at_redis()
        if self._beats % 60 == 1:
            worker.forget_destinations()
            worker.room.forget()
            worker.router.generation += 1
            await worker.guests.look_for_left()
            await self._keep_number()
        self.loop_lag_s = 0.0
        await self._once(self._publish_hits)
        await self._versions()
        await self._others_alive()

    async def _keep_number(self) -> None:
        """Keep the number of the last batch in Redis; 0 for a worker that has committed nothing.

        So its absence after a restart of Redis proves a loss.
        """
        commit, name = self._worker.commit, keys.commit_number(self._worker.boot_id)
        if not await self._ask("EXPIRE", name, batch.COMMIT_TTL_S):
            try:
                await self._ask("SET", name, 0, "EX", batch.COMMIT_TTL_S, "NX")
            except hiredis.ReplyError as error:
                if not str(error).startswith("OOM"):
                    raise
                return
        commit.numbered = True

    def _report(self) -> list[str | int | float]:
        """Return the heartbeat hash: the worker's identity, its state, and its counters."""
        worker = self._worker
        options = worker.options
        sessions = worker.connections
        gauges = {
            "relay_worker_connections": sessions,
            "relay_worker_loop_lag_seconds": self.loop_lag_s,
            "relay_commit_waiting_bytes": worker.commit.waiting_bytes,
            "relay_sessions_full": len(worker.full_sessions),
            **worker.gauges(),
        }
        fields: dict[str, str | int | float] = {
            "slot": options.slot,
            "pid": options.pid,
            "host": options.host,
            "started": f"{self.control.started_s:.3f}",
            "heartbeat": f"{worker.wall_s():.3f}",
            "sessions": sessions,
            "loop_lag_ms": round(self.loop_lag_s * 1000, 1),
            "commit_client": worker.commit.client_id,
            "run_id": worker.commit.run_id,
            "state": self.state,
            **self.recent.report(),
            "metrics": json.dumps({**gauges, **worker.metrics.series()}),
        }
        return [part for pair in fields.items() for part in pair]

    async def _publish_hits(self) -> None:
        await self._worker.hits.publish(self._worker)

    @property
    def state(self) -> str:
        """``ok``, or why the worker is not ready."""
        if self._worker.draining:
            return "draining"
        pipe = self._worker.commit.pipe
        if not pipe.usable or pipe.silent:
            return "redis_away"
        if self._worker.commit.storage_full_since is not None:
            return "disk_full" if self._worker.commit.disk_full else "storage_full"
        if self._worker.commit.refusal:
            return "redis_refuses"
        if self._redis_evicts:
            return "redis_policy"
        if not self.control.known:
            return "starting"
        return "ok"

    @property
    def _redis_evicts(self) -> bool:
        return self.redis_policy not in ("", "noeviction")

    async def _look_at_redis(self) -> None:
        before = self.redis_policy
        memory = resp.info(await self._ask("INFO", "memory"))
        self.redis_policy = memory.get("maxmemory_policy", self.redis_policy)
        if self._redis_evicts and self.redis_policy != before:
            log.error(
                "redis' maxmemory-policy is %s: queues would be evicted; set it to noeviction",
                self.redis_policy,
            )

    async def _versions(self) -> None:
        control, twins, guests = await asyncio.gather(
            self._ask("HGET", keys.CONTROL, "version"),
            self._ask("GET", keys.TWINS_VERSION),
            self._ask("GET", keys.GUESTS_VERSION),
        )
        self._worker.guests.version_seen(guests)
        self.control.twins_version(twins)
        await self.control.version_seen(control)

    # --- other workers ------------------------------------------------------------------------

    async def _others_alive(self) -> None:
        named = {boot.decode() for boot in await self._ask("SMEMBERS", keys.WORKERS)}
        boots = sorted(named - {self._worker.boot_id})
        present = await asyncio.gather(*(self._ask("EXISTS", keys.worker(b)) for b in boots))
        alive = {boot for boot, there in zip(boots, present, strict=True) if there}
        if self._worker.loop.time() < self._believe_at:
            self._others |= alive
            return
        for boot in boots:
            if boot not in alive:
                self._worker.spawn(self._once(partial(bury, self._worker, boot)))
        if self._others - alive:
            # A dead worker may have committed a batch without a wake; its connection is gone now.
            for session in list(self._worker.sessions):
                session.read()
        self._others = alive

    # --- the check ----------------------------------------------------------------------------

    async def _ticking(self) -> None:
        loop = self._worker.loop
        expected = loop.time()
        while True:
            expected = max(expected + TICK_S, loop.time())
            await asyncio.sleep(expected - loop.time())
            self.loop_lag_s = max(self.loop_lag_s, loop.time() - expected)
            try:
                self._tick()
            except Exception:
                log.exception("the check of the sessions")

    def _tick(self) -> None:
        worker = self._worker
        now = worker.loop.time()
        full = worker.full_sessions
        for session in list(islice(full, FULL_LOOKS)):
            del full[session]
            full[session] = None  # moved to the end, so that all get a turn
            session.writable()
            if (
                session.full_since is not None
                and now - session.full_since >= worker.bounds.back_pressure_s
            ):
                worker.end(session, SessionReason.BACK_PRESSURE)
        worker.confirm_stalled()
        if not self._ring:
            self._ring = [session for session in worker.sessions if session.held]
        portion = -(-len(worker.sessions) * TICK_S // CHECK_S)
        visited = [self._ring.pop() for _ in range(min(int(portion), len(self._ring)))]
        idle_s = worker.bounds.idle_timeout_s
        for session in visited:
            if session.sender is not None:
                session.sender.examine = None  # frees 1.2 KB that idle sessions do not need
            if idle_s and now - session.socket.last_received >= idle_s:
                worker.end(session, SessionReason.IDLE)
        held = [session for session in visited if session.held and session.live]
        if held and worker.commit.pipe.usable:
            self.compare(held)
            for session in held:
                if session.memory_mode:  # in catch-up the stream is read anyway
                    self._look(session)
        self.rates.tick(now)

    def _look(self, session: Session) -> None:
        """Check whether the stream has an entry that the session does not know."""
        start = b"-" if session.read_up_to == b"-" else b"(" + session.read_up_to
        count = CHECK_ENTRIES + len(session.inflight)
        self._worker.commit.submit(
            resp.command("XRANGE", session.destination.stream, start, "+", "COUNT", count),
            lambda reply: self._looked(session, reply),
        )

    def _looked(self, session: Session, reply: Any) -> None:
        if not isinstance(reply, list) or session.end_reason is not None:
            return
        unread = session.unread(reply)
        found = unread & session.suspects
        if found:
            log.error("the check found %d entries of %s", len(found), session.destination.text)
            self._worker.metrics.check_found += len(found)
            session.suspects = NO_ENTRIES
            session.read()
        elif unread:
            session.suspects = unread
            self._worker.loop.call_later(SECOND_LOOK_S, self._look, session)
        else:
            session.suspects = NO_ENTRIES

    def compare_all(self) -> None:
        """Compare every held epoch with the directory."""
        self.compare([session for session in self._worker.sessions if session.held])

    def compare_soon(self, session: Session) -> None:
        """Compare the epoch of a session, together with others of this turn of the loop."""
        if not self._to_compare:
            self._worker.loop.call_soon(self._compare_gathered)
        self._to_compare.append(session)

    def _compare_gathered(self) -> None:
        gathered, self._to_compare = self._to_compare, []
        self.compare(session for session in gathered if session.held)

    def compare(self, sessions: Iterable[Session]) -> None:
        """Compare the epochs of held sessions with the directory."""
        held = list(sessions)
        for first in range(0, len(held), COMPARED):
            part = held[first : first + COMPARED]
            texts = [session.destination.text for session in part]
            self._worker.commit.submit(
                resp.command("HMGET", keys.SESSIONS, *texts), partial(self._compared, part)
            )

    def _compared(self, part: list[Session], reply: Any) -> None:
        if not isinstance(reply, list):
            return  # compared again after the reconnect
        for session, entry in zip(part, reply, strict=True):
            epoch = scripts.entry_epoch(entry)
            if epoch < session.epoch:
                self._hold(session)
            else:
                session.evicted(epoch)

    def _hold(self, session: Session) -> None:
        """Enter a holder again that the directory does not name."""
        if not session.held:
            return
        self._worker.commit.submit(
            scripts.hold(
                session.destination.text,
                session.epoch,
                self._worker.boot_id,
                session.opened_at,
                session.address,
            ),
            lambda reply: None if isinstance(reply, Exception) else session.evicted(int(reply)),
        )

    # --- retention ----------------------------------------------------------------------------

    async def _sweep(self) -> None:
        """Remove old messages and empty queues, count what waits, and list the fullest queues.

        One worker at a time does it for all.
        """
        lease = await self._ask(
            "SET", SWEEP_LEASE, self._worker.boot_id, "NX", "EX", int(2 * SWEEP_S)
        )
        if lease is None:
            holder = await self._ask("GET", SWEEP_LEASE)
            if holder != self._worker.boot_id.encode():
                return
            await self._ask("EXPIRE", SWEEP_LEASE, int(2 * SWEEP_S))
        # By the clock that gave the entries their ids: the local one may be ahead.
        now_s = int((await self._ask("TIME"))[0])
        oldest = (now_s - self._worker.options.queue.retention_s) * 1000
        policy = self._worker.commit.policy
        full: list[tuple[float, str, int, int]] = []
        waiting = told = 0
        cursor = b"0"
        while True:
            cursor, streams = await self._ask("SCAN", cursor, *STREAMS)
            if self._worker.recording:
                told = await self._tell_trimmed(streams, oldest, told)
            trimmed = await asyncio.gather(
                *(self._ask("XTRIM", stream, "MINID", oldest) for stream in streams)
            )
            expired = sum(trimmed)
            if expired:
                self._worker.drop_unseen(expired, MessageReason.QUEUE_EXPIRED)
            if streams:
                await self._worker.request(scripts.outlive(streams, 2 * policy.retention_s))
            messages, queues = await self._full_queues(streams, policy)
            waiting += messages
            full = heapq.nlargest(FULLEST, [*full, *queues])
            if cursor == b"0":
                break
        await charges.give_back(self._worker)
        await charges.name_fullest(self._worker, int(3 * SWEEP_S))
        fullest = json.dumps([queue[1:] for queue in full])
        await self._ask("SET", keys.FULLEST, fullest, "EX", int(3 * SWEEP_S))
        await self._ask("SET", keys.WAITING, waiting, "EX", int(3 * SWEEP_S))

    async def _tell_trimmed(self, streams: list[bytes], oldest: int, told: int) -> int:
        """Report messages that are about to be removed to the recorder.

        Returns:
            Number of messages reported, including the `told` before in this sweep.
        """
        last, recorder = oldest - 1, self._worker.recorder
        firsts = await asyncio.gather(
            *(self._ask("XRANGE", stream, "-", last, "COUNT", 1) for stream in streams)
        )
        for stream, first in zip(streams, firsts, strict=True):
            entries = first
            while entries and told < recorder.told_trims:
                told += len(entries)
                for entry_id, fields in entries:
                    if fields[0] == b"_":
                        recorder.trimmed(entry_id, fields[1], MessageReason.QUEUE_EXPIRED)
                after = b"(" + entries[-1][0]
                entries = await self._ask("XRANGE", stream, after, last, "COUNT", TRIMS_AT_ONCE)
        return told

    async def _full_queues(
        self, streams: list[bytes], policy: batch.QueuePolicy
    ) -> tuple[int, list[tuple[float, str, int, int]]]:
        """Return the number of messages in these queues, and a tuple for each that is half full:
        the part of the bound that is filled, its name, messages and bytes.
        """
        if not streams:
            return 0, []
        bounds = int(policy.max_messages * FULL_PART), int(policy.max_bytes * FULL_PART)
        total, *found = await self._worker.request(scripts.fullest(streams, *bounds))
        return total, [
            (
                max(messages / policy.max_messages, size / policy.max_bytes),
                name.removeprefix(keys.stream("")).decode(errors="replace"),
                messages,
                size,
            )
            for name, messages, size in zip(found[::3], found[1::3], found[2::3], strict=True)
        ]
