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
"""Sessions of a twin that are remembered to have signed in..."""
KNOWN_S: Final = 7 * 86_400
"""... and for how long after the twin's last one did."""
_EPOCH: Final = re.compile(rb"[0-9]{1,20}")


def entry_epoch(entry: bytes | None) -> int:
    """The epoch of a directory entry; 0 where there is none in it, as the scripts have it."""
    found = _EPOCH.match(entry or b"")
    return int(found[0]) if found else 0


def claims(boot_id: str, each: Sequence[tuple[str, float, str]]) -> bytes:
    """Takes session keys over; replies epoch and former entry (or "") of each in one list.

    Args:
        each: session key, since, and remote.
    """
    parts = [part for text, since, remote in each for part in (text, f"{since:.3f}", remote)]
    source = scripts.source(FOLDER, "claim")
    own = (boot_id, KNOWN_S, KNOWN)
    return resp.command("EVAL", source, 2, keys.SESSIONS, keys.UNUSED, *own, *parts)


def hold(text: str, epoch: int, boot_id: str, since: float, remote: str) -> bytes:
    """Enters a holder again where it is missing; replies the epoch that holds the key."""
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
    """Ends a hold; replies 1 where the entry was this holder's."""
    return resp.command("EVAL", scripts.source(FOLDER, "release"), 1, keys.SESSIONS, text, epoch)


def leave(
    stream: bytes, text: str, shard: int, account: Account, mail: Sequence[str | bytes | int]
) -> bytes:
    """Moves mail of a guest to the outbox; see there for what it is given and replies."""
    source = scripts.source(FOLDER, "leave")
    where = (keys.SESSIONS, keys.outbox(shard), account.key, keys.lease(shard))
    return resp.command("EVAL", source, 5, stream, *where, text, account.text, *mail)


def fullest(streams: Sequence[bytes], messages: int, size_bytes: int) -> bytes:
    """Looks for queues that hold so much; replies name, messages and bytes of each."""
    source = scripts.source(FOLDER, "fullest")
    return resp.command("EVAL", source, len(streams), *streams, messages, size_bytes)


def outlive(streams: Sequence[bytes], life_s: int) -> bytes:
    """Gives queues their time to live, and removes empty ones that nobody holds."""
    source = scripts.source(FOLDER, "outlive")
    texts = [stream.removeprefix(keys.stream("")) for stream in streams]
    number = len(streams) + 1
    return resp.command("EVAL", source, number, keys.SESSIONS, *streams, life_s, *texts)


def hits(kind: str, minute: int, kept: int, life_s: int, counts: Mapping[str | int, int]) -> bytes:
    """Adds to the counts of who ran into limits in a minute."""
    pairs = [part for pair in counts.items() for part in pair]
    source = scripts.source(FOLDER, "hits")
    return resp.command("EVAL", source, 1, keys.hits(kind, minute), kept, life_s, *pairs)
