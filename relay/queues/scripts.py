"""Lua scripts that work on queues, as text."""

from __future__ import annotations

from pathlib import Path

from redispipe import scripts

FOLDER = Path(__file__).with_name("lua")


def source(name: str) -> str:
    """Return the text of one script."""
    return scripts.source(FOLDER, name)
