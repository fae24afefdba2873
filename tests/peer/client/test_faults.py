"""Clients when connections break, relays stop, messages repeat and keys change."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from pathlib import Path

import pytest

from peer.client import (
    Client,
    ConnectError,
    ExpiredError,
    Identity,
    Request,
    Twin,
    UnverifiedError,
)
from peer.unconfirmed import WINDOW_MESSAGES
from proto.rmb.sealing import Sealer, new_uid
from proto.rmb.types_pb2 import Envelope
from tests.peer.client.conftest import MakeClient, secret_of
from tests.support import identities
from tests.support.relay_process import RelayProcess
from tests.support.rmb_client import session as sign_in
from tests.support.tcp_proxy import Direction, tcp_proxy
from tests.support.waiting import eventually
from tests.support.world import fresh_twins


class Twins:
    """A source of twins whose answers a test may change."""

    def __init__(self, *twins: identities.Twin) -> None:
        self.by_number = {
            each.id: Twin(each.id, each.account, each.encryption_key.public, (each.relays,))
            for each in twins
        }
        self.asked: Counter[int] = Counter()

    async def by_id(self, twin_id: int) -> Twin | None:
        self.asked[twin_id] += 1
        return self.by_number.get(twin_id)

    async def by_account(self, account: bytes) -> Twin | None:
        return next((each for each in self.by_number.values() if each.account == account), None)

    async def aclose(self) -> None:
        pass


async def echo(request: Request) -> bytes:
    return request.payload


def sealer_of(twin: identities.Twin, sid: str | None = None) -> Sealer:
    return Sealer((twin.id, sid), twin.signing_key, twin.encryption_key, os.urandom)


# The connection.


async def test_calls_survive_the_loss_of_the_connection(
    make_client: MakeClient, relay: RelayProcess
) -> None:
    alice, bob = fresh_twins(2)
    handled: list[int] = []
    go = asyncio.Event()

    async def slow(request: Request) -> object:
        handled.append(request.json())
        await go.wait()
        return request.json()

    async with tcp_proxy(("127.0.0.1", relay.port)) as proxy:
        url = f"ws://127.0.0.1:{proxy.port}"
        async with (
            make_client(bob, sid=None, handlers={"slow": slow}),
            make_client(alice, relays=[url], timeout=30) as client,
        ):
            calls = [asyncio.create_task(client.call(bob.id, "slow", n)) for n in range(20)]
            await eventually(lambda: len(handled) == 20)
            proxy.reset_all()
            await eventually(lambda: not client.connected)
            # Started while there is no relay.
            calls += [asyncio.create_task(client.call(bob.id, "slow", n)) for n in range(20, 40)]
            go.set()
            assert [reply.json() for reply in await asyncio.gather(*calls)] == list(range(40))
            assert sorted(handled) == list(range(40))


async def test_what_a_broken_connection_swallowed_is_sent_again(
    make_client: MakeClient, relay: RelayProcess
) -> None:
    alice, bob = fresh_twins(2)
    handled: list[int] = []
    async with tcp_proxy(("127.0.0.1", relay.port)) as proxy:
        url = f"ws://127.0.0.1:{proxy.port}"
        async with make_client(bob, sid=None) as server:
            server.serve({"note": lambda request: handled.append(request.json())})
            async with make_client(alice, relays=[url], timeout=30) as client:
                proxy.stall(Direction.TO_SERVER)
                for number in range(10):
                    await client.notify(bob.id, "note", number)
                await asyncio.sleep(0)
                proxy.reset_all()  # with the messages in it
                await client.flush()
            await eventually(lambda: len(handled) == 10)
            assert handled == list(range(10))


async def test_another_relay_takes_over(make_client: MakeClient, relay: RelayProcess) -> None:
    """If the first of two routes to one relay is cut for good, the second is used."""
    alice, bob = fresh_twins(2)
    async with (
        tcp_proxy(("127.0.0.1", relay.port)) as first,
        tcp_proxy(("127.0.0.1", relay.port)) as second,
        make_client(bob, sid=None, handlers={"echo": echo}),
    ):
        # Two sessions of one sid at one relay would replace each other.
        second.refusing = True
        urls = [f"ws://127.0.0.1:{each.port}" for each in (first, second)]
        async with make_client(alice, relays=urls, timeout=30) as client:
            assert (await client.call(bob.id, "echo", b"1")).payload == b"1"
            first.refusing, second.refusing = True, False
            first.reset_all()
            assert (await client.call(bob.id, "echo", b"2")).payload == b"2"
            assert second.connections and not first.connections


async def test_a_call_without_a_relay_expires(make_client: MakeClient) -> None:
    (alice,) = fresh_twins(1)
    async with make_client(alice, relays=["ws://127.0.0.1:1"], connect_timeout=0) as client:
        with pytest.raises(
            ExpiredError, match=r"no relay: ws://127\.0\.0\.1:1: .*Connect call failed"
        ):
            await client.call(alice.id, "echo", timeout=0.5)
        with pytest.raises(ExpiredError, match="no relay has confirmed"):
            await client.flush(timeout=0.2)


async def test_a_client_that_no_relay_lets_in(make_client: MakeClient, twins_file: Path) -> None:
    (alice,) = fresh_twins(1)
    client = make_client(alice, relays=["ws://127.0.0.1:1"], connect_timeout=0.3)
    with pytest.raises(ConnectError, match=r"cannot connect to a relay: ws://127\.0\.0\.1:1"):
        await client.__aenter__()
    stranger = Client("0x" + "42" * 32, ["ws://127.0.0.1:1"], twins_file)
    with pytest.raises(ConnectError, match="no twin found on this network with given key"):
        await stranger.__aenter__()


async def test_waiting_for_a_relay_is_told(
    make_client: MakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    (alice,) = fresh_twins(1)
    client = make_client(alice, relays=["ws://127.0.0.1:1"], connect_timeout=1.2)
    with pytest.raises(ConnectError):
        await client.__aenter__()
    (told,) = [each.getMessage() for each in caplog.records if each.name == "peer.client.client"]
    assert told.startswith("cannot connect to a relay yet (ws://127.0.0.1:1: ")


async def test_the_relay_says_why_it_refuses(make_client: MakeClient, relay: RelayProcess) -> None:
    alice, impostor = fresh_twins(2)
    twins = Twins(alice)
    twins.by_number[alice.id] = twins.by_number[alice.id]._replace(account=impostor.account)
    client = Client(secret_of(impostor), [relay.url], twins, connect_timeout=1)
    with pytest.raises(ConnectError, match=r"refused with status 401: .*invalid jwt"):
        await client.__aenter__()


# Messages.


async def test_a_repeat_is_carried_out_once_and_answered_alike(
    make_client: MakeClient, relay: RelayProcess
) -> None:
    alice, bob = fresh_twins(2)
    handled: list[bytes] = []

    async def note(request: Request) -> None:
        handled.append(request.payload)

    async with make_client(bob, sid=None) as server, sign_in(relay.url, alice) as raw:
        server.serve({"note": note})
        sealer, now = sealer_of(alice), int(time.time())
        receiver = await server.twin(bob.id)
        message = sealer.request("uid", (bob.id, None), "note", b"x", receiver, now, 60)
        again = sealer.request("uid", (bob.id, None), "note", b"y", receiver, now, 60)
        await raw.send_bytes(message)
        first = await raw.receive_bytes()
        await raw.send_bytes(message)
        # The request is not executed again, but its answer may have been lost.
        assert await raw.receive_bytes() == first
        assert server.counters["repeated"] == 1
        await raw.send_bytes(again)
        assert await raw.receive_bytes() != first
        assert handled == [b"x", b"y"]


async def test_different_answers_to_one_request_all_arrive_and_repeats_do_not(
    make_client: MakeClient, relay: RelayProcess
) -> None:
    alice, bob = fresh_twins(2)
    async with make_client(alice) as client, sign_in(relay.url, bob) as raw:
        async with client.ask([bob.id], "status") as answers:
            request = await raw.receive()
            sealer, now = sealer_of(bob), int(time.time())
            asker = await client.twin(alice.id)
            to = client.address
            first = sealer.response(request.uid, to, b"1", asker, now, 60)
            second = sealer.response(request.uid, to, b"2", asker, now, 60)
            for data in (first, first, second):
                await raw.send_bytes(data)
            assert [(await anext(answers)).payload for _ in range(2)] == [b"1", b"2"]
        assert client.counters["repeated"] == 1


@pytest.mark.parametrize("kind", ["unsigned", "another key", "another twin", "unreadable"])
async def test_answers_that_are_not_the_twins(
    make_client: MakeClient, relay: RelayProcess, kind: str
) -> None:
    alice, bob, mallory = fresh_twins(3)
    answerer = mallory if kind == "another twin" else bob
    async with (
        make_client(alice) as client,
        sign_in(relay.url, bob) as listener,
        sign_in(relay.url, mallory) as other,
    ):
        raw = other if answerer is mallory else listener
        call = asyncio.create_task(client.call(bob.id, "status"))
        request = await listener.receive()
        receiver = await client.twin(alice.id)
        if kind == "unreadable":
            assert receiver is not None
            receiver = receiver._replace(pk=mallory.encryption_key.public)
        keys = mallory if kind == "another key" else answerer
        sealer = Sealer((answerer.id, None), keys.signing_key, answerer.encryption_key, os.urandom)
        data = sealer.response(request.uid, client.address, b"1", receiver, int(time.time()), 60)
        if kind == "unsigned":
            envelope = type(request).FromString(data)
            envelope.ClearField("signature")
            data = envelope.SerializeToString()
        await raw.send_bytes(data)
        with pytest.raises(UnverifiedError) as caught:
            await call
        assert {
            "unsigned": "message is not signed",
            "another key": "sr25519 signature verification failed",
            "another twin": "which was not asked",
            "unreadable": "e2e error: invalid cipher data",
        }[kind] in str(caught.value)


async def test_requests_that_cannot_be_used_are_answered_with_their_code(
    make_client: MakeClient, relay: RelayProcess
) -> None:
    alice, bob, mallory = fresh_twins(3)
    async with (
        make_client(bob, sid=None, handlers={"echo": echo}) as server,
        sign_in(relay.url, alice) as raw,
    ):
        receiver = await server.twin(bob.id)
        assert receiver is not None
        now, to = int(time.time()), (bob.id, None)
        own = Sealer((alice.id, None), mallory.signing_key, alice.encryption_key, os.urandom)
        wrong = receiver._replace(pk=mallory.encryption_key.public)
        sent = {
            102: sealer_of(alice).request("a", to, "echo", b"", receiver, now - 100, 60),
            104: own.request("b", to, "echo", b"", receiver, now, 60),
            106: sealer_of(alice).request("c", to, "echo", b"", wrong, now, 60),
        }
        for code, data in sent.items():
            await raw.send_bytes(data)
            answer = await raw.receive()
            assert answer.error.code == code
            assert answer.signature and answer.source.twin == bob.id
        assert server.counters["requests"] == 0


async def test_no_more_errors_wait_than_other_messages(
    make_client: MakeClient, relay: RelayProcess
) -> None:
    """The number of waiting errors is bounded like that of other messages.

    Any client can cause errors, and the relay accepts none at the moment.
    """
    bob, mallory = fresh_twins(2)
    forged, count = sealer_of(mallory), WINDOW_MESSAGES + 10
    async with tcp_proxy(("127.0.0.1", relay.port)) as proxy:
        url = f"ws://127.0.0.1:{proxy.port}"
        async with make_client(bob, sid=None, handlers={"echo": echo}, relays=[url]) as server:
            receiver = await server.twin(bob.id)
            assert receiver is not None
            proxy.stall(Direction.TO_SERVER)
            data = forged.request("a", (bob.id, None), "echo", b"", receiver, int(time.time()), 60)
            envelope = Envelope.FromString(data)
            for number in range(count):
                envelope.uid = str(number)  # now the signature is wrong
                server._open.inbox.on_message(envelope.SerializeToString())
            await eventually(lambda: server.counters["refused 104"] == count)
            assert server.counters["rejections dropped"] == 10
            proxy.resume(Direction.TO_SERVER)


async def test_a_message_for_somebody_else_is_dropped(
    make_client: MakeClient, relay: RelayProcess
) -> None:
    """Messages for another twin or another session, which only a relay could bring, are dropped."""
    alice, bob, carol = fresh_twins(3)
    async with make_client(bob, sid=None, handlers={"echo": echo}) as server:
        session = server._open
        for other in ((carol.id, None), (bob.id, ""), (bob.id, "laptop")):
            data = sealer_of(alice).request(
                new_uid(os.urandom), other, "echo", b"plain", None, int(time.time()), 60
            )
            session.inbox.on_message(data)
        session.inbox.on_message(b"\xff\xff no envelope")
        await eventually(lambda: server.counters["misdirected"] == 3)
        assert server.counters["unparsable"] == 1
        assert server.counters["requests"] == 0


# Keys.


async def test_twins_that_change_their_keys(relay: RelayProcess) -> None:
    """A call succeeds although each side has the other's former encryption key in its cache."""
    alice, bob = fresh_twins(2)
    of_alice, of_bob = Twins(alice, bob), Twins(alice, bob)
    new_alice = Identity(alice.signing_key, Identity.from_secret("0x" + "51" * 32).encryption)
    new_bob = Identity(bob.signing_key, Identity.from_secret("0x" + "52" * 32).encryption)
    async with (
        Client(secret_of(bob), [relay.url], of_bob, sid=None, handlers={"echo": echo}) as old,
        Client(secret_of(alice), [relay.url], of_alice) as client,
    ):
        assert (await client.call(bob.id, "echo", b"1")).payload == b"1"
        # Bob returns with another key; Alice's cache has the old one.
        await old.__aexit__(None, None, None)
        for twins in (of_alice, of_bob):
            twins.by_number[bob.id] = twins.by_number[bob.id]._replace(pk=new_bob.pk)
        async with Client(new_bob, [relay.url], of_bob, sid=None, handlers={"echo": echo}):
            assert (await client.call(bob.id, "echo", b"2")).payload == b"2"
            assert of_alice.asked[bob.id] == 2
            # Alice changes her key as well, and Bob does not know of it.
            for twins in (of_alice, of_bob):
                twins.by_number[alice.id] = twins.by_number[alice.id]._replace(pk=new_alice.pk)
            async with Client(new_alice, [relay.url], of_alice) as changed:
                assert (await changed.call(bob.id, "echo", b"3")).payload == b"3"


async def test_a_twin_without_an_encryption_key(relay: RelayProcess) -> None:
    alice, bob = fresh_twins(2)
    twins = Twins(alice, bob)
    for number, twin in twins.by_number.items():
        twins.by_number[number] = twin._replace(pk=None)
    async with (
        Client(secret_of(bob), [relay.url], twins, sid=None, handlers={"echo": echo}),
        Client(secret_of(alice), [relay.url], twins) as client,
    ):
        assert (await client.call(bob.id, "echo", b"plain")).payload == b"plain"


# Too much.


async def test_more_requests_than_handlers(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peer.client.serving.MAX_RUNNING", 3)
    monkeypatch.setattr("peer.client.serving.MAX_HELD", 5)
    alice, bob = fresh_twins(2)
    running: list[int] = []
    most = 0

    async def work(request: Request) -> object:
        nonlocal most
        running.append(1)
        most = max(most, len(running))
        await asyncio.sleep(0.001)
        running.pop()
        return request.json()

    async with (
        make_client(bob, sid=None, handlers={"work": work}),
        make_client(alice, timeout=30) as client,
    ):
        calls = (client.call(bob.id, "work", n) for n in range(300))
        assert [each.json() for each in await asyncio.gather(*calls)] == list(range(300))
    assert most == 3


async def test_requests_that_are_too_large_together(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    size_bytes = 50_000
    monkeypatch.setattr("peer.client.serving.MAX_REQUEST_BYTES", 3 * size_bytes)
    alice, bob = fresh_twins(2)
    running, most = 0, 0

    async def work(request: Request) -> object:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        return len(request.payload)

    async with (
        make_client(bob, sid=None, handlers={"work": work}),
        make_client(alice, timeout=30) as client,
    ):
        await client.call(bob.id, "work", b"")  # from here on bob knows alice
        calls = (client.call(bob.id, "work", bytes(size_bytes)) for _ in range(50))
        answers = [each.json() for each in await asyncio.gather(*calls)]
    assert answers == [size_bytes] * 50
    assert most == 3


async def test_more_calls_than_there_is_room_for(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peer.client.session.MAX_CALLS", 10)
    alice, bob = fresh_twins(2)
    async with (
        make_client(bob, sid=None, handlers={"echo": echo}),
        make_client(alice, timeout=30) as client,
    ):
        calls = (client.call(bob.id, "echo", b"%d" % n) for n in range(200))
        answers = [each.payload for each in await asyncio.gather(*calls)]
        assert answers == [b"%d" % n for n in range(200)]


async def test_the_turn_of_a_call_that_is_cancelled_is_the_next_ones(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peer.client.session.MAX_CALLS", 1)
    alice, bob = fresh_twins(2)
    came, never = asyncio.Event(), asyncio.Event()

    async def hold(request: Request) -> None:
        came.set()
        await never.wait()

    handlers = {"hold": hold, "echo": echo}
    async with (
        make_client(bob, sid=None, handlers=handlers),
        make_client(alice, timeout=30) as client,
    ):
        first = asyncio.create_task(client.call(bob.id, "hold"))
        await came.wait()
        second = asyncio.create_task(client.call(bob.id, "hold"))
        third = asyncio.create_task(client.call(bob.id, "echo", b"x"))
        await asyncio.sleep(0)  # both wait for capacity
        first.cancel()
        await asyncio.sleep(0)  # the second one has been chosen, but does not run yet
        second.cancel()
        assert (await asyncio.wait_for(third, 10)).payload == b"x"


async def test_who_is_pushed_out_by_the_same_session_says_so(
    make_client: MakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    (twin,) = fresh_twins(1)
    async with make_client(twin, sid=None), make_client(twin, sid=None):
        await eventually(lambda: "has signed in elsewhere with the same session" in caplog.text)


async def test_a_key_that_is_looked_up_again_takes_no_more_than_the_timeout(
    relay: RelayProcess,
) -> None:
    alice, bob = fresh_twins(2)

    class Hangs(Twins):
        async def by_id(self, twin_id: int) -> Twin | None:
            found = await super().by_id(twin_id)
            if self.asked[twin_id] > 1:
                await asyncio.Event().wait()
            return found

    twins = Hangs(alice, bob)
    async with (
        sign_in(relay.url, bob) as raw,
        Client(secret_of(alice), [relay.url], twins, timeout=10) as client,
    ):
        began = time.monotonic()
        call = asyncio.create_task(client.call(bob.id, "status", timeout=1))
        request = await raw.receive()
        sealer, now = sealer_of(bob), int(time.time())
        to = Twin(alice.id, alice.account, alice.encryption_key.public, ())
        await raw.send_bytes(
            sealer.error(request.uid, client.address, 106, "can't be read", to, now, 60)
        )
        with pytest.raises(ExpiredError, match="nothing could be sent within 1 s"):
            await call
        assert time.monotonic() - began < 3
