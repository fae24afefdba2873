"""Tests of the simulation: time, processes, links and sockets behave as described."""

from __future__ import annotations

import asyncio
from typing import Any

import hiredis
import pytest

from tests.support.sim.loop import LimitReached, NothingHappens, Simulation, SimulationError
from tests.support.sim.net import Network
from tests.support.sim.redis import SimRedis
from tests.support.sim.socket import HANDSHAKE_BYTES, SimClient


def test_time_jumps_to_the_next_timer_and_timers_keep_their_order() -> None:
    simulation = Simulation()
    loop = simulation.loop("a")
    seen: list[tuple[float, str]] = []
    for when, name in ((5.0, "late"), (1.0, "first"), (1.0, "second")):
        loop.call_later(when, lambda name=name: seen.append((simulation.now, name)))
    simulation.run_for(3_600)
    assert seen == [(1.0, "first"), (1.0, "second"), (5.0, "late")]
    assert simulation.now == 3_600


def test_tasks_timeouts_and_events_work_on_virtual_time() -> None:
    simulation = Simulation()
    loop = simulation.loop("a")

    async def main() -> str:
        event = asyncio.Event()
        asyncio.get_running_loop().call_later(100, event.set)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(99):
                await event.wait()
        await event.wait()
        await asyncio.gather(asyncio.sleep(5), asyncio.sleep(7))
        return "done"

    assert simulation.complete(loop, main(), limit_s=200) == "done"
    assert simulation.now == 107


def test_a_wait_for_what_cannot_happen_raises() -> None:
    simulation = Simulation()
    with pytest.raises(NothingHappens):
        simulation.run_until(lambda: False, limit_s=10)
    simulation.loop("a").call_later(100, lambda: None)
    with pytest.raises(LimitReached):
        simulation.run_until(lambda: False, limit_s=10)


def test_an_unhandled_error_fails_the_run() -> None:
    simulation = Simulation()
    simulation.loop("a").call_soon(lambda: 1 / 0)
    with pytest.raises(SimulationError, match="process a"):
        simulation.run_for(1)


def test_a_frozen_process_is_late_and_a_killed_one_runs_nothing_not_even_finally() -> None:
    simulation = Simulation()
    loop = simulation.loop("a")
    seen: list[Any] = []

    async def main() -> None:
        try:
            while True:
                await asyncio.sleep(1)
                seen.append(simulation.now)
        finally:
            seen.append("finally")

    loop.create_task(main())
    simulation.run_for(1.5)
    loop.freeze_for(3)
    simulation.run_for(4)
    assert seen == [1.0, 4.5, 5.5]
    loop.kill()
    simulation.run_for(10)
    assert seen == [1.0, 4.5, 5.5]


class Client(asyncio.Protocol):
    def __init__(self) -> None:
        self.reader = hiredis.Reader()
        self.replies: list[Any] = []
        self.received = 0
        self.lost = False
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        self.reader.feed(data)
        while (reply := self.reader.gets()) is not False:
            self.replies.append(reply)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True

    def ask(self, *argv: Any) -> int:
        request: bytes = hiredis.pack_command(argv)
        self.transport.write(request)
        return len(request)


class Bench:
    def __init__(self) -> None:
        self.simulation = Simulation(1)
        self.redis = SimRedis(self.simulation.unix_time, self.simulation.rng)
        self.server_loop = self.simulation.loop("redis")
        self.network = Network(self.simulation, self.redis, self.server_loop)
        self.loop = self.simulation.loop("worker")

    def connect(self) -> Client:
        connect = self.network.connector(self.loop)
        transport = self.simulation.complete(self.loop, connect(Client))
        client: Client = transport.get_protocol()
        return client


def test_a_link_cut_after_n_bytes_lets_exactly_those_pass() -> None:
    for upwards in range(1, 55):
        bench = Bench()
        client = bench.connect()
        link = bench.network.links[0]
        link.up.cut_after = upwards
        size = client.ask("SET", "a", "1")
        client.ask("SET", "b", "1")
        bench.simulation.run_until(lambda client=client: client.lost, 5)
        assert link.up.carried == upwards
        assert bench.redis.run("EXISTS", "a") == int(upwards >= size)
        assert bench.redis.run("EXISTS", "b") == int(upwards >= 2 * size)
        assert not bench.redis.connections
    bench = Bench()
    client = bench.connect()
    bench.network.links[0].down.cut_after = 3
    client.ask("SET", "a", "1")
    bench.simulation.run_until(lambda: client.lost, 5)
    assert client.received == 3 and not client.replies and bench.redis.run("GET", "a") == b"1"


def test_a_half_open_server_executes_later_unless_the_old_connection_is_killed() -> None:
    for kill in (False, True):
        bench = Bench()
        client = bench.connect()
        bench.simulation.run_for(1)
        link = bench.network.links[0]
        client.ask("SET", "a", "1")
        link.half_open(for_s=5)
        bench.simulation.run_until(lambda client=client: client.lost, 1)
        successor = bench.connect()
        if kill:
            successor.ask("CLIENT", "KILL", "ID", link.server.client_id)
        bench.simulation.run_for(4)
        assert bench.redis.run("EXISTS", "a") == 0
        bench.simulation.run_for(2)
        assert bench.redis.run("EXISTS", "a") == int(not kill)
        assert not link.server.open


def test_a_crash_forgets_the_last_writes_and_ids_start_again() -> None:
    bench = Bench()
    client = bench.connect()
    first_id = bench.network.links[0].server.client_id
    for number in range(5):
        client.ask("XADD", "s", "*", "_", number)
    bench.simulation.run_until(lambda: len(client.replies) == 5, 1)
    run_id = bench.redis.run_id
    assert bench.redis.crash(lose=2) == 2
    bench.simulation.run_until(lambda: client.lost, 1)
    with pytest.raises(ConnectionRefusedError):
        bench.connect()
    bench.redis.restart()
    bench.connect()
    assert bench.redis.run_id != run_id
    assert bench.network.links[0].server.client_id == first_id
    kept = bench.redis.run("XRANGE", "s", "-", "+")
    assert [entry[0] for entry in kept] == client.replies[:3]


def test_a_paused_redis_answers_when_it_goes_on() -> None:
    bench = Bench()
    client = bench.connect()
    bench.server_loop.freeze_for(10)
    client.ask("PING")
    bench.simulation.run_for(9)
    assert not client.replies
    bench.simulation.run_for(2)
    assert client.replies == [b"PONG"]


class Recorder:
    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.writable_calls = 0
        self.code: int | None = None

    def messages_received(self, messages: list[bytes]) -> None:
        self.messages += messages

    def writable(self) -> None:
        self.writable_calls += 1

    def closed(self, code: int, detail: Any) -> None:
        assert self.code is None
        self.code = code


def connected(**options: Any) -> tuple[Simulation, SimClient, Recorder]:
    simulation = Simulation(3)
    client = SimClient(simulation, simulation.loop("worker"), **options)
    recorder = Recorder()
    client.socket.start(recorder)
    return simulation, client, recorder


def test_messages_pass_both_ways_and_are_acknowledged_on_arrival() -> None:
    simulation, client, recorder = connected()
    sizes = (0, 1, 125, 126, 65_535, 65_536)
    position = client.socket.send_messages([b"x" * size for size in sizes])
    assert position == client.socket.written
    assert client.socket.acknowledged() < position
    client.send(b"one")
    client.send(b"two")
    simulation.run_for(5)
    assert [len(message) for message in client.arrived] == list(sizes)
    assert client.socket.acknowledged() == position and client.socket.drained()
    assert recorder.messages == [b"one", b"two"]
    assert recorder.writable_calls == 1


def test_a_client_that_does_not_read_fills_window_queue_and_buffer() -> None:
    simulation, client, _ = connected(receive_window_bytes=1_000, send_queue_bytes=2_000)
    client.stop_reading()
    for _ in range(100):
        client.socket.send_messages([b"x" * 98])
    simulation.run_for(60)
    assert client.socket.acknowledged() == 1_000
    assert client.socket.buffered_bytes() == HANDSHAKE_BYTES + 10_000 - 3_000
    client.start_reading()
    simulation.run_for(60)
    assert client.socket.acknowledged() == HANDSHAKE_BYTES + 10_000
    assert len(client.read) == 100


def test_a_reset_loses_what_was_not_acknowledged_and_the_relay_still_knows_what_was() -> None:
    simulation, client, recorder = connected(receive_window_bytes=1_000, send_queue_bytes=2_000)
    client.stop_reading()
    client.socket.send_messages([b"x" * 98] * 100)
    simulation.run_for(1)
    client.reset()
    simulation.run_for(1)
    assert recorder.code == 1006
    assert client.socket.buffered_bytes() == 0
    assert client.socket.acknowledged() == 1_000
    assert client.socket.send_messages([b"late"]) > client.socket.acknowledged()


def test_a_vanished_client_acknowledges_nothing_and_nobody_is_told() -> None:
    simulation, client, recorder = connected()
    simulation.run_for(1)
    client.vanish()
    client.socket.send_messages([b"x"])
    client.send(b"lost")
    simulation.run_for(100)
    assert client.socket.acknowledged() == HANDSHAKE_BYTES
    assert recorder.messages == [] and recorder.code is None
    client.socket.close(4001, "replaced")
    simulation.run_for(10)
    assert recorder.code == 4001


def test_closing_with_a_full_buffer_drops_it_without_a_close_frame() -> None:
    simulation, client, recorder = connected(receive_window_bytes=1_000, send_queue_bytes=2_000)
    client.stop_reading()
    client.socket.send_messages([b"x" * 98] * 100)
    simulation.run_for(1)
    client.socket.close(4001, "replaced")
    client.start_reading()
    simulation.run_for(5)
    assert recorder.code == 4001
    assert client.close_code == 1006, "no close frame"
    assert len(client.arrived) == (3_000 - HANDSHAKE_BYTES) // 100


def test_both_sides_can_close_and_a_killed_workers_kernel_still_sends() -> None:
    simulation, client, recorder = connected()
    client.socket.send_messages([b"a"])
    client.send(b"b")
    client.close(1000)
    simulation.run_for(5)
    assert (client.arrived, recorder.messages, recorder.code) == ([b"a"], [b"b"], 1000)
    simulation, client, recorder = connected()
    client.socket.send_messages([b"a"])
    client.socket.close(1012, "drained")
    simulation.run_for(5)
    assert (client.arrived, client.close_code, recorder.code) == ([b"a"], 1012, 1012)
    simulation, client, recorder = connected()
    client.socket.send_messages([b"a"])
    client.socket.loop.kill()
    client.socket.process_died()
    simulation.run_for(5)
    assert (client.arrived, client.close_code, recorder.code) == ([b"a"], 1006, None)
