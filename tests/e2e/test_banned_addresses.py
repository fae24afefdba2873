"""Banned addresses are refused at every entrance within a second, and their sessions end."""

from __future__ import annotations

import asyncio
import time

from tests.support.federation_client import federation, queued, signed
from tests.support.raw_http import UPGRADE_HEADERS, read_answer, tcp
from tests.support.relay_process import RelayProcess, run_command
from tests.support.rmb_client import connect, session
from tests.support.waiting import eventually
from tests.support.world import ELSEWHERE_TWIN as FAR
from tests.support.world import fresh_twins

LIVE_WITHIN_S = 1.5  # a second, and the noise of a busy machine
ATTACKER = "127.0.0.77"
ANSWER = (403, b"address_banned")


async def _ban(relay: RelayProcess, *arguments: str) -> None:
    done = await asyncio.to_thread(
        run_command, relay.folder, "rmb_ban", *arguments, settings=relay.settings
    )
    assert done.returncode == 0, done.stderr


async def _asked(
    relay: RelayProcess, target: str, headers: str = UPGRADE_HEADERS, *, address: str = ATTACKER
) -> tuple[int, bytes]:
    """Return the status and body that answer a request from the attacker."""
    async with tcp(relay.port, address) as (reader, writer):
        writer.write(f"GET {target} HTTP/1.1\r\n{headers}\r\n".encode())
        answer = await read_answer(reader)
        return answer.status, answer.body


async def test_a_banned_address_is_refused_on_all_workers(relay_pair: RelayProcess) -> None:
    one, two = fresh_twins(2)
    held = [
        await connect(relay_pair.url, one, f"s{number}", local_addr=(ATTACKER, 0))
        for number in range(6)
    ]
    async with session(relay_pair.url, one, "elsewhere") as same_twin:
        await _ban(relay_pair, "set", "127.0.0.64/27", "--force", "--reason", "testing")
        start = time.monotonic()
        for client in held:
            assert await client.closed(LIVE_WITHIN_S + 3) == (4007, "address_banned")
        assert time.monotonic() - start < LIVE_WITHIN_S
        for _ in range(8):  # whichever worker answers
            assert await _asked(relay_pair, f"/?{one.token()}") == ANSWER
            assert await _asked(relay_pair, "/?nonsense") == ANSWER, "before anything is parsed"
            assert await _asked(relay_pair, "/live", "Host: localhost\r\n") == ANSWER
        async with federation(relay_pair.port, ATTACKER) as other:
            answer = await other.post(signed(FAR, (two.id, None), b"never"))
            assert (answer.status, answer.body) == (403, b"address is banned")
        assert relay_pair.redis is not None and not queued(relay_pair.redis, two)
        await same_twin.barrier()
        assert (await _asked(relay_pair, "/live", "Host: localhost\r\n", address="127.0.0.96"))[
            0
        ] == 200, "beside the network"
        await eventually(
            lambda: (
                relay_pair.counted("relay_handshakes_refused_total", reason="address_banned") == 24
            )
        )
        await _ban(relay_pair, "lift", "127.0.0.64/27")

        async def served() -> bool:
            answers = [await _asked(relay_pair, f"/?{one.token()}") for _ in range(4)]
            return {status for status, _ in answers} == {101}

        await eventually(served, timeout_s=LIVE_WITHIN_S)


async def test_it_is_the_address_of_the_client_and_not_of_its_proxy(start_relay) -> None:
    relay = start_relay(settings={"relay.trusted_proxies": ATTACKER})
    one, two = fresh_twins(2)
    banned, other = ("X-Forwarded-For: 2001:db8::7\r\n", "X-Forwarded-For: 2001:db9::7\r\n")
    token, plain = f"/?{one.token()}", "Host: localhost\r\n"
    headers = {"X-Forwarded-For": "2001:db8::7"}
    options = {"local_addr": (ATTACKER, 0), "additional_headers": headers}
    client = await connect(relay.url, one, "behind", **options)
    await _ban(relay, "set", "2001:db8::/32")
    assert await client.closed(LIVE_WITHIN_S + 3) == (4007, "address_banned")
    assert await _asked(relay, token, UPGRADE_HEADERS + banned) == ANSWER
    assert await _asked(relay, "/live", plain + banned) == ANSWER
    assert (await _asked(relay, token, UPGRADE_HEADERS + other))[0] == 101
    forged = await _asked(relay, token, UPGRADE_HEADERS + banned, address="127.0.0.1")
    assert forged[0] == 101, "anybody may write the header, the proxy alone is believed"
    async with federation(relay.port, ATTACKER) as partner:
        answer = await partner.post(signed(FAR, (two.id, None), b"never"), headers=headers)
        assert (answer.status, answer.body) == (403, b"address is banned")


async def test_a_ban_outlives_a_restart_of_the_relay_and_of_redis(
    start_server, start_relay
) -> None:
    server = start_server()
    relay = start_relay(server)
    await _ban(relay, "set", ATTACKER, "--force")
    await eventually(lambda: _is_banned(relay), timeout_s=LIVE_WITHIN_S)
    server.run("FLUSHALL")
    await eventually(lambda: _is_banned(relay), timeout_s=90, what="what Redis lost to be back")


async def _is_banned(relay: RelayProcess) -> bool:
    return await _asked(relay, "/live", "Host: localhost\r\n") == ANSWER
