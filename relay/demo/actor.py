"""One demo twin as a process, which carries out orders and reports what happens.

Orders are JSON lines on standard input; each is answered by one line that begins with DONE. Lines
that begin with SAY are shown to the user. The process ends when its input is closed.

    {"do": "sign in"}                            {"do": "send", "to": "bob", "text": "hello"}
    {"do": "sign out"}                           {"do": "await answer", "uid": "..."}
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from proto.rmb import events
from relay.demo import identities
from relay.demo.link import AnswerError, Link, by_name

COMMAND = "demo.shout"


class Actor:
    """A demo twin that serves one command, which returns a text in capital letters."""

    def __init__(self, data_dir: Path, url: str, name: str) -> None:
        self._twins = by_name(identities.load(data_dir))
        self._names = {twin.id: twin.name for twin in self._twins.values()}
        twin = self._twins[name]
        others = [each for each in self._twins.values() if each is not twin]
        self._link = Link(url, twin, others, self._serve)

    def _serve(self, request: events.RequestReceived) -> bytes:
        text = request.payload.decode(errors="replace")
        _say(f"opens a request of {self._names.get(request.source.twin)}: {text!r}, answers it")
        return text.upper().encode()

    async def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        """Carry out one order."""
        match order:
            case {"do": "sign in"}:
                await self._link.sign_in()
                _say("is signed in")
            case {"do": "sign out"}:
                await self._link.sign_out()
                _say("has left")
            case {"do": "send", "to": to, "text": text}:
                uid = await self._link.send(self._twins[to].id, COMMAND, text.encode())
                _say(f"sent {text!r} to {to}, encrypted; the relay has stored or delivered it")
                return {"uid": uid}
            case {"do": "await answer", "uid": uid}:
                answer = (await self._link.answer(uid)).decode(errors="replace")
                _say(f"got the answer {answer!r}")
                return {"text": answer}
            case _:
                raise ValueError(f"unknown order {order}")
        return {}


async def play(data_dir: Path, url: str, name: str) -> int:
    """Carry out orders until standard input ends."""
    actor = Actor(data_dir, url, name)
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(orders), sys.stdin
    )
    while line := await orders.readline():
        try:
            done = await actor.obey(json.loads(line))
        except (AnswerError, OSError, TimeoutError) as error:
            done = {"error": str(error) or "no answer in time"}
        print("DONE", json.dumps(done), flush=True)
    await actor.obey({"do": "sign out"})
    return 0


def _say(text: str) -> None:
    print("SAY", text, flush=True)


if __name__ == "__main__":
    folder, relay_url, own_name = sys.argv[1:]
    sys.exit(asyncio.run(play(Path(folder), relay_url, own_name)))
