"""The outbox: the format of its entries, its accounts and their bounds.

Messages for partner relays wait in the streams ``federation:out:<shard>``. A worker writes them
inside its group commit, and counts them there with ``HINCRBY`` in the hash
``federation:held:<account>``. The script that removes a settled entry subtracts it again. The
*account* is the destination twin's list of relays: for most twins one domain, so a dead partner
relay fills only the account of messages for it. A field holds both counts, messages and bytes, in
one integer (`relay.queues.held`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from redispipe import resp
from relay.queues import keys
from relay.queues.held import MESSAGE_BITS, MESSAGE_MASK, SOURCE_SHARE, is_share_full

ENVELOPE: Final = "_"
ORIGIN: Final = "from"
"""Field: session key of the sender as text; empty if a relay made the message."""
ACCOUNT: Final = "for"
"""Field: the account that the entry is counted under."""

TOTAL: Final = "total"
"""Field of the hash of an account; all others are numbers of source twins."""

ACCOUNT_SEPARATOR: Final = "_"
MAX_TRIES: Final = 32
"""Maximum number of failed attempts kept for a message, to be shown on pages."""


class OutboxBounds(NamedTuple):
    """Bounds of one account; one source twin gets a `SOURCE_SHARE`th of each."""

    max_messages: int = 100_000
    max_bytes: int = 256 << 20

    def full(self, total: int) -> bool:
        """Check whether an account takes no more messages, by its packed count."""
        return total & MESSAGE_MASK >= self.max_messages or total >> MESSAGE_BITS >= self.max_bytes

    def share_full(self, packed: int) -> bool:
        """Check whether an account takes no more messages of a source twin, by its packed count."""
        return is_share_full(packed, SOURCE_SHARE, self.max_messages, self.max_bytes)


def account_of(relays: Iterable[str]) -> str:
    """Return the account that messages to a twin with these relays are counted under."""
    return ACCOUNT_SEPARATOR.join(sorted(set(relays)))


_PREFIXES: Final = [
    resp.xadd_prefix(keys.outbox(shard).encode(), 3) for shard in range(keys.OUTBOX_SHARDS)
]


def account_part(account: str) -> bytes:
    """Return the encoded last field of an entry, as `put_command` takes it."""
    text = account.encode()
    return b"$3\r\n%b\r\n$%d\r\n%b\r\n" % (ACCOUNT.encode(), len(text), text)


def put_command(twin: int, payload: bytes, origin: str, account: bytes) -> bytes:
    """Return the `XADD` of a message; the general encoder takes four times as long.

    Args:
        twin: destination twin.
        payload: the envelope.
        origin: session key of the sender as text.
        account: an `account_part`.
    """
    sender = origin.encode()
    return b"%b%b%b\r\n$4\r\nfrom\r\n$%d\r\n%b\r\n%b" % (
        _PREFIXES[twin % keys.OUTBOX_SHARDS],
        resp.length(len(payload)),
        payload,
        len(sender),
        sender,
        account,
    )


def source_of(origin: str) -> str:
    """Return the field that a message is counted under: its source twin, 0 for relays.

    Args:
        origin: the `ORIGIN` of the message.
    """
    return origin.partition(":")[0] or "0"
