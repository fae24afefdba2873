"""How a client stops its modules."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from pathlib import Path

import pytest

from peer.client import RemoteError, Request
from peer.modules.api import Context, Module
from peer.modules.files import Uploads
from proto.rmb.sealing import Sealer
from tests.peer.client.conftest import MakeClient
from tests.peer.test_link import accepted
from tests.support.stream_server import stream_server
from tests.support.world import fresh_twins


class Noted(Module):
    """A module that records when it starts and stops."""

    def __init__(self, prefix: str, notes: list[str], fails: str = "") -> None:
        super().__init__(prefix)
        self._notes = notes
        self._fails = fails

    async def on_start(self, context: Context) -> None:
        self._note("start")

    async def on_stop(self) -> None:
        self._note("stop")

    def _note(self, what: str) -> None:
        self._notes.append(f"{what} {self.prefix}")
        if self._fails == what:
            raise OSError("no disk")


async def test_modules_are_stopped_also_when_the_end_is_cancelled(
    make_client: MakeClient, tmp_path: Path
) -> None:
    (alice,) = fresh_twins(1)
    notes: list[str] = []
    draining = asyncio.Event()

    async def use() -> None:
        modules = [Uploads(tmp_path), Noted("a", notes)]
        away = {"relays": ["ws://127.0.0.1:1"], "connect_timeout": 0}
        async with make_client(alice, modules=modules, **away) as client:
            await client.notify(alice.id, "nobody takes this")
            draining.set()

    task = asyncio.create_task(use())
    await draining.wait()
    await asyncio.sleep(0)  # it waits for a relay now
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert notes == ["start a", "stop a"]
    async with make_client(alice, modules=[Uploads(tmp_path)]):
        """The folder is free again."""


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8])
async def test_nothing_goes_on_after_an_end_that_is_cancelled(
    make_client: MakeClient, turns: int
) -> None:
    """Nothing keeps running if closing is cancelled after some turns of the loop.

    The relay does not answer the close frame that the client waits for.
    """
    (alice,) = fresh_twins(1)
    ending, ended = asyncio.Event(), asyncio.Event()

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(accepted(await reader.readuntil(b"\r\n\r\n")))
        with contextlib.suppress(ConnectionError):
            while await reader.read(1 << 16):
                pass
        ended.set()

    async def use(url: str) -> None:
        async with make_client(alice, relays=[url]) as client:
            await client.twin(alice.id)
            ending.set()
            raise LookupError("nothing is drained")

    async with stream_server(deaf) as server:
        before = asyncio.all_tasks()
        task = asyncio.create_task(use(f"ws://127.0.0.1:{server.port}"))
        await ending.wait()
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(60):
            await ended.wait()
        assert not [each for each in asyncio.all_tasks() - before if "link" in each.get_name()]


async def test_a_handler_at_work_ends_before_its_client(make_client: MakeClient) -> None:
    """A running handler ends before its client, and requests in the meantime are answered.

    The client's modules stay available until then.
    """
    alice, bob = fresh_twins(2)
    notes: list[str] = []
    began, ending, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def handler(request: Request) -> bytes:
        notes.append(request.command)
        began.set()
        await go_on.wait()
        return b"done"

    async def serve() -> None:
        handlers = {"first": handler, "second": handler}
        modules = [Noted("a", notes)]
        async with make_client(bob, sid=None, handlers=handlers, modules=modules):
            await ending.wait()

    serving = asyncio.create_task(serve())
    async with make_client(alice) as client:
        first = asyncio.create_task(client.call(bob.id, "first"))
        await began.wait()
        began.clear()
        ending.set()
        second = asyncio.create_task(client.call(bob.id, "second"))
        await began.wait()
        go_on.set()
        assert [(await each).payload for each in (first, second)] == [b"done", b"done"]
        await serving
    assert notes == ["start a", "first", "second", "stop a"]


async def test_what_has_come_is_carried_out_before_the_end(make_client: MakeClient) -> None:
    """Messages that arrived are handled before the client ends, as the relay has removed them."""
    alice, bob = fresh_twins(2)
    handled: list[str] = []
    sealer = Sealer((alice.id, None), alice.signing_key, None, os.urandom)

    async def note(request: Request) -> None:
        handled.append(request.uid)

    async with make_client(bob, sid=None, handlers={"note": note}) as server:
        own = await server.twin(bob.id)
        assert own is not None
        now, own = int(time.time()), own._replace(pk=None)
        for uid in "abcde":  # their sender has to be looked up
            data = sealer.request(uid, (bob.id, None), "note", b"", own, now, 60)
            server._open.inbox.on_message(data)
    assert handled == [*"abcde"]


async def test_who_waits_for_a_handler_that_takes_too_long_is_told(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peer.client.session.HANDLERS_TIMEOUT_S", 0.1)
    alice, bob = fresh_twins(2)
    began, stopping, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

    class Slow(Module):
        async def on_stop(self) -> None:
            stopping.set()
            await go_on.wait()

    async def forever(request: Request) -> None:
        began.set()
        await asyncio.Event().wait()

    async def serve() -> None:
        handlers = {"forever": forever}
        async with make_client(bob, sid=None, handlers=handlers, modules=[Slow("slow")]):
            await began.wait()

    serving = asyncio.create_task(serve())
    async with make_client(alice) as client:
        with pytest.raises(RemoteError, match="the service ends"):
            await client.call(bob.id, "forever")
        await stopping.wait()
        with pytest.raises(RemoteError, match="the service ends"):
            await client.call(bob.id, "forever")
        go_on.set()
        await serving


async def test_a_handler_that_is_not_cancelled_keeps_no_client_open(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for module in ("session", "serving"):
        monkeypatch.setattr(f"peer.client.{module}.HANDLERS_TIMEOUT_S", 0.1)
    alice, bob = fresh_twins(2)
    began, go_on, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def stubborn(request: Request) -> None:
        began.set()
        while not go_on.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await go_on.wait()
        ended.set()

    async with make_client(alice) as client:
        async with make_client(bob, sid=None, handlers={"stubborn": stubborn}):
            await client.notify(bob.id, "stubborn")
            await began.wait()
        assert "1 handlers do not end" in caplog.text
    go_on.set()
    await ended.wait()


async def test_a_module_that_fails_does_not_keep_the_others_from_their_end(
    make_client: MakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    (alice,) = fresh_twins(1)
    notes: list[str] = []
    modules = [Noted("a", notes), Noted("b", notes, "stop"), Noted("c", notes)]
    async with make_client(alice, modules=modules):
        notes.clear()
    assert notes == ["stop a", "stop b", "stop c"]
    assert "module b did not stop" in caplog.text
    modules = [Noted("a", notes), Noted("b", notes, "start"), Noted("c", notes)]
    client = make_client(alice, modules=modules)
    notes.clear()
    with pytest.raises(OSError, match="no disk"):
        await client.__aenter__()
    assert notes == ["start a", "start b", "stop a"]
