"""The interface of links to relays that `peer.unconfirmed` uses to send messages."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol


class Lane(Protocol):
    """The part of a link's interface that sending needs."""

    @property
    def connected(self) -> bool:
        """Whether messages can be sent on the link."""

    @property
    def sessions(self) -> int:
        """Number of times that the link has connected."""

    @property
    def close_code(self) -> int:
        """Close code that the relay sent for the last ended session; 0 if it sent none."""

    def try_send(self, data: bytes) -> bool:
        """Send a message; return False if that is not possible now."""


class Lanes(Protocol):
    """Several links, one of which accepts each message."""

    @property
    def links(self) -> Sequence[Lane]:
        """All links."""

    def try_send(self, data: bytes, without: Collection[Any] = ()) -> Lane | None:
        """Send over a link that is not excluded; return it, or None if none accepts the message."""
