"""Links to relays as far as it matters to what is sent over them; see `peer.unconfirmed`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol


class Lane(Protocol):
    """A link, as far as it matters here."""

    @property
    def connected(self) -> bool:
        """Whether it can be sent on."""

    @property
    def sessions(self) -> int:
        """How often it has been connected."""

    @property
    def close_code(self) -> int:
        """With which its relay has closed the last session that ended; 0: with none."""

    def try_send(self, data: bytes) -> bool:
        """Sends, or says that it can't now."""


class Lanes(Protocol):
    """Some links, one of which takes a message."""

    @property
    def links(self) -> Sequence[Lane]:
        """All of them."""

    def try_send(self, data: bytes, without: Collection[Any] = ()) -> Lane | None:
        """Sends over one that is not excluded, or none can now."""
