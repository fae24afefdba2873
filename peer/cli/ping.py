"""`rmb ping`: is a relay there, is a twin there, and how far away?"""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any, Final

from peer.arguments import FAILED
from peer.cli.output import Progress
from peer.cli.session import Session
from peer.errors import RelayError
from peer.reach import reach

HELP: Final = "ask each relay for a sign of life"
EPILOG: Final = """\
examples:
  rmb ping                           # sign in at each relay and wait for its pong
  rmb ping --relay ws://localhost:8080 --json

It works beside a gateway or client of the same twin: the session it opens is another one.
"""


def add(verbs: Any) -> None:
    """Add the verb to the command line."""
    verbs.add_parser("ping", help=HELP, epilog=EPILOG)


async def run(options: argparse.Namespace, session: Session) -> int:
    """Ping the relays; 1 when one of them does not answer."""
    with Progress(session.json) as progress:
        progress.waiting("looking up the own twin")
        twin = await session.own_twin()
        progress.waiting("signing in")
        tries = [_relay(url, session, twin.id) for url in session.relays]
        answers = await asyncio.gather(*tries)
    if session.json:
        print(json.dumps({"twin": twin.id, "relays": answers}))
    else:
        for answer in answers:
            print(_line(answer))
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
    }


def _line(answer: dict[str, Any]) -> str:
    if "error" in answer:
        return f"{answer['relay']}  FAIL  {answer['error']}"
    times = f"signed in after {answer['sign_in_ms']:.0f} ms, pong after {answer['pong_ms']:.1f} ms"
    return f"{answer['relay']}  ok  {times}"
