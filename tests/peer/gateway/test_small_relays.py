"""Relays that accept smaller messages than a gateway sends: the program gets an error.

Other messages are not affected.
"""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

from tests.peer.conftest import LIMIT_BYTES
from tests.peer.gateway.conftest import StartGateway
from tests.support.gateway_process import Program, Service, payload_of
from tests.support.relay_process import RelayProcess
from tests.support.waiting import eventually


async def test_a_message_that_is_too_large_for_the_relay_is_answered(
    start_gateway: StartGateway, small_relay: RelayProcess
) -> None:
    here = start_gateway(relays=(small_relay.url,))
    there = start_gateway(relays=(small_relay.url,))
    await here.connected()
    await there.connected()
    program = Program(here.redis)
    async with Service(there.redis, "echo"):
        assert payload_of(await program.call("echo", there.twin, b"1")) == b"1"
        large = program.ask("echo", [there.twin], os.urandom(LIMIT_BYTES + 200_000))
        answer = await program.answer(large)
        assert answer["err"] == {"code": 500, "message": "message is too large for the relay"}
        assert answer["src"] == str(there.twin)
        assert payload_of(await program.call("echo", there.twin, b"2")) == b"2"
        # The next one costs no session.
        sessions = here.log().count("connected to ws://")
        again = program.ask("echo", [there.twin], os.urandom(LIMIT_BYTES + 200_000))
        assert (await program.answer(again))["err"]["code"] == 500
        assert here.log().count("connected to ws://") == sessions
    await eventually(lambda: not here.redis.run("EXISTS", "msgbus.processing"))


async def test_an_answer_that_is_too_large_for_the_relay_is_an_error(
    start_gateway: StartGateway, small_relay: RelayProcess
) -> None:
    here = start_gateway(relays=(small_relay.url,))
    there = start_gateway(relays=(small_relay.url,))
    await here.connected()
    await there.connected()
    program = Program(here.redis)
    ret = program.ask("large", [there.twin])
    found = await eventually(lambda: there.redis.run("RPOP", "msgbus.large"))
    request = json.loads(found)
    body = {
        "ref": request["ref"],
        "dst": request["src"],
        "dat": "AAAA" * (LIMIT_BYTES // 3 + 50_000),
        "now": int(time.time()),
    }
    there.redis.run("LPUSH", "msgbus.system.reply", json.dumps(body))
    answer = await program.answer(ret)
    assert answer["err"] == {"code": 500, "message": "message is too large for the relay"}
    await eventually(lambda: not there.redis.run("EXISTS", "msgbus.processing"))


MODULE = f"""
from peer.modules.api import CommandError, Context, Module, Request

LARGE = bytes({LIMIT_BYTES + 200_000})

class Large(Module):
    async def on_start(self, context: Context) -> None:
        self.context = context

module = Large("large")

@module.command("answer")
async def answer(request: Request) -> bytes:
    return LARGE

@module.command("ask")
async def ask(request: Request) -> None:
    try:
        await module.context.call(request.source, "log.it", LARGE)
    except Exception as error:
        raise CommandError(1, type(error).__name__) from None
"""


async def test_what_modules_ask_and_answer_is_refused_at_once(
    start_gateway: StartGateway, small_relay: RelayProcess, tmp_path: Path
) -> None:
    (tmp_path / "gateways").mkdir()
    (tmp_path / "gateways" / "large.py").write_text(MODULE)
    here = start_gateway(relays=(small_relay.url,))
    there = start_gateway(relays=(small_relay.url,), more=("--module", "large:module"))
    await here.connected()
    await there.connected()
    program = Program(here.redis)
    ask = program.ask("large.ask", [there.twin])
    assert (await program.answer(ask))["err"] == {"code": 1, "message": "TooLargeError"}
    for _ in "12":  # the second one is known to be too large
        answer = await program.answer(program.ask("large.answer", [there.twin]))
        assert answer["err"]["code"] == 500
        assert re.fullmatch(
            r"message of \d+ bytes: the relays take at most \d+", answer["err"]["message"]
        )
