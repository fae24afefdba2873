"""What a client still sends when its window is full."""

from __future__ import annotations

import os
import time

from peer.client import Request
from peer.unconfirmed import WINDOW_MESSAGES
from proto.rmb.sealing import Sealer
from tests.peer.client.conftest import MakeClient
from tests.support.relay_process import RelayProcess
from tests.support.tcp_proxy import Direction, tcp_proxy
from tests.support.waiting import eventually
from tests.support.world import fresh_twins


async def echo(request: Request) -> bytes:
    return request.payload


async def test_who_has_sent_as_much_as_it_may_still_answers(
    make_client: MakeClient, relay: RelayProcess
) -> None:
    """A client with a full window still answers.

    Otherwise two clients that send each other many requests would wait for each other.
    """
    alice, bob = fresh_twins(2)
    async with tcp_proxy(("127.0.0.1", relay.port)) as proxy:
        url = f"ws://127.0.0.1:{proxy.port}"
        async with make_client(bob, sid=None, handlers={"echo": echo}, relays=[url]) as server:
            receiver = await server.twin(bob.id)
            assert receiver is not None and await server.twin(alice.id) is not None
            proxy.stall(Direction.TO_SERVER)
            session = server._open
            for _ in range(WINDOW_MESSAGES):
                uid, ping = session._make_ping()
                session.unconfirmed.send(ping, time.time() + 60, uid)
            now = int(time.time())
            sealer = Sealer((alice.id, None), alice.signing_key, alice.encryption_key, os.urandom)
            data = sealer.request("a", (bob.id, None), "echo", b"", receiver, now, 60)
            session.inbox.on_message(data)
            await eventually(lambda: len(session.unconfirmed) == WINDOW_MESSAGES + 1)
            proxy.resume(Direction.TO_SERVER)
