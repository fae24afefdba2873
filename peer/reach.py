"""Whether a relay works for a twin: sign in, ask for a pong, sign out.

It is done under a session id of its own, so that a gateway or client of the same twin, which has
another one, is not pushed out.
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
"""For all of it: a link takes 10 s to give up an attempt to connect."""

SESSION_PREFIX: Final = "check-"
LOOK_S: Final = 0.05


class Reached(NamedTuple):
    """A relay that answered."""

    sign_in_ms: float
    """Until the session was there."""
    pong_ms: float
    """From the ping to its pong."""
    clock: str
    """What is wrong with this machine's clock; empty: nothing."""


async def reach(
    url: str,
    identity: Identity,
    twin: int,
    timeout_s: float = TIMEOUT_S,
    make_link: MakeLink = Link,
) -> Reached:
    """Try a relay.

    Args:
        url: of the relay.
        identity: the twin's keys.
        twin: its id.
        timeout_s: for all of it.
        make_link: makes the link to it; a websocket of its own unless given.

    Raises:
        RelayError: it does not work; the text is the relay's, or says what happened.
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
