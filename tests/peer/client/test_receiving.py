"""Messages from twins that are not in the cache: they wait, and none is lost."""

from __future__ import annotations

import os

from peer.client.receiving import Receiver
from peer.modules.api import Request
from peer.senders import MAX_MESSAGES
from peer.twins import TwinCache
from proto.rmb.address import Address
from proto.rmb.sealing import Sealer
from tests.support import identities
from tests.support.slow_twins import SlowTwins, requests
from tests.support.waiting import eventually

OWN, OTHER = identities.twin(1), identities.twin(2)


class Owner:
    """Accepts requests and does nothing with them."""

    busy = False

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def requested(self, request: Request) -> None:
        self.requests.append(request)


async def test_a_burst_of_a_twin_that_is_looked_up() -> None:
    """A service that was disconnected gets thousands of messages of one twin, and loses none."""
    source, owner = SlowTwins(), Owner()
    own = Address(OWN.id)
    sealer = Sealer(own, OWN.signing_key, OWN.encryption_key, os.urandom)
    twins = TwinCache(source)
    inbox = Receiver(own, twins, sealer, owner)  # type: ignore[arg-type]
    inbox.begin()
    messages = requests(OTHER, OWN, MAX_MESSAGES + 1000)
    for each in messages:
        inbox.on_message(each)
    await eventually(lambda: inbox.waiting == MAX_MESSAGES)
    source.answering.set()
    await eventually(lambda: len(owner.requests) == len(messages))
    assert inbox.counters["sender not looked up"] == 0
    await inbox.aclose()
    await twins.aclose()
