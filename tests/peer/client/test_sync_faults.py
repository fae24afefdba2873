"""The blocking client when it is interrupted, closed, or awaited by many threads."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from peer.client import Client, ExpiredError, PeerError, RemoteError, Reply, Request, SyncClient
from tests.peer.client.conftest import MakeClient, secret_of
from tests.peer.client.test_faults import Twins, sealer_of, sign_in
from tests.peer.client.test_sync import make
from tests.support.identities import Twin
from tests.support.relay_process import RelayProcess
from tests.support.world import fresh_twins

AWAY = "ws://127.0.0.1:1"


class SlowTwins(Twins):
    """Answers the look-up of the own twin only when the test allows it."""

    def __init__(self, *twins: Twin) -> None:
        super().__init__(*twins)
        self.asked_for = threading.Event()
        self.goes_on = threading.Event()
        self.beginnings = 0

    async def by_account(self, account: bytes) -> object:
        self.beginnings += 1
        self.asked_for.set()
        while not self.goes_on.is_set():
            await asyncio.sleep(0.01)
        return await super().by_account(account)


def threads_of_clients() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "rmb-client"]


class SoftLimitError(Exception):
    """Stands in for the soft time limit error of Celery."""


@contextmanager
def interrupted_by(signal_number: int) -> Iterator[None]:
    def interrupt(*_: object) -> None:
        raise SoftLimitError

    before = signal.signal(signal_number, interrupt)
    try:
        yield
    finally:
        signal.signal(signal_number, before)


def test_a_first_use_that_is_interrupted_leaves_one_client(relay: RelayProcess) -> None:
    (alice,) = fresh_twins(1)
    twins = SlowTwins(alice)
    before = len(threads_of_clients())
    client = SyncClient(secret_of(alice), [relay.url], twins, sid="tasks", timeout=10)

    def interrupt() -> None:
        assert twins.asked_for.wait(10)
        os.kill(os.getpid(), signal.SIGUSR1)

    with interrupted_by(signal.SIGUSR1):
        other = threading.Thread(target=interrupt)
        other.start()
        with pytest.raises(SoftLimitError):
            client.flush()
        other.join()
    twins.goes_on.set()
    client.flush()
    assert twins.beginnings == 1
    assert len(threads_of_clients()) == before + 1
    client.close()
    assert len(threads_of_clients()) == before


def test_all_wait_for_one_beginning_each_in_its_own_time(relay: RelayProcess) -> None:
    alice, bob = fresh_twins(2)
    twins = SlowTwins(alice, bob)
    client = SyncClient(secret_of(alice), [relay.url], twins, timeout=10)
    took: list[float] = []

    def wait(timeout: float) -> None:
        began = time.monotonic()
        with pytest.raises(ExpiredError, match=r"not signed in within 0\.\d s"):
            client.call(bob.id, "x", timeout=timeout)
        took.append(time.monotonic() - began)

    threads = [threading.Thread(target=wait, args=(0.3,)) for _ in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(10)
    assert len(took) == 6 and max(took) < 1
    with pytest.raises(ValueError, match="timeout: above 0"):
        client.call(bob.id, "x", timeout=0)
    twins.goes_on.set()
    client.flush()
    assert twins.beginnings == 1
    client.close()


def test_a_beginning_can_be_closed(relay: RelayProcess) -> None:
    (alice,) = fresh_twins(1)
    twins = SlowTwins(alice)
    client = SyncClient(secret_of(alice), [relay.url], twins)
    told: list[str] = []

    def use() -> None:
        with pytest.raises(RuntimeError) as caught:
            client.flush()
        told.append(str(caught.value))

    user = threading.Thread(target=use)
    user.start()
    assert twins.asked_for.wait(10)
    client.close()
    user.join(10)
    assert told == ["the client is closed: make a new one"]


def test_a_beginning_that_failed_is_tried_again(relay: RelayProcess) -> None:
    alice, bob = fresh_twins(2)
    twins = Twins(bob)
    client = SyncClient(secret_of(alice), [relay.url], twins, timeout=10)
    with pytest.raises(PeerError, match="no twin found"):
        client.flush()
    client.serve({"x": lambda request: b"1"})
    twins.by_number.update(Twins(alice).by_number)
    client.flush()
    client.close()


def test_no_call_waits_for_ever_for_a_client_that_is_closed() -> None:
    (alice,) = fresh_twins(1)
    ends: list[str] = []

    def work(client: SyncClient) -> None:
        try:
            while True:
                client.twin(alice.id)
        except Exception as error:
            ends.append(str(error))

    for _ in range(60):
        client = SyncClient(secret_of(alice), [AWAY], Twins(alice), connect_timeout=0)
        client.twin(alice.id)
        threads = [threading.Thread(target=work, args=(client,)) for _ in range(4)]
        for each in threads:
            each.start()
        client.close()
        for each in threads:
            each.join(10)
            assert not each.is_alive()
    assert len(ends) == 240


def test_a_coroutine_handler_does_not_wait_for_its_own_loop(
    relay: RelayProcess, twins_file: Path
) -> None:
    alice, bob = fresh_twins(2)
    with (
        make(relay, twins_file, bob, sid=None) as server,
        make(relay, twins_file, alice) as client,
    ):

        async def blocks(request: Request) -> bytes:
            return server.call(bob.id, "other", timeout=5).payload

        async def awaits(request: Request) -> bytes:
            asked = asyncio.wrap_future(server.begin_call(bob.id, "other", timeout=5))
            return (await asked).payload

        server.serve({"blocks": blocks, "awaits": awaits, "other": lambda request: b"ok"})
        with pytest.raises(RemoteError, match="the service failed"):
            client.call(bob.id, "blocks")
        assert client.call(bob.id, "awaits").payload == b"ok"


async def test_ask_waits_for_twins_not_for_answers(
    make_client: MakeClient, relay: RelayProcess, twins_file: Path
) -> None:
    alice, bob, carol = fresh_twins(3)
    first = asyncio.Event()

    async def late(request: Request) -> bytes:
        await first.wait()
        return b"carol"

    with make(relay, twins_file, alice) as client:
        async with sign_in(relay.url, bob) as raw, make_client(carol, sid=None) as server:
            server.serve({"status": late})
            asked = [bob.id, carol.id, bob.id]
            asking = asyncio.create_task(asyncio.to_thread(client.ask, asked, "status"))
            request = await raw.receive()
            receiver, now = await server.twin(alice.id), int(time.time())
            to = (request.source.twin, request.source.connection)
            for text in (b"1", b"2"):
                answer = sealer_of(bob).response(request.uid, to, text, receiver, now, 60)
                await raw.send_bytes(answer)
            await asyncio.to_thread(client.flush)
            first.set()
            found = await asyncio.wait_for(asking, 8)
        assert [each.payload for each in found if isinstance(each, Reply)] == [b"1", b"2", b"carol"]


def test_nobody_to_ask(relay: RelayProcess, twins_file: Path) -> None:
    (alice,) = fresh_twins(1)
    with make(relay, twins_file, alice, timeout=600) as client:
        assert client.ask([], "status") == []


async def test_where_one_cannot_be_asked_nobody_is(relay: RelayProcess) -> None:
    alice, bob, carol = fresh_twins(3)
    twins = Twins(alice, bob, carol)
    twins.by_number[carol.id] = twins.by_number[carol.id]._replace(pk=b"\xff" * 33)
    asked: list[str] = []
    served = Client(secret_of(bob), [relay.url], twins, sid=None, timeout=10)
    async with served, Client(secret_of(alice), [relay.url], twins, timeout=10) as client:
        served.serve({"status": lambda request: asked.append("status"), "end": lambda _: b""})
        with pytest.raises(PeerError, match=f"twin {carol.id} publishes no usable key"):
            async with client.ask([bob.id, carol.id], "status"):
                """Nobody was asked."""
        await client.call(bob.id, "end")
    assert asked == []
