"""A follower in a thread, with a mirror whose state tests can wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from chain.follower import Follower, Progress
from chain.head import Head
from tests.chain.simulation import Mirror

WAIT_S = 60.0


class Following:
    """A running follower.

    Attributes:
        mirror: sink that records what the follower reports.
    """

    def __init__(self, urls: Sequence[str], **options: Any) -> None:
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self.mirror = _Announcing(self._changed)
        self.follower = Follower(urls, self.mirror, **options)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def wait(self, condition: Callable[[Mirror, Progress], bool]) -> Mirror:
        """Wait until the condition holds; check it after each report and at regular intervals."""

        def happened() -> bool:
            if self._error is not None:
                raise self._error
            return condition(self.mirror, self.follower.progress)

        with self._changed:
            # A change of progress does not notify the condition, so check it regularly.
            for _ in range(int(WAIT_S / 0.05)):
                if self._changed.wait_for(happened, 0.05):
                    return self.mirror
        raise AssertionError(f"never happened; {self.follower.progress}, {self.mirror.__dict__}")

    def wait_for_head(self, height: int) -> Mirror:
        """Wait until the follower has reported a block of this height or above."""
        return self.wait(lambda mirror, _: bool(mirror.heads) and mirror.heads[-1].height >= height)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def end(self) -> None:
        """Stop the follower, and check that it stops."""
        self._stop.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self.follower.run(self._stop)
        except BaseException as error:
            self._error = error


class _Announcing(Mirror):
    """A mirror that wakes threads waiting for it to change."""

    def __init__(self, changed: threading.Condition) -> None:
        super().__init__()
        self._changed = changed

    def at(self, head: Head) -> None:
        super().at(head)
        with self._changed:
            self._changed.notify_all()


@contextmanager
def following(*urls: str, **options: Any) -> Iterator[Following]:
    """Run a follower of these nodes until the block ends."""
    running = Following(urls, **options)
    running.start()
    try:
        yield running
    finally:
        running.end()
