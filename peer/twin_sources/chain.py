"""Source of twins on the chain.

`chain.rotation` queries one node at a time and blocks, so it runs in a thread of its own. Look-ups
that arrive while it is busy are combined into the next query.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from chain.errors import ChainError
from chain.rotation import Rotation
from peer.errors import TwinsAwayError
from peer.twins import Twin
from proto.chain import relays
from proto.chain import twin as on_chain
from proto.identity.accounts import WEAK_ACCOUNTS

BATCH_TWINS: Final = 500
"""Maximum number of twins in one query: as many as a node reads at a time."""


class ChainTwins:
    """A `TwinSource` that queries nodes of one chain.

    Args:
        urls: URLs of the nodes, ws:// or wss://, the preferred one first.

    Raises:
        ValueError: a URL is invalid.
    """

    def __init__(self, urls: Sequence[str]) -> None:
        self._rotation = Rotation(urls)
        self._thread = ThreadPoolExecutor(1, "chain-twins")
        self._wanted: dict[int, list[asyncio.Future[Twin | None]]] = {}
        self._asking: asyncio.Task[None] | None = None

    async def by_id(self, twin_id: int) -> Twin | None:
        """Return the twin with an id, None if it does not exist."""
        answer: asyncio.Future[Twin | None] = asyncio.get_running_loop().create_future()
        self._wanted.setdefault(twin_id, []).append(answer)
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        return await answer

    async def by_account(self, account: bytes) -> Twin | None:
        """Return the twin of an account, None if the account has none."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(
                self._thread, self._rotation.twin_by_account, account
            )
        except ChainError as error:
            raise TwinsAwayError(str(error)) from error
        return _twin(found.twin) if found is not None else None

    async def aclose(self) -> None:
        """Close the connection and end the thread, after the query in progress."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._rotation.close)
        self._thread.shutdown(wait=False)

    async def _ask(self) -> None:
        loop = asyncio.get_running_loop()
        while self._wanted:
            ids = list(self._wanted)[:BATCH_TWINS]
            asked = {twin_id: self._wanted.pop(twin_id) for twin_id in ids}
            found: dict[int, on_chain.Twin] = {}
            failure: Exception | None = None
            try:
                found = (await loop.run_in_executor(self._thread, self._rotation.twins, ids)).found
            except ChainError as error:
                failure = TwinsAwayError(str(error))
            except asyncio.CancelledError:
                failure = TwinsAwayError("the source of twins was closed")
                raise
            finally:
                for twin_id, answers in asked.items():
                    twin = found.get(twin_id)
                    for answer in answers:
                        if answer.done():
                            continue
                        if failure is not None:
                            answer.set_exception(failure)
                        else:
                            answer.set_result(_twin(twin))


def _twin(twin: on_chain.Twin | None) -> Twin | None:
    """Convert a twin of the chain; a twin that anyone can sign for is treated as missing."""
    if twin is None or twin.account in WEAK_ACCOUNTS:
        return None
    return Twin(twin.id, twin.account, twin.pk or None, relays.split(twin.relay))
