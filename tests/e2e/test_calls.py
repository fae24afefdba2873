"""Operators' calls: REST over one websocket, streams, and confirmations."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from peer.mux import ConnectionEndedError
from peer.rpc import RpcPeer, RpcRemoteError, Service, connect
from relay.calls.operations import operations
from relay.ops import counters
from relay.queues import keys
from tests.e2e.test_operators import manage
from tests.support.node import JsClient, JsError, js_client
from tests.support.operator_site import OperatorSite
from tests.support.peer_process import CLI, run_program
from tests.support.relay_process import RelayProcess
from tests.support.rmb_client import session
from tests.support.waiting import eventually
from tests.support.world import fresh_twins


@pytest.fixture(scope="module")
def site(relay: RelayProcess) -> OperatorSite:
    return OperatorSite(relay)


@contextlib.asynccontextmanager
async def calling(
    site: OperatorSite, token: str | None = None, service: Service | None = None
) -> AsyncIterator[RpcPeer]:
    headers = {"Authorization": f"Bearer {site.token if token is None else token}"}
    url = f"ws://127.0.0.1:{site.relay.admin_port}/calls"
    async with connect(url, service, headers=headers) as peer:
        yield peer


async def test_a_call_is_the_request(site: OperatorSite) -> None:
    (twin,) = fresh_twins(1)
    async with calling(site) as peer, session(site.relay.url, twin, "a/b c") as client:
        await client.barrier()
        assert await peer.call("get_me") == site.ask("GET", "/me").json()
        found = await peer.call("get_twin", {"twin": twin.id})
        assert found == site.ask("GET", f"/twins/{twin.id}").json()
        sessions = (await peer.call("list_sessions", {"twin": twin.id, "limit": 5}))["items"]
        assert [each["sid"] for each in sessions] in ([], ["a/b c"])  # its row may come later
        described = {each["id"]: each for each in await peer.call("describe")}
        assert described.keys() == operations().keys()
        assert described["kick_session"]["dangerous"]


async def test_refusals_are_those_of_rest(site: OperatorSite) -> None:
    viewer = site.new_token("viewer")
    async with calling(site, viewer) as peer:
        for method, params, path, status in (
            ("get_twin", {"twin": 4_000_000_000}, "/twins/4000000000", 404),
            ("list_sessions", {"limit": 0}, "/sessions?limit=0", 422),
            ("list_accounts", {}, "/accounts", 403),
        ):
            expected = site.ask("GET", path, token=viewer)
            assert expected.status == status
            with pytest.raises(RpcRemoteError) as failed:
                await peer.call(method, params)
            assert str(failed.value) == expected.json()["detail"]
            assert failed.value.data["status"] == status
        with pytest.raises(RpcRemoteError, match="there is no method 'nothing'"):
            await peer.call("nothing")
        with pytest.raises(RpcRemoteError, match=r"limt: is not a parameter of list_sessions"):
            await peer.call("list_sessions", {"limt": 1})
        with pytest.raises(RpcRemoteError, match="twin: must not be empty"):
            await peer.call("get_limit", {"twin": "7/waiting"})
        with pytest.raises(RpcRemoteError, match="twin: is missing"):
            await peer.call("get_twin")


async def test_who_has_no_token_is_refused(site: OperatorSite) -> None:
    with pytest.raises(ConnectionEndedError, match="401"):
        async with calling(site, "wrong"):
            pass
    url = f"ws://127.0.0.1:{site.relay.admin_port}/calls"
    async with connect(url) as peer:
        with pytest.raises(RpcRemoteError, match="an API token is needed"):
            await peer.call("get_me")
        own = await peer.call("get_me", metadata={"authorization": f"Bearer {site.token}"})
        assert own["name"]


async def test_dangerous_calls_are_confirmed(site: OperatorSite) -> None:
    (twin,) = fresh_twins(1)
    asked: list[str] = []
    service = Service()

    @service.handler("confirm")
    async def confirm(params: dict[str, Any]) -> dict[str, bool]:
        asked.append(params["text"])
        return {"ok": len(asked) > 1}

    kick = ("kick_twin", {"twin": twin.id, "body": {"reason": "test"}})
    async with calling(site, service=service) as peer, session(site.relay.url, twin) as client:
        await client.barrier()
        with pytest.raises(RpcRemoteError, match="has to be confirmed"):
            await peer.call(*kick)
        with pytest.raises(RpcRemoteError, match="was not confirmed"):
            await peer.call(*kick, metadata={"confirm": True})
        assert client.open
        await peer.call(*kick, metadata={"confirm": True})
        assert (await client.closed())[0] == 4003
        summary = operations()["kick_twin"].summary
        text = f'{summary}: kick_twin twin={twin.id}, body={{"reason": "test"}}'
        assert asked == [text, text]
        entries = site.ask("GET", f"/audit?action=session.kick&target={twin.id}").json()["items"]
        assert len(entries) == 1


async def test_streams(site: OperatorSite) -> None:
    made = site.ask("POST", "/tokens", {"label": "calls", "role": "operator"}).json()
    async with calling(site, made["text"]) as peer:
        async with asyncio.timeout(60):
            stream = peer.stream("followCounters")
            first, second = await anext(stream), await anext(stream)
            del first["event"], second["event"]
            before, after = counters.snapshot(first), counters.snapshot(second)
            assert after.at > before.at
            assert [each.boot_id for each in after.workers] == list(site.relay.worker_hashes())
            with pytest.raises(RpcRemoteError, match="there is no trace"):
                async for _ in peer.stream("followTrace", {"trace": "none"}):
                    pass
            # The stream ends when its token is revoked.
            assert site.ask("POST", f"/tokens/{made['id']}/revoke").status == 200
            with pytest.raises(RpcRemoteError, match="revoked"):
                async for _ in stream:
                    pass


async def test_the_log_of_a_worker(site: OperatorSite) -> None:
    (boot_id,) = site.relay.worker_hashes()
    redis = site.relay.redis
    assert redis is not None
    async with calling(site) as peer:
        stream = peer.stream("followLog", {"worker": boot_id})
        reading = asyncio.ensure_future(anext(stream))
        async with asyncio.timeout(60):
            while not reading.done():  # until the worker is followed
                redis.run("HSET", keys.CONTROL, "limit:9", "not a limit")
                redis.run("HINCRBY", keys.CONTROL, "version", "1")
                await asyncio.wait({reading}, timeout=0.5)
        redis.run("HDEL", keys.CONTROL, "limit:9")
        line = reading.result()
        assert (line["event"], line["level"]) == ("line", "ERROR")
        assert "limit:9" in line["text"]
        await stream.aclose()
        with pytest.raises(RpcRemoteError, match="no worker"):
            await anext(peer.stream("followLog", {"worker": "0" * 12}))


async def test_exports_come_in_parts(site: OperatorSite) -> None:
    async with calling(site) as peer:
        text = "".join([part["text"] async for part in peer.stream("export_audit")])
        assert text.count("\n") >= 1
        assert await peer.call("count_sessions") == site.ask("GET", "/sessions/total").json()


async def test_what_clients_do_is_counted(site: OperatorSite) -> None:
    async with calling(site) as peer:
        await peer.call("get_me")
        _, text = site.relay.get("/metrics", admin=True)
        assert "relay_calls_connections 1" in text
        assert 'relay_calls_total{outcome="ok"}' in text
    await eventually(
        lambda: "relay_calls_connections 0" in site.relay.get("/metrics", admin=True)[1]
    )


async def test_the_command(site: OperatorSite, tmp_path: Path) -> None:
    (twin,) = fresh_twins(1)
    url = f"http://127.0.0.1:{site.relay.admin_port}"

    async def ops(*words: str, code: int = 0, token: str | None = None) -> tuple[str, str]:
        more = {"RMB_TOKEN": site.token if token is None else token}
        arguments = (CLI, tmp_path, "ops", words[0], url, *words[1:])
        done = await asyncio.to_thread(run_program, *arguments, more=more)
        assert done.returncode == code, done.stderr
        return done.stdout.decode(), done.stderr.decode()

    listed, _ = await ops("list", "kick")
    assert "kick_twin" in listed and "twin=" in listed
    found, _ = await ops("call", "list_sessions", "limit=1")
    assert "items" in json.loads(found)
    _, error = await ops("call", "list_sesions", code=2)
    assert "did you mean list_sessions?" in error
    _, error = await ops("call", "list_sessions", "limit=x", code=2)
    assert error == "rmb: limit: must be a whole number of at most 19 digits\n"
    _, error = await ops("call", "list_sessions", token="wrong", code=1)
    assert "401" in error and "Traceback" not in error
    async with session(site.relay.url, twin) as client:
        await client.barrier()
        _, error = await ops("call", "kick_twin", f"twin={twin.id}", "body={}", code=1)
        assert "add --yes" in error and "was not confirmed" in error
        await ops("call", "kick_twin", f"twin={twin.id}", "body={}", "--yes")
        assert (await client.closed())[0] == 4003


async def test_commands_show_a_relay_elsewhere(site: OperatorSite, tmp_path: Path) -> None:
    twin, absent = fresh_twins(2)
    token = tmp_path / "token"
    token.write_text(site.token)
    elsewhere = ("--url", f"http://127.0.0.1:{site.relay.admin_port}", "--token-file", str(token))
    shown = json.loads(await manage(site.relay, "rmb_top", "--json", "--count", "1", *elsewhere))
    assert [each["boot_id"] for each in shown["workers"]] == list(site.relay.worker_hashes())
    made = site.ask("POST", "/traces", {"kind": "twin", "subject": str(twin.id)}).json()
    async with session(site.relay.url, twin) as client:
        following = asyncio.create_task(
            manage(site.relay, "rmb_trace", "follow", made["id"], "--json", *elsewhere)
        )
        async with asyncio.timeout(60):
            while not (found := site.ask("GET", f"/traces/{made['id']}/events").json()["items"]):
                await client.request((absent.id, None), b"x")
                await client.barrier()
                await asyncio.wait({following}, timeout=0.5)
        site.ask("POST", f"/traces/{made['id']}/stop")
        lines = [json.loads(line) for line in (await following).splitlines()]
    assert lines[0]["uid"] == found[0]["uid"]
    assert lines[0]["stage"] == found[0]["stage"]


async def test_an_operator_in_javascript(site: OperatorSite) -> None:
    """An operator's client in Node.js can make calls with `@matrixai/rpc`."""
    (twin,) = fresh_twins(1)

    async def dial(js: JsClient, token: str) -> None:
        url = f"ws://127.0.0.1:{site.relay.admin_port}/calls"
        await js.ask("dial", on="c", url=url, headers={"Authorization": f"Bearer {token}"})

    async def call(js: JsClient, method: str, params: dict[str, Any]) -> Any:
        return await js.ask("unary", on="c", method=method, params=params)

    async with (
        asyncio.timeout(60),
        js_client("rpc_client.js") as js,
        session(site.relay.url, twin) as client,
    ):
        await client.barrier()
        with pytest.raises(JsError, match="401"):
            await dial(js, "wrong")
        await dial(js, site.token)
        assert await call(js, "get_me", {}) == site.ask("GET", "/me").json()
        with pytest.raises(JsError) as refused:
            await call(js, "get_twin", {"twin": 4_000_000_000})
        expected = site.ask("GET", "/twins/4000000000").json()["detail"]
        assert refused.value.found["cause"]["message"] == expected
        kick = {"twin": twin.id, "body": {"reason": "test"}, "metadata": {"confirm": True}}
        with pytest.raises(JsError) as declined:
            await call(js, "kick_twin", kick)
        assert "was not confirmed" in declined.value.found["cause"]["message"]
        await call(js, "kick_twin", kick)
        assert (await client.closed())[0] == 4003
        first, second = await js.ask("asked")
        assert first == second
        assert f"kick_twin twin={twin.id}" in first
        await js.ask("stop", on="c")
