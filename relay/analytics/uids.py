"""The number by which the rows of one message find each other, on whatever relay they were written.

Senders choose uids, and an answer bears that of its question: so the two twins and the kind of the
message belong to it. They go into the seed of the hash, where what is the same for all messages
between two twins is worked out once:

    seed = xxh3-64(source twin, destination twin as little-endian u32) xor xxh3-64(name of the kind)
    uid  = xxh3-64(uid of the envelope, seed)

The names of kinds are those of the envelope's `message`; one without any counts as 0. In a row the
number is taken as signed.

The two rows of a session find each other by a hash of its worker, its key and its epoch: these are
in the session history, too, so that another process can record the end of a lost worker's session.
Those of an SBD connection do by a hash of its worker, its key, and its epoch or the time at which
it was opened.
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
"""By what `Envelope.WhichOneof("message")` says."""


def pair_seed(source_twin: int, destination_twin: int) -> int:
    """What the two twins contribute to the seed."""
    return xxh3_64_intdigest(PAIR.pack(source_twin, destination_twin))


def message_uid(source_twin: int, destination_twin: int, kind: str | None, uid: str) -> int:
    """The number of a message, from 0 to 2^64 - 1.

    Args:
        source_twin, destination_twin: of the envelope, as signed.
        kind: what the envelope carries.
        uid: of the envelope.
    """
    return xxh3_64_intdigest(uid, pair_seed(source_twin, destination_twin) ^ KIND_SEEDS[kind])


def session_uid(boot_id: str, key: SessionKey, epoch: int) -> int:
    """The number of a session, from 0 to 2^64 - 1.

    Args:
        boot_id: of its worker.
        key: of the session; the database has no NUL, so it counts as what stands there.
        epoch: of the connection.
    """
    text = key_text(key).replace("\0", "\ufffd")
    return xxh3_64_intdigest(f"{boot_id}:{epoch}:{text}")


def sbd_session_uid(boot_id: str, key: bytes, epoch: int) -> int:
    """The number of an SBD connection, from 0 to 2^64 - 1.

    Args:
        boot_id: of its worker.
        key: of its client.
        epoch: of the connection; of one that has none, when it was opened, in microseconds.
    """
    return xxh3_64_intdigest(f"sbd:{boot_id}:{epoch}:{path_of_key(key)}")
