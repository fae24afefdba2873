"""The Lua scripts of federation, as text and as commands."""

from __future__ import annotations

from pathlib import Path

from redispipe import resp, scripts

FOLDER = Path(__file__).with_name("lua")


def source(name: str) -> str:
    """Return the text of a script."""
    return scripts.source(FOLDER, name)


def call(name: str, keys: list[str], *arguments: resp.Argument) -> bytes:
    """Return the command that runs a script."""
    return resp.command("EVAL", source(name), len(keys), *keys, *arguments)
