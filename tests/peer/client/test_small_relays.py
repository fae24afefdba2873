"""Relays that accept smaller messages than a client sends: its call fails, others continue."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from peer.client import RelayError, RemoteError, Request, TooLargeError
from tests.peer.client.conftest import MakeClient, secret_of
from tests.peer.conftest import LIMIT_BYTES
from tests.support.peer_process import CLI, run_program
from tests.support.relay_process import RelayProcess
from tests.support.world import fresh_twins

LARGE = os.urandom(LIMIT_BYTES + 200_000)


def size(request: Request) -> int:
    return len(request.payload)


async def test_what_is_too_large_for_the_relay_fails_at_once(
    make_client: MakeClient, small_relay: RelayProcess
) -> None:
    alice, bob = fresh_twins(2)
    where = {"relays": [small_relay.url], "timeout": 300.0}
    async with (
        make_client(bob, sid=None, handlers={"size": size}, **where),
        make_client(alice, **where) as client,
    ):
        async with asyncio.timeout(60):
            with pytest.raises(
                TooLargeError, match=r"message of \d+ bytes: .* at most \d+"
            ) as told:
                await client.call(bob.id, "size", LARGE)
            assert isinstance(told.value, RelayError)
            assert LIMIT_BYTES < told.value.size_bytes == told.value.limit_bytes + 1
            assert (await client.call(bob.id, "size", b"small")).json() == 5
            # The limit is known now, and a large message ends no session.
            sessions = client._open.links.links[0].sessions
            with pytest.raises(TooLargeError):
                await client.notify(bob.id, "size", LARGE)
            with pytest.raises(TooLargeError):
                async with client.ask([bob.id, alice.id], "size", LARGE):
                    """It is not come to."""
            assert client._open.links.links[0].sessions == sessions


async def test_each_of_several_that_are_asked_is_told_of(
    make_client: MakeClient, small_relay: RelayProcess
) -> None:
    alice, bob, carol = fresh_twins(3)
    async with (
        asyncio.timeout(60),
        make_client(alice, relays=[small_relay.url], timeout=300) as client,
        client.ask([bob.id, carol.id], "size", LARGE) as answers,
    ):
        for _ in "12":
            assert isinstance(await anext(answers), TooLargeError)


async def test_flush_tells_of_what_nobody_waits_for(
    make_client: MakeClient, small_relay: RelayProcess
) -> None:
    alice, bob = fresh_twins(2)
    async with make_client(alice, relays=[small_relay.url], timeout=60) as client:
        await client.notify(bob.id, "size", LARGE)
        with pytest.raises(TooLargeError):
            await client.flush()
        await client.flush()  # of messages that came since


async def test_rmb_call_does_not_say_that_the_relay_has_it(
    small_relay: RelayProcess, twins_file: Path, tmp_path: Path
) -> None:
    (alice,) = fresh_twins(1)
    (tmp_path / "large").write_bytes(LARGE)
    what = ("call", str(alice.id), "size", "@large", "--raw", "--no-answer", "--json")
    where = ("--relay", small_relay.url, "--twins", str(twins_file), "--mnemonic", secret_of(alice))
    done = await asyncio.to_thread(run_program, CLI, tmp_path, *what, *where)
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"]["kind"] == "TooLargeError"


async def test_an_answer_that_is_too_large_for_the_relay_is_an_error(
    make_client: MakeClient, small_relay: RelayProcess
) -> None:
    alice, bob = fresh_twins(2)
    where = {"relays": [small_relay.url], "timeout": 60.0}
    async with (
        make_client(bob, sid=None, handlers={"large": lambda request: LARGE}, **where),
        make_client(alice, **where) as client,
    ):
        for _ in "12":  # the second one is known to be too large
            with pytest.raises(RemoteError, match=r"message of \d+ bytes") as told:
                await client.call(bob.id, "large")
            assert told.value.code == 500
