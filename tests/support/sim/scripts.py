"""The worker's Lua scripts as Python, found by the name in their first line (`-- name: <name>`).

Written from the description of the protocol, not from the Lua text, so that the contract test
compares two independent versions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Call = Callable[..., Any]
Script = Callable[[Call, list[bytes], list[bytes]], Any]


def claim(call: Call, keys: list[bytes], argv: list[bytes]) -> Any:
    """Enter a newcomer in the directory with an epoch above every earlier one."""
    sessions, unused = keys
    key, boot_id, since, remote = argv
    call(b"DEL", unused)  # a first write that is never refused lets the next ones pass
    former = call(b"HGET", sessions, key)
    seconds, microseconds = call(b"TIME")
    epoch = int(seconds) * 10**6 + int(microseconds)
    if former is not None:
        epoch = max(epoch, _epoch_of(former) + 1)
    _enter(call, sessions, key, epoch, boot_id, since, remote)
    return [b"%d" % epoch, former if former is not None else b""]


def hold(call: Call, keys: list[bytes], argv: list[bytes]) -> Any:
    """Compare a held epoch with the directory and enter it again where it is missing or lower."""
    sessions, unused = keys
    key, epoch_text, boot_id, since, remote = argv
    call(b"DEL", unused)
    stored = call(b"HGET", sessions, key)
    epoch = int(epoch_text)
    if stored is not None and _epoch_of(stored) >= epoch:
        return b"%d" % _epoch_of(stored)
    _enter(call, sessions, key, epoch, boot_id, since, remote)
    return epoch_text


def release(call: Call, keys: list[bytes], argv: list[bytes]) -> int:
    """Remove an entry if it is still the caller's; tell the newcomer in any case."""
    (sessions,) = keys
    key, epoch_text = argv
    stored = call(b"HGET", sessions, key)
    own = stored is not None and _epoch_of(stored) == int(epoch_text)
    if own:
        call(b"HDEL", sessions, key)
    call(b"PUBLISH", b"wake:" + key, b"released " + epoch_text)
    return int(own)


def _epoch_of(entry: bytes) -> int:
    return int(entry.split(b" ", 1)[0])


def _enter(call: Call, sessions: bytes, key: bytes, epoch: int, *rest: bytes) -> None:
    call(b"HSET", sessions, key, b" ".join((b"%d" % epoch, *rest)))
    call(b"PUBLISH", b"wake:" + key, b"evict %d" % epoch)


SCRIPTS: dict[str, Script] = {"claim": claim, "hold": hold, "release": release}


def script_name(text: bytes) -> str:
    """The name in a script's first line, or "" when it has none."""
    first_line = text.lstrip().split(b"\n", 1)[0].strip()
    prefix = b"-- name:"
    return first_line[len(prefix) :].strip().decode() if first_line.startswith(prefix) else ""
