"""Operators' commands at running workers: move, kick, drain, limits."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

from relay.queues import keys
from tests.support.relay_process import RelayProcess, directory, run_command
from tests.support.rmb_client import connect, session
from tests.support.waiting import eventually
from tests.support.world import fresh_twins

MOVED = 600
SESSIONS = 12
LIVE_WITHIN_S = 3.0  # two seconds, and the noise of a busy machine


async def manage(relay: RelayProcess, *arguments: str) -> str:
    """Run a command beside the relay and return its output."""
    done = await asyncio.to_thread(run_command, relay.folder, *arguments, settings=relay.settings)
    assert done.returncode == 0, f"{arguments}: {done.stdout}\n{done.stderr}"
    return done.stdout


async def test_mail_moves_to_a_connected_session(relay_pair: RelayProcess) -> None:
    """Moved messages arrive in order, each once, beside messages that the session gets directly."""
    one, two = fresh_twins(2)
    async with session(relay_pair.url, one) as sender, session(relay_pair.url, two, "here") as here:
        for number in range(MOVED):
            await sender.request((two.id, "away"), b"moved %d" % number)
        await sender.barrier()
        away = f"{two.id}:away"
        shown = json.loads(await manage(relay_pair, "rmb_queue", "show", away, "--json"))
        assert shown[0]["source"] == str(one.id) and "moved" not in json.dumps(shown)

        async def chat() -> None:
            for number in range(10_000):
                await sender.request((two.id, "here"), b"own %d" % number)
                await asyncio.sleep(0.01)

        chatting = asyncio.create_task(chat())
        moved = json.loads(
            await manage(relay_pair, "rmb_queue", "move", away, here_key(here), "--json")
        )
        assert (moved["moved"], moved["left"], moved["stopped"]) == (MOVED, 0, "")
        found: list[bytes] = []
        while len([each for each in found if each.startswith(b"moved")]) < MOVED:
            found.append((await here.receive()).plain)
        chatting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await chatting
        for kind in (b"moved", b"own"):
            mine = [int(each.split()[1]) for each in found if each.startswith(kind)]
            assert mine == list(range(len(mine)))
        assert relay_pair.redis is not None
        for key in (away, here_key(here)):
            await eventually(lambda key=key: relay_pair.redis.run("XLEN", f"stream:{key}") == 0)


def here_key(client: Any) -> str:
    return f"{client.twin.id}:{client.sid}"


async def test_all_sessions_of_a_twin_are_kicked_and_none_is_chased(
    relay_pair: RelayProcess,
) -> None:
    one, other = fresh_twins(2)
    url = relay_pair.url
    clients = [await connect(url, one, f"s{number}") for number in range(SESSIONS)]
    async with session(url, other) as bystander:
        listed = eventually(
            lambda: (
                sum(name.startswith(f"{one.id}:") for name in directory(relay_pair.redis))
                == SESSIONS
            )
        )
        assert await listed

        async def come_back(number: int) -> tuple[int | None, Any]:
            """Return the close code that the client got, and its next connection."""
            code, _ = await clients[number].closed()
            return code, await connect(url, one, f"s{number}")

        ended = asyncio.gather(*map(come_back, range(SESSIONS)))
        told = await manage(relay_pair, "rmb_kick", str(one.id), "--all")
        assert told == f"{SESSIONS} sessions of twin {one.id} will end within a second\n"
        back = await ended
        assert {code for code, _ in back} == {4003}
        # Workers check the order again with each heartbeat and each other change.
        await manage(relay_pair, "rmb_limit", "set", str(other.id), "0", "0")
        for _, client in back:
            await client.barrier()
        await bystander.barrier()
        for _, client in back:
            await client.close()


async def test_who_runs_into_a_limit_is_seen_within_seconds(relay_pair: RelayProcess) -> None:
    one, two = fresh_twins(2)
    await manage(relay_pair, "rmb_limit", "set", str(one.id), "1", "100")
    async with session(relay_pair.url, one) as sender:
        for _ in range(20):
            await sender.request((two.id, None), bytes(200))  # larger than any message may be
        await sender.receive_many(20)

        assert relay_pair.redis is not None
        pattern = keys.hits("twin", 0).removesuffix("0") + "*"
        await eventually(lambda: relay_pair.redis.run("KEYS", pattern), LIVE_WITHIN_S)
        top = json.loads(await manage(relay_pair, "rmb_limit", "hits", "--json"))
    assert {each["twin"]: each["messages"] for each in top["twins"]}[one.id] == 20
    addresses = {each["address"]: each["messages"] for each in top["addresses"]}
    assert addresses["127.0.0.1"] >= 20


async def test_a_drained_worker_is_replaced(start_relay: Any) -> None:
    relay = start_relay(processes=2)
    one, two = fresh_twins(2)
    workers = json.loads(await manage(relay, "rmb_workers", "list", "--json"))
    assert len(workers) == 2 and all(each["memory_bytes"] > 10_000_000 for each in workers)
    clients = [await connect(relay.url, one, f"s{number}") for number in range(8)]
    await eventually(lambda: len(directory(relay.redis)) == 8)
    held = directory(relay.redis)
    leaving = next(boot for _, boot in held.values())
    await manage(relay, "rmb_workers", "drain", leaving)
    for client in clients:
        if held[here_key(client)][1] == leaving:
            assert (await client.closed())[0] == 1012
        else:
            await client.barrier()

    def replaced() -> bool:
        found = relay.worker_hashes()
        ready = [boot for boot, fields in found.items() if fields["state"] == "ok"]
        return len(ready) == 2 and leaving not in found

    await eventually(replaced)
    shown = json.loads(await manage(relay, "rmb_workers", "list", "--json"))
    assert [each["state"] for each in shown] == ["ok", "ok"]
    async with session(relay.url, one) as sender, session(relay.url, two) as receiver:
        await sender.request(receiver.key, b"after the drain")
        assert (await receiver.receive()).plain == b"after the drain"
    for client in clients:
        await client.abort()
