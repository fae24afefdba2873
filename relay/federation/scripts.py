"""The Lua scripts of federation, as text; sent with EVAL.

EVAL and not EVALSHA: a script Redis has forgotten would need a second try for each of them, and
they are some hundred bytes, for a whole batch of messages.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from redispipe import resp

FOLDER = Path(__file__).with_name("lua")


@cache
def source(name: str) -> str:
    """The text of one script, without what only people read: Redis hashes it each time."""
    lines = (FOLDER / f"{name}.lua").read_text().splitlines()
    return "\n".join(line.strip() for line in lines if not line.startswith("--"))


def call(name: str, keys: list[str], *arguments: resp.Argument) -> bytes:
    """The command that runs a script."""
    return resp.command("EVAL", source(name), len(keys), *keys, *arguments)
