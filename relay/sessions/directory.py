"""The directory of held sessions in Redis: one hash for each protocol.

relay:sessions    <twin>, <twin>:<sid>    -> epoch, boot id, since, address
sbd:keys          the 32 bytes of a key   -> boot id, epoch
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from proto.sbd.errors import KeyFormatError
from proto.sbd.frames import key_of_path
from relay.ops.redis_client import text
from relay.queues import keys
from relay.sessions.models import RMB, SBD
from relay.sessions.scripts import entry_epoch

HASHES: Final[Mapping[str, str]] = {RMB: keys.SESSIONS, SBD: keys.SBD_KEYS}


class Entry(NamedTuple):
    """The holder of a session.

    Attributes:
        epoch: epoch of the session; 0 if the entry is malformed.
        worker: boot id of the worker.
        address: address of the client, if the entry has it.
    """

    epoch: int
    worker: str
    address: str = ""


def protocol_of(key: str) -> str:
    """Return the protocol of a session's key, as operators write it."""
    return SBD if key.startswith(f"{SBD}:") else RMB


def field(key: str) -> bytes:
    """Return the field of a session's key; if the key is malformed, one that no session has."""
    if protocol_of(key) == RMB:
        return key.encode("utf-8", "replace")
    try:
        return key_of_path(key.removeprefix(f"{SBD}:"))
    except KeyFormatError:
        return b""


def read(key: str, entry: bytes) -> Entry:
    """Read the entry of a session's key."""
    if protocol_of(key) == SBD:
        boot_id, _, epoch = entry.partition(b" ")
        return Entry(entry_epoch(epoch), text(boot_id))
    _, worker, _, address = [*text(entry).split(" ", 3), "", "", ""][:4]
    return Entry(entry_epoch(entry), worker, address)
