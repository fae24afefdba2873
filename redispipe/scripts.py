"""Lua scripts as they are sent, with EVAL.

EVAL and not EVALSHA: inside a MULTI there is no second try for a script Redis has forgotten, and
they are some hundred bytes.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def source(folder: Path, name: str) -> str:
    """The text of one script without what only people read: Redis hashes it each time.

    Its first line stays: it names the script to who watches Redis.
    """
    first, *lines = (folder / f"{name}.lua").read_text().splitlines()
    kept = (line.strip() for line in lines if not line.startswith("--"))
    return "\n".join([first, *kept])
