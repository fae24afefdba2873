"""No token ever reaches a log, whatever a client does with it and whichever process logs."""

from __future__ import annotations

import json
import time

import pytest

from tests.support.raw_http import exchange, upgrade
from tests.support.rmb_client import session
from tests.support.world import UNKNOWN_TWIN, fresh_twins

TOKEN_HEAD = "eyJ"  # base64 of '{"', with which every token begins


@pytest.mark.parametrize("server", ["uvicorn", "daphne"])
async def test_tokens_never_reach_a_log(start_relay, server: str) -> None:
    relay = start_relay(server=server, settings={"log.level": "debug"})
    (twin,) = fresh_twins(1)
    tokens = [
        twin.token("s"),
        twin.token(now=int(time.time()) - 1000),
        UNKNOWN_TWIN.token(),
        twin.token("s" * 129),
        "eyJgarbage" * 20,
    ]
    async with session(relay.url, twin, "s", token=tokens[0]) as client:
        await client.barrier()
        await client.send_text("the end")
        await client.closed()
    for token in tokens:
        await upgrade(relay.port, f"/?{token}")
        await upgrade(relay.port, f"/ws/path?{token}", "X-Long: " + "x" * 20_000 + "\r\n")
        await exchange(relay.port, f"GET /?{token} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await exchange(relay.port, f"GET /?{token} nonsense\r\n\r\n".encode())
    relay.stop()
    log = relay.log()
    assert log
    for token in tokens:
        for part in token.split("."):
            assert part not in log
    assert TOKEN_HEAD not in log


async def test_bad_input_leaves_no_traceback(start_relay) -> None:
    relay = start_relay(settings={"log.level": "debug"})
    (twin,) = fresh_twins(1)
    for content in (b"\xff", b"", b"\x0a\xff\xff\xff\xff\x0f"):
        async with session(relay.url, twin) as client:
            await client.send_bytes(content)
    for target in ("/?%ff", "/?" + "." * 3, "/?a.b.c"):
        await upgrade(relay.port, target)
    relay.stop()
    assert "Traceback" not in relay.log()


async def test_every_line_of_a_relay_is_json(start_relay) -> None:
    """All log lines are JSON: of supervisor, workers and site. A connection has one name."""
    relay = start_relay(operator_site=True, settings={"log.format": "json", "log.level": "debug"})
    (twin,) = fresh_twins(1)
    async with session(relay.url, twin, "s") as client:
        await client.barrier()
    relay.stop()
    lines = [json.loads(line) for line in relay.log().splitlines() if line.startswith("{")]
    others = [line for line in relay.log().splitlines() if not line.startswith("{")]
    assert not [line for line in others if " INFO " in line or " DEBUG " in line], others
    named = [line for line in lines if line.get("connection", "").startswith(f"{twin.id}:s@")]
    assert len(named) == 2, "it began and ended"
    assert len({line["connection"] for line in named}) == 1
    assert {line["remote"].partition(":")[0] for line in named} == {"127.0.0.1"}
