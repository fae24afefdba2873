"""`rmb ping`: check whether a relay or a twin answers, and measure the delay."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from typing import Any, Final

from peer.arguments import FAILED
from peer.cli import output
from peer.cli.inputs import add_count, add_timeout, destination
from peer.cli.output import Progress
from peer.cli.session import Session
from peer.client import Client
from peer.errors import CallError, RelayError, RemoteError
from peer.reach import reach
from proto.rmb.tags import FAIL_FAST

VERSION: Final = "rmb.version"
DEFAULT_TIMEOUT_S: Final = 10.0

EPILOG: Final = """\
examples:
  rmb ping                           # sign in at each relay and wait for its pong
  rmb ping 102                       # ask twin 102 for its version
  rmb ping 102 -c 5 --json

You can run it beside a gateway or client of the same twin: it opens a session of its own. An error
from a twin counts as an answer too.
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument(
        "twin",
        nargs="?",
        type=destination,
        metavar="TWIN",
        help="id, or id:session; default: ping the relays",
    )
    add_count(parser, "requests to the twin")
    add_timeout(parser, DEFAULT_TIMEOUT_S, "each answer of a twin")


async def run(options: argparse.Namespace, session: Session) -> int:
    """Ping; return 1 if one does not answer."""
    return await (_ping_relays(session) if options.twin is None else _ping_twin(options, session))


async def _ping_relays(session: Session) -> int:
    with Progress(session.json) as progress:
        async with progress.keep_waiting("waiting for the relays"):
            twin = await session.own_twin()
            tries = [_relay(url, session, twin.id) for url in session.relays]
            answers = await asyncio.gather(*tries)
    if session.json:
        print(json.dumps({"twin": twin.id, "relays": answers}))
    else:
        for answer in answers:
            print(_relay_line(answer))
    return FAILED if any("error" in answer for answer in answers) else 0


async def _relay(url: str, session: Session, twin: int) -> dict[str, Any]:
    try:
        reached = await reach(url, session.identity, twin)
    except RelayError as error:
        return {"relay": url, "error": str(error).removeprefix(f"{url}: ")}
    return {
        "relay": url,
        "sign_in_ms": round(reached.sign_in_ms, 3),
        "pong_ms": round(reached.pong_ms, 3),
        **({"clock": reached.clock} if reached.clock else {}),
    }


def _relay_line(answer: dict[str, Any]) -> str:
    if "error" in answer:
        return f"{answer['relay']}  FAIL  {output.printable(answer['error'])}"
    times = f"signed in after {answer['sign_in_ms']:.0f} ms, pong after {answer['pong_ms']:.1f} ms"
    clock = f"; {answer['clock']}" if "clock" in answer else ""
    return f"{answer['relay']}  ok  {times}{clock}"


async def _ping_twin(options: argparse.Namespace, session: Session) -> int:
    answers = []
    async with session.client(timeout=options.timeout) as client:
        for _ in range(options.count):
            with Progress(session.json) as progress:
                async with progress.keep_waiting(f"waiting for twin {options.twin}"):
                    answer = await _twin(client, options)
            answers.append(answer)
            if not session.json:
                print(_twin_line(str(options.twin), answer), flush=True)
    if session.json:
        print(json.dumps({"twin": str(options.twin), "answers": answers}))
    return FAILED if any("error" in answer for answer in answers) else 0


async def _twin(client: Client, options: argparse.Namespace) -> dict[str, Any]:
    began = time.perf_counter()
    try:
        reply = await client.call(options.twin, VERSION, tags=FAIL_FAST)
        told = output.payload_fields(reply.payload)
        found = {"version": next(iter(told.values()))}
    except RemoteError as error:
        found = {"refused": error.message}
    except CallError as error:
        found = {"error": str(error)}
    return {**found, "ms": round((time.perf_counter() - began) * 1e3, 3)}


def _twin_line(twin: str, answer: dict[str, Any]) -> str:
    name, value = next(iter(answer.items()))
    word = {"version": "ok  version", "refused": "ok  refuses", "error": "FAIL "}[name]
    return f"{twin}  {word} {output.printable(str(value))}, {answer['ms']:.1f} ms"
