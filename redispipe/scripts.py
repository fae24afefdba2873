"""Lua scripts as they are sent, with EVAL.

EVAL is used instead of EVALSHA: inside a MULTI there is no second try for a script that Redis has
evicted, and the scripts have only some hundred bytes.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def source(folder: Path, name: str) -> str:
    """Return the text of one script without comments and indentation: Redis hashes it each time.

    Its first line is kept: it identifies the script to operators who watch Redis.
    """
    first, *lines = (folder / f"{name}.lua").read_text().splitlines()
    kept = (line.strip() for line in lines if not line.startswith("--"))
    return "\n".join([first, *kept])
