"""The twin source `tfchain`: the chain, queried in a thread, together with its mirror.

    worker's caches -> ChainSource -> a node of the chain, through `chain.rotation`
                                   -> the mirror (`relay.twins.mirror`)

Every answer is compared with the mirror, which the follower updates: if the mirror has a twin of a
later block, the node is behind. While no node answers, the mirror is used. It is used at once if an
earlier query has waited for the chain for `patience_s` already, so that not every look-up waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from django.db import Error as DatabaseError

from chain.client import Twins
from chain.errors import ChainError
from chain.rotation import Rotation
from relay.twins import mirror
from relay.twins.bounds import PATIENCE_S
from relay.twins.source import TwinRecord, TwinSourceError
from relay.twins.table import Answer, TwinTable

logger = logging.getLogger(__name__)

MAX_QUERIES: Final = 8
"""Queries that wait for the chain at once; more would wait behind those that have no answer."""

CLOSE_S: Final = 1.0
"""Seconds for which `close` waits for a query in progress."""


class ChainSource:
    """`relay.twins.source.TwinSource` over a chain and its mirror.

    Attributes:
        queries, failures: number of queries, and of those that failed.
    """

    def __init__(self, urls: Sequence[str], *, patience_s: float = PATIENCE_S) -> None:
        """Initialise the source.

        Args:
            urls: nodes of the chain.
            patience_s: seconds to wait for the chain if the mirror has every requested twin, and
                for the highest id.
        """
        self.away = ""
        self.queries = 0
        self.failures = 0
        self._patience_s = patience_s
        self._rotation = Rotation(urls)
        # One thread is enough: the rotation has one connection, and look-ups arrive in batches.
        self._chain = ThreadPoolExecutor(1, thread_name_prefix="chain")
        self._table = TwinTable()
        self._asked: dict[asyncio.Future[Any], float] = {}  # queries in progress, with their times

    async def fetch(self, ids: Sequence[int]) -> dict[int, TwinRecord]:
        query = await self._ask(lambda: self._rotation.twins(ids), ids)
        if not await self._is_answered(query):
            known = await self._known(ids)
            if len(known) == len(set(ids)):
                raise TwinSourceError("the chain is slow", known)
        try:
            answer = await asyncio.shield(query)
        except ChainError as error:
            raise TwinSourceError(str(error), await self._known(ids)) from error
        return await self._compared(ids, answer)

    async def highest_id(self) -> int:
        query = await self._ask(self._rotation.last_twin_id, ())
        if not await self._is_answered(query):
            raise TwinSourceError("the chain is slow")
        try:
            highest = await asyncio.shield(query)
        except ChainError as error:
            raise TwinSourceError(str(error)) from error
        try:
            return max(highest, await self._table.ask(mirror.highest_id))
        except DatabaseError as error:
            logger.warning("the mirror of the chain cannot be read: %s", error)
            return highest

    async def close(self) -> None:
        """Close the connections; a query in progress is abandoned after `CLOSE_S`."""
        loop = asyncio.get_running_loop()
        closing = loop.run_in_executor(self._chain, self._rotation.close)
        await asyncio.wait({closing}, timeout=CLOSE_S)
        await self._table.close()
        self._chain.shutdown(wait=False, cancel_futures=True)

    async def _ask(
        self, question: Callable[[], Answer], ids: Sequence[int]
    ) -> asyncio.Future[Answer]:
        if len(self._asked) >= MAX_QUERIES:
            text = f"the chain does not answer: {len(self._asked)} queries wait"
            raise TwinSourceError(text, await self._known(ids))
        self.queries += 1
        loop = asyncio.get_running_loop()
        query = loop.run_in_executor(self._chain, question)
        self._asked[query] = loop.time()
        query.add_done_callback(self._answered)
        return query

    async def _is_answered(self, query: asyncio.Future[Any]) -> bool:
        """Wait for an answer; return False if the oldest query has had none for `patience_s`."""
        oldest = next(iter(self._asked.values()), None)
        if oldest is not None:
            left_s = oldest + self._patience_s - asyncio.get_running_loop().time()
            await asyncio.wait({query}, timeout=max(left_s, 0.0))
        return query.done()

    def _answered(self, query: asyncio.Future[Answer]) -> None:
        del self._asked[query]
        if query.cancelled():
            return
        error = query.exception()
        self.away = "" if error is None else str(error)
        self.failures += error is not None

    def figures(self) -> dict[str, float]:
        """Return the series for the metrics of the worker."""
        return {
            "relay_chain_queries_total": self.queries,
            "relay_chain_query_failures_total": self.failures,
        }

    async def _compared(self, ids: Sequence[int], answer: Twins) -> dict[int, TwinRecord]:
        height = answer.head.height
        known = {twin: each for twin, each in answer.found.items() if mirror.provable(each)}
        try:
            found = await self._table.ask(lambda: mirror.reconcile(ids, known, height))
        except DatabaseError as error:
            logger.warning("the mirror of the chain cannot be used: %s", error)
            return {twin: mirror.record_of(each, height) for twin, each in known.items()}
        if found.stale:
            raise TwinSourceError(f"the node is behind, at block {height}", found.records)
        return found.records

    async def _known(self, ids: Sequence[int]) -> dict[int, TwinRecord]:
        try:
            return await self._table.ask(lambda: mirror.records(ids))
        except DatabaseError as error:
            logger.warning("the mirror of the chain cannot be read: %s", error)
            return {}
