"""The text that lists all relays of a twin: what the chain accepts, and how it is read.

Several domains are joined with `_`. Their order has no meaning: the reference relay reads a set and
writes it back in any order, so comparisons must compare sets.

The chain's check (tfchain, spec 144 to 149) does not know about lists and treats the text as a
single name. Only letters, digits, `-`, `_` and `.` are allowed, so no port, no scheme and no IPv6
address. The text must not be empty, begin or end with a dot, or have two dots in a row. As the
check measures the first label from the wrong side, it also rejects a dot in the second place:
`r.example.com` is rejected, `r1.example.com` and `r` are accepted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from proto.chain.bounds import MAX_RELAY_BYTES
from proto.chain.errors import BoundError, RelayTextError

SEPARATOR: Final = "_"

_CHARACTERS: Final = re.compile(rb"[A-Za-z0-9._-]*")


def check(text: bytes) -> None:
    """Check a relay text the way the chain does.

    Raises:
        BoundError: the text is too long; the chain does not even decode such a call.
        RelayTextError: the chain would answer InvalidRelayAddress.
    """
    if len(text) > MAX_RELAY_BYTES:
        raise BoundError("relay", len(text), MAX_RELAY_BYTES)
    if not text:
        raise RelayTextError("relay: must not be empty")
    if not _CHARACTERS.fullmatch(text):
        raise RelayTextError("relay: only letters, digits, '-', '_' and '.' are allowed")
    if text.startswith(b".") or text.endswith(b"."):
        raise RelayTextError("relay: must not begin or end with a dot")
    if b".." in text:
        raise RelayTextError("relay: must not have two dots in a row")
    if text[1:2] == b".":
        raise RelayTextError("relay: the first label must have at least two characters")


def split(text: bytes | None) -> tuple[str, ...]:
    """Return the relays in a text, without duplicates and sorted.

    The text is read as the reference relay does: bytes that are not UTF-8 become replacement
    characters, and an empty text gives one relay with an empty name (which belongs to no relay).

    Args:
        text: the text as stored on the chain; None, the absence of a text, gives no relays.
    """
    if text is None:
        return ()
    return tuple(sorted(set(text.decode("utf-8", "replace").split(SEPARATOR))))


def join(relays: Iterable[str]) -> bytes:
    """Return the text for some relays, without duplicates and sorted. The text is not checked."""
    return SEPARATOR.join(sorted(set(relays))).encode()
