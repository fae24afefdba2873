"""Check whether a relay works for a twin: sign in, send a ping, wait for the pong, sign out.

The check uses a session id of its own, so that it does not replace the session of a gateway or
client of the same twin.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Final, NamedTuple

from peer.errors import RelayError
from peer.identity import Identity
from peer.link import Link
from peer.links import MakeLink
from proto.identity import tokens
from proto.rmb.events import PongReceived
from proto.rmb.machine import PeerSide

TIMEOUT_S: Final = 12.0
"""Time-out for the whole check, in seconds: a link takes 10 s to give up an attempt to connect."""

SESSION_PREFIX: Final = "check-"
LOOK_S: Final = 0.05


class Reached(NamedTuple):
    """Result of a check of a relay that answered."""

    sign_in_ms: float
    """Milliseconds until the session was established."""
    pong_ms: float
    """Milliseconds from the ping to its pong."""
    clock: str
    """What is wrong with this machine's clock; empty if it agrees with the relay's."""


async def reach(
    url: str,
    identity: Identity,
    twin: int,
    timeout_s: float = TIMEOUT_S,
    make_link: MakeLink = Link,
) -> Reached:
    """Check whether a relay works.

    Args:
        url: URL of the relay.
        identity: keys of the twin.
        twin: id of the twin.
        timeout_s: seconds for the whole check.
        make_link: factory of the link to the relay; by default with a websocket of its own.

    Raises:
        RelayError: the relay does not work; the text is the relay's, or describes what happened.
    """
    sid = f"{SESSION_PREFIX}{os.urandom(6).hex()}"
    side = PeerSide((twin, sid), identity.key, identity.encryption, lambda _: None, os.urandom)
    ponged = asyncio.Event()

    def take(message: bytes) -> None:
        side.receive_data(message, int(time.time()))
        while (event := side.next_event()) is not None:
            if isinstance(event, PongReceived):
                ponged.set()

    def token() -> str:
        return tokens.issue(identity.key, twin, sid, int(time.time()))

    link = make_link(url, token, take, None)
    began = time.perf_counter()
    link.start()
    try:
        async with asyncio.timeout(timeout_s):
            while not link.connected:
                if link.last_error:
                    raise RelayError(f"{url}: {link.last_error}")
                await link.writable(LOOK_S)
            signed_in = time.perf_counter()
            side.send_ping(int(time.time()))
            for data in side.data_to_send():
                link.try_send(data)
            await ponged.wait()
            ended = time.perf_counter()
    except TimeoutError:
        what = "no pong" if link.connected else "no connection"
        raise RelayError(f"{url}: {what} within {timeout_s:g} s") from None
    finally:
        await link.aclose()
    return Reached((signed_in - began) * 1e3, (ended - signed_in) * 1e3, link.clock)
