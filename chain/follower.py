"""Follows the chain's best heads and reports changes of twins.

One `run` lasts until it is told to stop. It connects to a node, subscribes, and makes each
announced head its *tip*. It skips none, because a look-up may have read a head that was abandoned
for another a moment later.

1. The *branch* from the tip to the head is found by going back through parents. Mostly it is the
   head itself. It has more blocks if heads were skipped or the connection was lost, and it begins
   at an earlier block if the tip turned out to be on an abandoned fork.
2. Twins that changed on a fork are read again at the new head, as their changes are reverted.
3. The events of the branch are fetched, some blocks at a time, and reported in the order of blocks.

If this is not possible, everything is marked stale and the head becomes the tip at once (*flush and
jump*). This happens if no tip is known yet, if more blocks were missed than the threshold, if the
node has discarded the state of a block in between, if the fork began before the remembered blocks,
or if the events of a block cannot be decoded. The flush comes after the subscription is active, so
no change is missed in between.

A node that is far behind the tip, such as one that is still syncing, would revert everything, so
the follower moves on to the next node. If all nodes have been far behind for a while, the chain
must have started again from the beginning, as a test node does on a restart. Their head then
becomes the tip by a flush.

When a node fails, stalls or ends the connection, the follower moves on to the next one. While none
works, it pauses for 1, 2, 4 and then 6 seconds after each round through all nodes.

Heights keep old answers from replacing newer ones: everything that is reported has a height, and so
has every look-up (`Twins.head`). A `Sink` stores the height with each twin and follows three rules,
which its methods describe.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

from chain import bounds
from chain.client import Node, Twins
from chain.errors import BlockUnreadableError, NodeError, NodeSilentError, StateDiscardedError
from chain.head import Head
from chain.rpc import check_urls
from chain.urls import shown
from proto.chain.events import TwinChange
from proto.chain.headers import Header
from proto.chain.twin import Twin

logger = logging.getLogger(__name__)

_POLL_S: Final = 0.25
"""Seconds within which a follower that waits for a head notices that it must stop."""

_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 6.0
_MOST_DOUBLINGS: Final = 8
_HEADERS_AT_ONCE: Final = 200


class Sink(Protocol):
    """Receiver of the follower's reports; called from its thread, in the order of the chain.

    An exception raised by a sink ends `run`.
    """

    def twin_changed(self, twin: Twin, height: int) -> None:
        """Store a twin that was created or changed.

        Store it, and `height` with it, unless the stored twin is not stale and has a greater
        height. A look-up replaces a stored twin that is not stale only if the look-up's height is
        greater, so the answer of a look-up that was in progress is discarded.
        """

    def twin_reverted(self, twin_id: int, twin: Twin | None, height: int) -> None:
        """Store the current twin after a change was reverted; None if it does not exist.

        Store it regardless of the stored height.
        """

    def flush(self, height: int) -> None:
        """Mark all twins stale, whatever their heights, because changes may have been missed.

        A stale twin is replaced by any look-up that was read at `height` or above.
        """

    def at(self, head: Head) -> None:
        """Record that everything up to this block was reported: where the next `Follower` may
        start.
        """


class Port(Protocol):
    """The interface of a node that the follower needs; see `chain.client.Node`."""

    def limit(self, timeout_s: float) -> None: ...
    def subscribe_heads(self) -> None: ...
    def next_head(self, timeout_s: float) -> Header | None: ...
    def headers(self, hashes: Sequence[bytes | None]) -> list[Header | None]: ...
    def block_hashes(self, heights: Iterable[int]) -> list[bytes | None]: ...
    def changes(self, blocks: Sequence[Header]) -> list[tuple[TwinChange, ...]]: ...
    def twins(self, ids: Iterable[int], at: bytes | None = None) -> Twins: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Progress:
    """State of the follower, for health and metrics."""

    url: str = ""
    """The node that it is connected to; empty without a connection."""

    tip: Head | None = None
    """The last reported block."""

    head_height: int = 0
    """The highest head announced; above the tip while catching up."""

    head_at: float | None = None
    """Time at which the last head was announced, on the follower's clock."""

    last_error: str = ""
    connections: int = 0
    failures: int = 0
    """Number of times that a node failed, whether or not it had been connected."""

    blocks: int = 0
    changes: int = 0
    flushes: int = 0
    forks: int = 0


class _Block(NamedTuple):
    height: int
    hash: bytes
    changed: frozenset[int]


class Follower:
    """Follower that reports every change of a twin to a sink.

    Attributes:
        progress: state of the follower; replaced as a whole, so any thread may read it.
    """

    def __init__(
        self,
        urls: Sequence[str],
        sink: Sink,
        *,
        start: Head | None = None,
        catchup_threshold: int = bounds.CATCHUP_THRESHOLD,
        stall_s: float = bounds.STALL_S,
        connect: Callable[[str], Port] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a follower.

        Args:
            urls: addresses of the nodes, the preferred one first.
            sink: receiver of all reports.
            start: last head that an earlier run passed to `Sink.at`; None to flush and begin at the
                head.
            catchup_threshold: maximum number of missed blocks that are read one by one.
            stall_s: seconds without a head after which the next node is tried.
            connect: function that connects to a node; None for a real one.
            clock: monotonic clock in seconds.

        Raises:
            ValueError: an address is invalid.
        """
        self._urls = deque(check_urls(urls))
        self._sink = sink
        self._threshold = catchup_threshold
        self._stall_s = stall_s
        self._connect = connect or _node_opener()
        self._clock = clock
        # The newest reported block is the last. After a restart it is the only one, so the
        # beginning of a fork that began before it is not known.
        self._recent: deque[_Block] = deque(maxlen=bounds.RECENT_BLOCKS)
        # Greatest reported height, including abandoned forks. Later reports must not have a smaller
        # one, or a sink would consider them outdated.
        self._highest = 0
        self._turns = 0  # number of times a node was tried
        self._behind: tuple[float, int] | None = None  # time and turn since which all were behind
        self._taken = 0  # processed heads: a node that only announces them is useless
        if start is not None:
            self._push(start, frozenset())
        self.progress = Progress(tip=start)

    def run(self, stop: threading.Event) -> None:
        """Follow until `stop` is set; return soon after, at the latest when a call has ended."""
        failures = 0
        while not stop.wait(self._pause_s(failures)):
            self._turns += 1
            tip, taken, began = self.progress.tip, self._taken, self._clock()
            try:
                self._follow(self._urls[0], stop)
            except NodeError as error:
                self._note(url="", last_error=str(error), failures=self.progress.failures + 1)
                self._urls.rotate(-1)
                # A node may only announce a known head and then end each connection.
                lasted = self._clock() - began >= self._stall_s and self._taken > taken
                failures = 1 if lasted or self.progress.tip != tip else failures + 1
                # Only the first failure of an outage is logged at INFO.
                level = logging.INFO if failures == 1 else logging.DEBUG
                logger.log(level, "chain node left: %s", error)
        self._note(url="")

    def _pause_s(self, failures: int) -> float:
        """Return 0 between one node and the next, and a growing pause after each round of them."""
        rounds, place = divmod(failures, len(self._urls))
        if place or not rounds:
            return 0.0
        return min(_FIRST_PAUSE_S * float(2 ** min(rounds - 1, _MOST_DOUBLINGS)), _LONGEST_PAUSE_S)

    def _follow(self, url: str, stop: threading.Event) -> None:
        node = self._connect(url)
        try:
            node.subscribe_heads()
            self._note(url=shown(url), connections=self.progress.connections + 1)
            silent_since = self._clock()
            while not stop.is_set():
                head = node.next_head(_POLL_S)
                if head is not None:
                    self._note(head_height=head.number, head_at=self._clock())
                    node.limit(bounds.CALL_S)
                    self._take(node, head, stop)
                    self._taken += 1
                    silent_since = self._clock()
                elif self._clock() - silent_since >= self._stall_s:
                    raise NodeSilentError(f"{shown(url)}: no new block for {self._stall_s:.0f} s")
        finally:
            node.close()

    # Making a head the tip

    def _take(self, node: Port, head: Header, stop: threading.Event) -> None:
        known = {block.hash for block in self._recent}
        tip = self._recent[-1] if self._recent else None
        if tip is not None and tip.height - head.number > bounds.RECENT_BLOCKS:
            return self._leave_behind(head, tip.height)
        self._behind = None
        if head.hash() in known:
            # It is the tip, or a block before it because the node lags behind the previous one.
            return
        if tip is None:
            return self._jump(head, "no earlier block is known")
        missed = head.number - tip.height
        if missed > self._threshold:
            return self._jump(head, f"{missed} blocks were missed")
        try:
            branch = self._branch(node, head, known, stop)
            if stop.is_set():
                return None
            if branch is not None:
                return self._tell_branch(node, branch, stop)
        except (StateDiscardedError, BlockUnreadableError) as error:
            return self._jump(head, str(error))
        # Perhaps the node only lags behind the previous one: this is known once it is past the tip.
        if missed > 0:
            self._jump(head, f"block {head.number} does not follow from block {tip.height}")

    def _leave_behind(self, head: Header, tip_height: int) -> None:
        """Abandon a node that is far behind the tip, unless all have been for `BEHIND_S`."""
        now = self._clock()
        since, turn = self._behind or (now, self._turns)
        if now - since < bounds.BEHIND_S or self._turns - turn < len(self._urls):
            self._behind = since, turn
            raise NodeError(f"the node is behind, at block {head.number} of {tip_height}")
        self._behind = None
        self._jump(head, f"all nodes are far behind block {tip_height}: the chain started again")

    def _branch(
        self, node: Port, head: Header, known: set[bytes], stop: threading.Event
    ) -> list[Header] | None:
        """Return the blocks after a known one up to `head`; None if no known one is found."""
        lowest = self._recent[0].height
        branch = [head]
        while branch[-1].parent_hash not in known and not stop.is_set():
            if branch[-1].number - 1 <= lowest:
                return None
            # Reset the limit in each round: on a slow link, all headers take longer than `CALL_S`.
            node.limit(bounds.CALL_S)
            branch += self._ancestors(node, branch[-1])
        branch.reverse()
        return branch

    def _ancestors(self, node: Port, block: Header) -> list[Header]:
        """Return some blocks before `block`, each the parent of the one before; at least one."""
        # Blocks above the tip are on no known fork and are fetched together, others one by one.
        down_to = min(block.number - 1, self._recent[-1].height + 1)
        heights = range(block.number - 1, down_to - 1, -1)[:_HEADERS_AT_ONCE]
        hashes = [each for each in node.block_hashes(heights) if each is not None]
        if not hashes or hashes[0] != block.parent_hash:
            # The node has abandoned this branch meanwhile, but still has its blocks.
            hashes = [block.parent_hash]
        ancestors: list[Header] = []
        for header in node.headers(hashes):
            child = ancestors[-1] if ancestors else block
            if header is None or header.hash() != child.parent_hash:
                break
            if header.number != child.number - 1:
                raise NodeError(f"block {header.number} is the parent of block {child.number}")
            ancestors.append(header)
        if not ancestors:
            raise NodeError(f"the node does not have the parent of block {block.number}")
        return ancestors

    def _tell_branch(self, node: Port, branch: list[Header], stop: threading.Event) -> None:
        node.limit(bounds.CALL_S)
        self._leave_fork(node, branch)
        blocks = iter(branch)
        while (batch := list(islice(blocks, bounds.CATCH_UP_BLOCKS))) and not stop.is_set():
            node.limit(bounds.CALL_S)
            for block, changes in zip(batch, node.changes(batch), strict=True):
                self._highest = max(self._highest, block.number)
                for change in changes:
                    self._sink.twin_changed(change.twin, self._highest)
                head = Head(block.number, block.hash())
                self._push(head, frozenset(change.twin.id for change in changes))
                self._note(
                    tip=head,
                    blocks=self.progress.blocks + 1,
                    changes=self.progress.changes + len(changes),
                )
            self._sink.at(head)

    def _leave_fork(self, node: Port, branch: list[Header]) -> None:
        """Revert what was reported for blocks that do not lead to the head."""
        left: set[int] = set()
        depth = 0
        while self._recent[-1 - depth].hash != branch[0].parent_hash:
            left |= self._recent[-1 - depth].changed
            depth += 1
        if not depth:
            return
        head = branch[-1]
        logger.info("chain fork: %d blocks left, %d twins read again", depth, len(left))
        twins = node.twins(sorted(left), head.hash()).found if left else {}
        # Anything read on the fork must look older than this.
        self._highest = max(self._highest, head.number)
        for twin_id in sorted(left):
            self._sink.twin_reverted(twin_id, twins.get(twin_id), self._highest)
        for _ in range(depth):
            self._recent.pop()
        self._note(forks=self.progress.forks + 1)

    def _jump(self, head: Header, why: str) -> None:
        logger.info("all twins are stale from block %d on: %s", head.number, why)
        self._sink.flush(head.number)
        self._recent.clear()
        self._highest = head.number
        tip = Head(head.number, head.hash())
        self._push(tip, frozenset())
        self._note(tip=tip, flushes=self.progress.flushes + 1)
        self._sink.at(tip)

    def _push(self, head: Head, changed: frozenset[int]) -> None:
        self._highest = max(self._highest, head.height)
        self._recent.append(_Block(head.height, head.hash, changed))

    def _note(self, **changes: Any) -> None:
        self.progress = replace(self.progress, **changes)


def _node_opener() -> Callable[[str], Port]:
    """Return a function that connects to real nodes; runtime metadata is read only once."""
    from chain.runtime import Runtimes

    runtimes = Runtimes()
    return lambda url: Node(url, runtimes)
