"""The one text that names all relays of a twin: what the chain takes, and how it is read.

Several domains are joined with `_`. The order means nothing: the reference relay reads a set and
writes it back in any order, so whoever compares compares sets.

The chain's check (tfchain, spec 144 to 149) knows nothing of that and sees a single name. Only
letters, digits, `-`, `_` and `.`: so no port, no scheme, no IPv6. Not empty, no dot at either end,
no two dots in a row. And, as it measures the first label from the wrong side, a dot in the second
place is refused as well: `r.example.com` is no relay, `r1.example.com` and `r` are.
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
        BoundError: too long; the chain does not even decode such a call.
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
    """The relays in a text, each once and sorted.

    As the reference relay reads it: bytes that are no UTF-8 become replacement characters, and an
    empty text names one relay whose name is empty (which is nobody's).

    Args:
        text: as it is on the chain; None, no text at all, gives no relays.
    """
    if text is None:
        return ()
    return tuple(sorted(set(text.decode("utf-8", "replace").split(SEPARATOR))))


def join(relays: Iterable[str]) -> bytes:
    """The text for some relays, each once and sorted; not checked."""
    return SEPARATOR.join(sorted(set(relays))).encode()
