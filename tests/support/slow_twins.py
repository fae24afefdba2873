"""A source of twins that answers when a test allows it, and requests of the twins it knows."""

from __future__ import annotations

import asyncio
import os
import time

from peer.errors import TwinsAwayError
from peer.twins import Twin
from proto.rmb.address import Address
from proto.rmb.sealing import Sealer, new_uid
from tests.support import identities


class SlowTwins:
    """Source that knows the test twins, and answers once `answering` is set."""

    def __init__(self) -> None:
        self.answering = asyncio.Event()
        self.away = False

    async def by_id(self, twin_id: int) -> Twin | None:
        await self.answering.wait()
        if self.away:
            raise TwinsAwayError("nobody is there")
        return known(identities.twin(twin_id))

    async def by_account(self, account: bytes) -> Twin | None:
        raise NotImplementedError

    async def aclose(self) -> None:
        self.answering.set()


def known(twin: identities.Twin) -> Twin:
    return Twin(twin.id, twin.account, twin.encryption_key.public, ())


def requests(
    sender: identities.Twin, receiver: identities.Twin, count: int, payload: bytes = b"x"
) -> list[bytes]:
    sealer = Sealer(Address(sender.id), sender.signing_key, sender.encryption_key, os.urandom)
    now, at = int(time.time()), known(receiver)
    return [
        sealer.request(new_uid(os.urandom), (receiver.id, None), "out.age", payload, at, now, 300)
        for _ in range(count)
    ]
