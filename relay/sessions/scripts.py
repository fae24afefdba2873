"""The Lua scripts of sessions, encoded as EVAL commands.

EVAL and not EVALSHA: inside a MULTI there is no second try for a script Redis has forgotten, and
they are a few hundred bytes, once per session.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from redispipe import resp
from relay.queues import keys

FOLDER = Path(__file__).with_name("lua")


@cache
def source(name: str) -> str:
    """The text of one script, its comments but for the name left out: Redis hashes what it gets."""
    first, *lines = (FOLDER / f"{name}.lua").read_text().splitlines()
    return "\n".join([first, *(line for line in lines if not line.startswith("--"))])


def claim(text: str, boot_id: str, since: float, remote: str) -> bytes:
    """Takes the session key over; replies ``[epoch, former entry or ""]``."""
    return resp.command(
        "EVAL",
        source("claim"),
        2,
        keys.SESSIONS,
        keys.UNUSED,
        text,
        boot_id,
        f"{since:.3f}",
        remote,
    )


def hold(text: str, epoch: int, boot_id: str, since: float, remote: str) -> bytes:
    """Enters a holder again where it is missing; replies the epoch that holds the key."""
    return resp.command(
        "EVAL",
        source("hold"),
        2,
        keys.SESSIONS,
        keys.UNUSED,
        text,
        epoch,
        boot_id,
        f"{since:.3f}",
        remote,
    )


def release(text: str, epoch: int) -> bytes:
    """Ends a hold; replies 1 where the entry was this holder's."""
    return resp.command("EVAL", source("release"), 1, keys.SESSIONS, text, epoch)
