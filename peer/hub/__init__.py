"""Many sessions over one connection to a relay: each is a stream (`docs/protocol/streams.md`).

    StreamLink (twin 7) --+
    StreamLink (twin 8) --+-- Carrier -- one websocket -- relay
    StreamLink (twin 9) --+

A `StreamLink` is a `Link`, and is used like any other. The `Carrier` reopens the websocket when it
is lost, and paces the sign-ins that follow.
"""

from __future__ import annotations

from peer.hub.carrier import Carrier
from peer.hub.link import StreamLink

__all__ = ["Carrier", "StreamLink"]
