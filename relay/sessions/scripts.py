"""The Lua scripts of sessions, encoded as EVAL commands."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from redispipe import resp, scripts
from relay.queues import keys

if TYPE_CHECKING:
    from relay.federation.accounts import Account

FOLDER = Path(__file__).with_name("lua")
KNOWN: Final = 1_000
"""Maximum number of sessions of a twin that are remembered to have signed in."""
KNOWN_S: Final = 7 * 86_400
"""Seconds for which they are remembered after the twin's last sign-in."""
_EPOCH: Final = re.compile(rb"[0-9]{1,20}")


def entry_epoch(entry: bytes | None) -> int:
    """Return the epoch of a directory entry; 0 if it has none, as in the scripts."""
    found = _EPOCH.match(entry or b"")
    return int(found[0]) if found else 0


def claims(boot_id: str, each: Sequence[tuple[str, float, str]]) -> bytes:
    """Take session keys over; replies the epoch and former entry (or "") of each in one list.

    Args:
        each: session key, since, and remote.
    """
    parts = [part for text, since, remote in each for part in (text, f"{since:.3f}", remote)]
    source = scripts.source(FOLDER, "claim")
    own = (boot_id, KNOWN_S, KNOWN)
    return resp.command("EVAL", source, 2, keys.SESSIONS, keys.UNUSED, *own, *parts)


def hold(text: str, epoch: int, boot_id: str, since: float, remote: str) -> bytes:
    """Enter a holder again if its entry is missing; replies the epoch that holds the key."""
    return resp.command(
        "EVAL",
        scripts.source(FOLDER, "hold"),
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
    """End a hold; replies 1 if the entry was this holder's."""
    return resp.command("EVAL", scripts.source(FOLDER, "release"), 1, keys.SESSIONS, text, epoch)


def leave(
    stream: bytes, text: str, shard: int, account: Account, mail: Sequence[str | bytes | int]
) -> bytes:
    """Move messages of a guest to the outbox; arguments and reply are described in `leave.lua`."""
    source = scripts.source(FOLDER, "leave")
    where = (keys.SESSIONS, keys.outbox(shard), account.key, keys.lease(shard))
    return resp.command("EVAL", source, 5, stream, *where, text, account.text, *mail)


def fullest(streams: Sequence[bytes], messages: int, size_bytes: int) -> bytes:
    """Find queues that hold this much; replies the total, then name, messages and bytes of each."""
    source = scripts.source(FOLDER, "fullest")
    return resp.command("EVAL", source, len(streams), *streams, messages, size_bytes)


def outlive(streams: Sequence[bytes], life_s: int) -> bytes:
    """Set the time to live of queues, and remove empty ones that no session holds."""
    source = scripts.source(FOLDER, "outlive")
    texts = [stream.removeprefix(keys.stream("")) for stream in streams]
    number = len(streams) + 1
    return resp.command("EVAL", source, number, keys.SESSIONS, *streams, life_s, *texts)


def hits(kind: str, minute: int, kept: int, life_s: int, counts: Mapping[str | int, int]) -> bytes:
    """Add to the counts of names that ran into limits in a minute."""
    pairs = [part for pair in counts.items() for part in pair]
    source = scripts.source(FOLDER, "hits")
    return resp.command("EVAL", source, 1, keys.hits(kind, minute), kept, life_s, *pairs)
