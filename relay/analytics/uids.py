"""Numbers that connect the rows of one message, on whatever relay they were recorded.

Senders choose uids, and an answer has the uid of its question: so the number also depends on the
two twins and the kind of the message. These go into the seed of the hash, so that the part that is
the same for all messages between two twins is computed once:

    seed = xxh3-64(source twin, destination twin as little-endian u32) xor xxh3-64(name of the kind)
    uid  = xxh3-64(uid of the envelope, seed)

The names of kinds are those of the envelope's `message`; an envelope without one counts as 0. In a
row the number is taken as signed.

The two rows of a session are connected by a hash of its worker, its key and its epoch. The session
history has these values too, so another process can record the end of a lost worker's session. The
rows of an SBD connection are connected by a hash of its worker, its key, and its epoch or the time
at which it was opened.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from xxhash import xxh3_64_intdigest

from proto.sbd.frames import path_of_key
from relay.queues.keys import SessionKey, key_text

PAIR: Final = Struct("<II")

KINDS: Final = ("request", "response", "error", "ping", "pong")

KIND_SEEDS: Final[dict[str | None, int]] = {
    None: 0,
    **{kind: xxh3_64_intdigest(kind) for kind in KINDS},
}
"""Part of the seed for each kind, by the result of `Envelope.WhichOneof("message")`."""


def pair_seed(source_twin: int, destination_twin: int) -> int:
    """Return the part of the seed for two twins."""
    return xxh3_64_intdigest(PAIR.pack(source_twin, destination_twin))


def message_uid(source_twin: int, destination_twin: int, kind: str | None, uid: str) -> int:
    """Return the number of a message, from 0 to 2^64 - 1.

    Args:
        source_twin, destination_twin: twins of the envelope, as signed by its sender.
        kind: kind of the message in the envelope.
        uid: uid of the envelope.
    """
    return xxh3_64_intdigest(uid, pair_seed(source_twin, destination_twin) ^ KIND_SEEDS[kind])


def session_uid(boot_id: str, key: SessionKey, epoch: int) -> int:
    """Return the number of a session, from 0 to 2^64 - 1.

    Args:
        boot_id: boot id of its worker.
        key: key of the session; NUL characters count as their replacement in the database.
        epoch: epoch of the connection.
    """
    text = key_text(key).replace("\0", "\ufffd")
    return xxh3_64_intdigest(f"{boot_id}:{epoch}:{text}")


def sbd_session_uid(boot_id: str, key: bytes, epoch: int) -> int:
    """Return the number of an SBD connection, from 0 to 2^64 - 1.

    Args:
        boot_id: boot id of its worker.
        key: key of its client.
        epoch: epoch of the connection; if it has none, the time of its opening, in microseconds.
    """
    return xxh3_64_intdigest(f"sbd:{boot_id}:{epoch}:{path_of_key(key)}")
