"""Calls between clients through a real relay: answers, errors, notices, and services."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from peer.client import (
    NO_ANSWER,
    CallError,
    CommandError,
    ExpiredError,
    Module,
    RelayError,
    RemoteError,
    Reply,
    Request,
    Response,
    TwinNotFoundError,
    session,
)
from peer.modules.api import MAX_BODY_BYTES
from tests.peer.client.conftest import MakeClient
from tests.support.waiting import eventually
from tests.support.world import NO_RELAY_TWIN, UNKNOWN_TWIN, fresh_twins


async def add(request: Request) -> object:
    return sum(request.json())


async def test_a_call_is_answered(make_client: MakeClient) -> None:
    alice, bob = fresh_twins(2)
    async with make_client(bob, sid=None) as server, make_client(alice) as client:
        server.serve({"calc.add": add})
        reply = await client.call(bob.id, "calc.add", [1, 2])
        assert reply == Reply(b"3", "application/json", server.address)
        assert reply.json() == 3


async def test_many_calls_at_once(make_client: MakeClient) -> None:
    alice, bob = fresh_twins(2)
    async with make_client(bob, sid=None) as server, make_client(alice) as client:
        server.serve({"calc.add": add})
        calls = (client.call(bob.id, "calc.add", [n, n]) for n in range(2000))
        replies = await asyncio.gather(*calls)
        assert [reply.json() for reply in replies] == [2 * n for n in range(2000)]


async def test_bodies_and_content_types(make_client: MakeClient) -> None:
    alice, bob = fresh_twins(2)
    seen: list[tuple[bytes, str | None, str | None]] = []

    def echo(request: Request) -> object:
        seen.append((request.payload, request.schema, request.tags))
        return Response(request.payload, request.schema)

    async with make_client(bob, sid=None, handlers={"echo": echo}), make_client(alice) as client:
        nothing = await client.call(bob.id, "echo")
        raw = await client.call(bob.id, "echo", b"\0\xff", schema="image/png", tags="a b")
        text = await client.call(bob.id, "echo", "grüß")
        large = await client.call(bob.id, "echo", bytes(range(256)) * 4096)
    assert (nothing.payload, nothing.schema, nothing.json()) == (b"", None, None)
    assert (raw.payload, raw.schema) == (b"\0\xff", "image/png")
    assert (text.json(), text.schema) == ("grüß", "application/json")
    assert large.payload == bytes(range(256)) * 4096
    assert seen[1] == (b"\0\xff", "image/png", "a b")


async def test_errors_of_the_other_side(make_client: MakeClient) -> None:
    alice, bob = fresh_twins(2)

    async def refuse(request: Request) -> None:
        raise CommandError(42, "not today")

    async def fail(request: Request) -> None:
        raise KeyError("secret detail")

    async with make_client(bob, sid=None) as server, make_client(alice) as client:
        server.serve({"refuse": refuse, "fail": fail, "add": add})
        for command, body, code, text in (
            ("refuse", None, 42, "not today"),
            ("fail", None, 500, "the service failed"),
            ("add", b"no json", 500, "the payload is not JSON"),
            ("nobody", None, 500, "unknown command: nobody"),
        ):
            with pytest.raises(RemoteError) as caught:
                await client.call(bob.id, command, body)
            assert (caught.value.code, caught.value.message) == (code, text)
            assert caught.value.source == server.address


async def test_a_handler_of_all_other_commands(make_client: MakeClient) -> None:
    alice, bob = fresh_twins(2)
    handlers = {"*": lambda request: request.command, "add": add}
    async with make_client(bob, sid=None, handlers=handlers), make_client(alice) as client:
        assert (await client.call(bob.id, "add", [1, 2])).json() == 3
        assert (await client.call(bob.id, "a.b")).json() == "a.b"


async def test_a_relay_says_no(make_client: MakeClient) -> None:
    alice, bob = fresh_twins(2)
    async with make_client(alice) as client:
        with pytest.raises(RelayError, match="destination offline"):
            await client.call(bob.id, "add", [1], tags="fail-fast")
        with pytest.raises(RelayError, match="relay info is not set"):
            await client.call(NO_RELAY_TWIN.id, "add", [1])
        with pytest.raises(TwinNotFoundError, match=f"no twin {UNKNOWN_TWIN.id}"):
            await client.call(UNKNOWN_TWIN.id, "add", [1])


async def test_nobody_answers(make_client: MakeClient) -> None:
    alice, bob = fresh_twins(2)
    handled = asyncio.Event()

    async def silent(request: Request) -> object:
        handled.set()
        return NO_ANSWER

    async with (
        make_client(bob, sid=None, handlers={"silent": silent}),
        make_client(alice) as client,
    ):
        with pytest.raises(ExpiredError) as caught:
            await client.call(bob.id, "silent", timeout=0.5)
        assert isinstance(caught.value, TimeoutError)
        assert handled.is_set()


async def test_a_request_waits_in_the_relay_for_an_absent_twin(make_client: MakeClient) -> None:
    alice, bob = fresh_twins(2)
    async with make_client(alice) as client:
        call = asyncio.create_task(client.call(bob.id, "add", [1, 2]))
        await client.flush()
        async with make_client(bob, sid=None) as server:
            server.serve({"add": add})  # before the first await: nothing was refused
            assert (await call).json() == 3


async def test_a_cancelled_call_leaves_nothing_behind(make_client: MakeClient) -> None:
    alice, bob = fresh_twins(2)
    asked, go = asyncio.Event(), asyncio.Event()

    async def wait(request: Request) -> None:
        asked.set()
        await go.wait()

    async with (
        make_client(bob, sid=None, handlers={"wait": wait, "add": add}),
        make_client(alice) as client,
    ):
        call = asyncio.create_task(client.call(bob.id, "wait"))
        await asked.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        go.set()
        assert (await client.call(bob.id, "add", [1])).json() == 1
        await eventually(lambda: client.counters["unmatched"] == 1)


async def test_notices_arrive_in_order(make_client: MakeClient) -> None:
    alice, bob = fresh_twins(2)
    seen: list[int] = []

    async with make_client(bob, sid=None) as server, make_client(alice) as client:
        server.serve({"note": lambda request: seen.append(request.json())})
        for number in range(200):
            await client.notify(bob.id, "note", number)
        await client.flush()
        await eventually(lambda: len(seen) == 200)
        assert seen == list(range(200))


async def test_leaving_the_block_sends_what_is_left(make_client: MakeClient) -> None:
    alice, bob = fresh_twins(2)
    async with make_client(alice) as client:
        await client.notify(bob.id, "note", "the last word")
    seen: list[str] = []
    async with make_client(bob, sid=None) as server:
        server.serve({"note": lambda request: seen.append(request.json())})
        await eventually(lambda: seen == ["the last word"])


async def test_sessions_of_one_twin_are_apart(make_client: MakeClient) -> None:
    alice, bob = fresh_twins(2)
    async with (
        make_client(bob, sid=None, handlers={"who": lambda request: "plain"}) as plain,
        make_client(bob, sid="billing", handlers={"who": lambda request: "billing"}) as billing,
        make_client(alice) as client,
    ):
        assert (await client.call(bob.id, "who")).json() == "plain"
        assert (await client.call(f"{bob.id}:billing", "who")).json() == "billing"
        reply = await client.call(billing.address, "who")
        assert reply.source == billing.address != plain.address


async def test_several_twins_are_asked_at_once(make_client: MakeClient) -> None:
    alice, bob, carol, dave = fresh_twins(4)
    async with (
        make_client(bob, sid=None, handlers={"name": lambda request: "bob"}),
        make_client(carol, sid=None, handlers={"name": lambda request: "carol"}),
        make_client(alice) as client,
    ):
        found: list[Reply | CallError] = []
        twins = [bob.id, carol.id, dave.id]
        async with client.ask(twins, "name", tags="fail-fast") as answers:
            async for answer in answers:
                found.append(answer)
                if len(found) == len(twins):
                    break
        names = {answer.json() for answer in found if isinstance(answer, Reply)}
        errors = [str(answer) for answer in found if isinstance(answer, CallError)]
        assert names == {"bob", "carol"}
        assert errors == ["destination offline"]


async def test_modules_answer_too(make_client: MakeClient) -> None:
    alice, bob = fresh_twins(2)
    calc = Module("calc")

    @calc.command("add")
    async def _(request: Request) -> bytes:
        return b"%d" % sum(request.json())

    async with make_client(bob, sid=None, modules=[calc]), make_client(alice) as client:
        assert (await client.call(bob.id, "calc.add", [2, 3])).payload == b"5"


async def test_a_handler_may_call_others(make_client: MakeClient) -> None:
    alice, bob, carol = fresh_twins(3)
    async with (
        make_client(carol, sid=None, handlers={"add": add}),
        make_client(bob, sid=None) as middle,
        make_client(alice) as client,
    ):

        async def forward(request: Request) -> object:
            return (await middle.call(carol.id, "add", request.json())).json()

        middle.serve({"forward": forward})
        calls = (client.call(bob.id, "forward", [n, 1]) for n in range(100))
        assert [reply.json() for reply in await asyncio.gather(*calls)] == list(range(1, 101))


async def test_a_handler_ends_with_its_request(make_client: MakeClient) -> None:
    alice, bob = fresh_twins(2)
    ended = asyncio.Event()

    async def wait(request: Request) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with make_client(bob, sid=None, handlers={"wait": wait}), make_client(alice) as client:
        with pytest.raises(ExpiredError):
            await client.call(bob.id, "wait", timeout=0.2)
        await asyncio.wait_for(ended.wait(), 10)


async def test_a_twin_that_has_published_no_key_is_understood(
    make_client: MakeClient, twins_file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A twin without a published key does not seal its calls, as no receiver could open them."""
    alice, bob = fresh_twins(2)
    pk = f"0x{alice.encryption_key.public.hex()}"
    twins = tmp_path / "twins.csv"
    twins.write_text(twins_file.read_text().replace(pk, ""))
    async with (
        make_client(bob, sid=None, twins=twins, handlers={"calc.add": add}),
        make_client(alice, twins=twins) as client,
    ):
        assert (await client.call(bob.id, "calc.add", [1, 2])).json() == 3
    assert f"twin {alice.id} has not published this key" in caplog.text


async def test_a_message_no_relay_takes_is_not_sent(make_client: MakeClient) -> None:
    """A message too large for the relays is not sent.

    It would end the session, and end it again when it is resent.
    """
    alice, bob = fresh_twins(2)
    async with make_client(bob, sid=None, handlers={"calc.add": add}), make_client(alice) as client:
        with pytest.raises(ValueError, match="the relays take at most"):
            await client.call(bob.id, "x" * 100_000, bytes(MAX_BODY_BYTES))
        assert (await client.call(bob.id, "calc.add", [1, 2])).json() == 3


async def test_calls_that_wait_for_room_when_the_client_is_closed(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls that wait for capacity when the client closes fail like all others.

    They raise `CallError`; they are not cancelled.
    """
    monkeypatch.setattr(session, "MAX_CALLS", 1)
    alice, bob = fresh_twins(2)
    async with make_client(bob, sid=None, handlers={"never": never}), make_client(alice) as client:
        await client.twin(bob.id)
        calls = [asyncio.create_task(client.call(bob.id, "never")) for _ in range(3)]
        await eventually(lambda: client._session is not None and len(client._session._room) == 2)
    for call in calls:
        with pytest.raises(CallError, match="the client was closed"):
            await call


async def never(request: Request) -> object:
    return NO_ANSWER


@pytest.mark.parametrize("wrong", [0, -1, 2**32, "0", "bob", "", "4294967296:x"])
async def test_what_is_no_twin_is_told_at_once(make_client: MakeClient, wrong: int | str) -> None:
    async with make_client(*fresh_twins(1)) as client:
        with pytest.raises(ValueError, match="twin"):
            await client.call(wrong, "calc.add")


def test_a_key_type_there_is_not_is_told(make_client: MakeClient) -> None:
    with pytest.raises(ValueError, match="key_type 'rsa': sr25519 or ed25519"):
        make_client(*fresh_twins(1), key_type="rsa")
