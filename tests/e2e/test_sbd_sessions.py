"""SBD connections as sessions: what operators see of two workers, kicks, and a lost worker."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import Any

from proto.sbd import frames
from relay.queues import keys
from tests.e2e.conftest import StartRelay
from tests.e2e.test_operators import manage
from tests.e2e.test_recorder import HOUSEKEEPING
from tests.e2e.test_sbd import SETTINGS, client, on_both_workers
from tests.support.operator_site import OperatorSite
from tests.support.rmb_client import session
from tests.support.sbd_client import RawClient
from tests.support.waiting import eventually
from tests.support.world import fresh_twins

PAUSE_S = 0.02


def text_of(one: RawClient) -> str:
    return f"sbd:{frames.path_of_key(one.key)}"


async def test_what_operators_see_and_do(start_relay: StartRelay) -> None:
    settings = {**SETTINGS, "sbd.idle_ms": "120000"}
    relay = start_relay(processes=2, operator_site=True, settings=settings)
    assert relay.redis is not None
    site = OperatorSite(relay)

    def listed(query: str = "", path: str = "/sessions") -> dict[str, dict[str, Any]]:
        answer = site.ask("GET", f"{path}?limit=500{query}")
        assert answer.status == 200, answer.text
        return {each["key"]: each for each in answer.json()["items"]}

    (twin,) = fresh_twins(1)
    async with session(relay.url, twin, "phone"), on_both_workers(relay) as clients:
        texts = {text_of(each) for each in clients}
        await eventually(lambda: listed("&protocol=sbd").keys() == texts)
        assert listed().keys() == {*texts, f"{twin.id}:phone"}
        assert listed("&protocol=rmb").keys() == {f"{twin.id}:phone"}
        boots = {each["worker"] for each in listed("&protocol=sbd").values()}
        assert boots == relay.worker_hashes().keys()
        workers = site.ask("GET", "/workers").json()["items"]
        assert sum(each["sbd_sessions"] for each in workers) == len(clients)
        assert sum(each["sessions"] for each in workers) == 1
        assert site.ask("GET", "/sessions/total").json() == {"total": len(clients) + 1}

        # Rates in both directions, of a sender and its receiver.
        source, target = clients[:2]

        async def chat() -> None:
            while True:
                await source.forward(target.key, bytes(68))
                await asyncio.sleep(PAUSE_S)

        chatting = asyncio.create_task(chat())
        try:
            # In a thread: while this loop waits for the site, the source sends nothing.
            await eventually(
                lambda: asyncio.to_thread(
                    lambda: (
                        next(iter(listed("&protocol=sbd&order=-rate_in"))) == text_of(source)
                        and listed(f"&peer={text_of(source)[4:]}")[text_of(source)]["rate_in"] > 10
                    )
                )
            )
            await eventually(
                lambda: asyncio.to_thread(lambda: listed()[text_of(target)]["byte_rate_out"] > 1000)
            )
        finally:
            chatting.cancel()
            await asyncio.gather(chatting, return_exceptions=True)
        told = json.loads(await manage(relay, "rmb_sessions", "--protocol", "sbd", "--json"))
        assert {each["key"] for each in told} == texts

        # A newer connection of a key stays when the older one is kicked too late.
        older = clients[2]
        epoch = listed()[text_of(older)]["epoch"]
        async with client(relay, older.identity) as newer:
            assert await older.ended() is None
            await eventually(lambda: listed().get(text_of(newer), {}).get("epoch", 0) > epoch)
            late = {"key": text_of(newer), "epoch": epoch}
            assert site.ask("POST", "/sessions/kick", late).status == 409
            relay.redis.run("HSET", keys.CONTROL, f"kick:{text_of(newer)}", f"{epoch}|late")
            kick = {"key": text_of(clients[3]), "reason": "noise"}
            assert site.ask("POST", "/sessions/kick", kick).status == 200
            assert await clients[3].ended() is None
            await newer.forward(newer.key, b"still here")
            assert (await newer.receive()).payload == b"still here"
        (entry,) = site.ask("GET", "/audit?action=session.kick").json()["items"]
        assert entry["target"] == text_of(clients[3])

        def reasons() -> dict[str, set[str]]:
            ended = site.ask("GET", "/sessions/history?limit=500&protocol=sbd&open=false").json()
            found: dict[str, set[str]] = {}
            for each in ended["items"]:
                found.setdefault(each["close_reason"], set()).add(each["key"])
            return found

        assert await eventually(
            lambda: (
                reasons()
                == {
                    "replaced": {text_of(older)},
                    "client_close": {text_of(older)},
                    "kicked": {text_of(clients[3])},
                }
            )
        ), reasons()

        # A worker is killed: its sessions are lost, those of the other one remain.
        boot = listed()[text_of(source)]["worker"]
        lost = {key for key, each in listed("&protocol=sbd").items() if each["worker"] == boot}
        os.kill(relay.worker_pids()[boot], signal.SIGKILL)
        await asyncio.sleep(1.1)  # its last heartbeat is written
        relay.redis.run("DEL", keys.worker(boot))  # as happens after 30 s
        await eventually(lambda: not relay.redis.run("EXISTS", f"sbd:held:{boot}"), 60)
        assert not lost & set(listed("&protocol=sbd"))
        await manage(relay, "shell", "-c", HOUSEKEEPING)
        assert reasons()["worker_lost"] == lost
    await eventually(lambda: relay.redis.run("HLEN", keys.SBD_KEYS) == 0)
