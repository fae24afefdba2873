"""Look-ups that survive the failure of a node.

There is one connection at a time, to the node at the head of the list. When that node fails, it
moves to the tail and the next one is used; a node that works stays at the head. A look-up makes at
most two attempts for each node, all within 12 seconds, and then raises `ChainAwayError`. Only a
node that answered can report that a twin does not exist.

A node that answers may still be stuck at an old block, or far behind the others. If look-ups have
seen no newer block for a minute, the next node is asked as well, and replaces the current one if it
is further ahead.

A `Rotation` may be used by several threads. Their look-ups run one after the other, so request many
twins at once (`twins`) rather than one twin many times.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

from chain import bounds
from chain.client import Node, Page, Twins
from chain.errors import ChainAwayError, NodeError
from chain.head import Head
from chain.rpc import check_urls
from chain.urls import shown
from proto.chain.twin import Twin

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_Read = TypeVar("_Read", Twins, Page | None)


class Found(NamedTuple):
    """A twin, and the height of the block at which it was read."""

    twin: Twin
    height: int


class Rotation:
    """Several nodes of one chain, used in turn.

    Every look-up raises `ChainAwayError` if no node answered.

    Attributes:
        floor: minimum height: twins read at an earlier block count as the failure of a node that is
            behind.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        look_up_s: float = bounds.LOOK_UP_S,
        attempt_s: float = bounds.ATTEMPT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a rotation.

        Args:
            urls: addresses of the nodes, ws:// or wss://, the preferred one first.
            look_up_s: time-out of a look-up with all its attempts.
            attempt_s: time-out of one attempt.
            clock: monotonic clock in seconds.

        Raises:
            ValueError: an address is invalid.
        """
        self.floor = 0
        self._urls = deque(check_urls(urls))
        self._look_up_s = look_up_s
        self._attempt_s = attempt_s
        self._clock = clock
        self._lock = threading.Lock()
        self._node: Node | None = None
        self._failed: set[str] = set()
        self._away = ""
        self._away_until = float("-inf")
        self._newest = -1  # height of the newest block at which a look-up was answered
        self._newest_at = clock()

    @property
    def url(self) -> str:
        """Address of the node that is asked next."""
        return shown(self._urls[0])

    def twin(self, twin_id: int) -> Found | None:
        """Return a twin, or None if there is no twin with this id."""
        twins = self.twins([twin_id])
        twin = twins.found.get(twin_id)
        return Found(twin, twins.head.height) if twin is not None else None

    def twins(self, ids: Iterable[int]) -> Twins:
        """Return several twins, read at one block; those that do not exist are missing."""
        wanted = list(ids)
        return self._ask(lambda node: self._recent(node.twins(wanted)), self._compared)

    def twin_by_account(self, account: bytes) -> Found | None:
        """Return the twin of an account, or None if it has none."""

        def ask(node: Node) -> Found | None:
            head, twin_id = node.twin_id_of(account)
            if twin_id is None:
                return None
            twin = node.twins([twin_id], head.hash).found.get(twin_id)
            return Found(twin, head.height) if twin is not None else None

        return self._ask(ask)

    def last_twin_id(self) -> int:
        """Return the highest id of a twin, 0 if there are no twins."""
        return self._ask(lambda node: node.last_twin_id())

    def head(self) -> Head:
        """Return the newest block."""

        def ask(node: Node) -> Head:
            header = node.best()
            return Head(header.number, header.hash())

        return self._ask(ask)

    def pages(self, start_key: bytes | None = None) -> Iterator[Page]:
        """Generate all twins, in pages; each page is read at the newest block at that time.

        A twin that is created or changed in the meantime may be missing or outdated; the follower
        reports such changes.

        Args:
            start_key: `next_key` of the last page that an earlier run has stored.
        """
        while (page := self._page(start_key)) is not None:
            yield page
            start_key = page.next_key

    def close(self) -> None:
        """Close the connection; the next look-up opens another."""
        with self._lock:
            self._drop()

    def _page(self, start_key: bytes | None) -> Page | None:
        return self._ask(lambda node: self._recent(node.page(start_key)))

    def _ask(
        self,
        task: Callable[[Node], _T],
        then: Callable[[Callable[[Node], _T], _T, float], _T] = lambda task, answer, _: answer,
    ) -> _T:
        deadline = self._clock() + self._look_up_s
        if not self._lock.acquire(timeout=self._look_up_s):
            raise self._no_turn()
        try:
            now = self._clock()
            if now < self._away_until:
                raise ChainAwayError(self._away)
            if now >= deadline:
                raise self._no_turn()
            try:
                answer = self._attempts(task, deadline)
            except ChainAwayError as error:
                self._away = str(error)
                self._away_until = self._clock() + bounds.AWAY_PAUSE_S
                raise
            return then(task, answer, deadline)
        finally:
            self._lock.release()

    def _no_turn(self) -> ChainAwayError:
        return ChainAwayError(f"other look-ups have been waiting for {self._look_up_s:.0f} s")

    def _attempts(self, task: Callable[[Node], _T], deadline: float) -> _T:
        reasons: dict[str, str] = {}
        for _ in range(2 * len(self._urls)):
            left_s = deadline - self._clock()
            if left_s <= 0:
                break
            limit_s = min(left_s, self._attempt_s)
            url = self._urls[0]
            try:
                if self._node is None or not self._node.usable:
                    self._drop()
                    self._node = Node(url, timeout_s=limit_s)
                else:
                    self._node.limit(limit_s)
                answer = task(self._node)
            except NodeError as error:
                reasons[url] = str(error)
                if url not in self._failed:
                    # Log it once, not at every look-up while it is unavailable.
                    logger.warning("chain node failed: %s", error)
                    self._failed.add(url)
                self._drop()
                self._urls.rotate(-1)
            except BaseException:
                # Part of an answer may still arrive.
                self._drop()
                raise
            else:
                if url in self._failed:
                    logger.info("chain node answers again: %s", shown(url))
                    self._failed.remove(url)
                return answer
        raise ChainAwayError(f"no chain node answered: {'; '.join(reasons.values())}")

    def _recent(self, answer: _Read) -> _Read:
        if answer is not None and answer.head.height < self.floor:
            raise NodeError(f"it is at block {answer.head.height}, behind block {self.floor}")
        return answer

    def _compared(self, task: Callable[[Node], Twins], answer: Twins, deadline: float) -> Twins:
        """Return the answer, or that of another node if this node may be stuck and the other is
        not.
        """
        now = self._clock()
        if answer.head.height > self._newest:
            self._newest, self._newest_at = answer.head.height, now
            return answer
        if len(self._urls) == 1 or now - self._newest_at < bounds.STILL_S:
            return answer
        self._newest_at = now
        asked = self._urls[0]
        self._drop()
        self._urls.rotate(-1)
        other = answer
        with suppress(ChainAwayError):
            other = self._attempts(task, deadline)
        if other.head.height > answer.head.height:
            self._newest = max(self._newest, other.head.height)
            logger.warning("chain node left, stuck at block %d: %s", answer.head.height, asked)
            return other
        # The other node is not further ahead: it goes to the tail, and the previous one stays.
        self._drop()
        self._urls.rotate(-1)
        self._urls.remove(asked)
        self._urls.appendleft(asked)
        return answer

    def _drop(self) -> None:
        if self._node is not None:
            self._node.close()
            self._node = None
