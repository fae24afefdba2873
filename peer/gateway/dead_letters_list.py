"""`rmb-peer --dead-letters`: list unreadable entries whose owner could not be notified."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Final

from redis.exceptions import RedisError

from peer.errors import PeerError
from peer.gateway import dead_letters
from peer.gateway.dead_letters import DeadLetter
from peer.gateway.options import Options

SHOWN_CHARACTERS: Final = 200


class StoreAwayError(PeerError):
    """Redis cannot be read."""


async def run(options: Options) -> int:
    """Print the dead letters, newest first; return the exit code.

    Raises:
        StoreAwayError: Redis does not answer.
    """
    try:
        letters = await dead_letters.read(options.redis_url)
    except (RedisError, OSError, ValueError) as error:
        raise StoreAwayError(f"redis: {error}") from None
    if options.json:
        print(json.dumps([_fields(letter) for letter in letters], indent=2))
        return 0
    if not letters:
        print("no dead letters")
    for letter in letters:
        print(f"{_time(letter)}  {letter.queue}  {letter.reason}\n    {_shown(letter.body)}")
    return 0


def _fields(letter: DeadLetter) -> dict[str, str]:
    return {
        "at": _time(letter),
        "queue": letter.queue,
        "reason": letter.reason,
        "body": base64.b64encode(letter.body).decode(),
    }


def _time(letter: DeadLetter) -> str:
    return datetime.fromtimestamp(letter.at, UTC).isoformat(timespec="seconds")


def _shown(body: bytes) -> str:
    text = body[:SHOWN_CHARACTERS].decode("utf-8", "replace")
    cut = " …" if len(body) > SHOWN_CHARACTERS else ""
    # Text written by a program must not control this terminal.
    return "".join(each if each.isprintable() else "?" for each in text) + cut
