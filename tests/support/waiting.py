"""Waiting for states that no event announces, such as metrics and `/ready`, and for times."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from proto.limits.window import WINDOW_S

POLL_S = 0.02


def wait_until(
    check: Callable[[], Any], timeout_s: float = 60.0, why: Callable[[], object] = lambda: ""
) -> Any:
    """Wait in a thread until `check` returns a true value; return that value.

    Args:
        check: function that is called repeatedly.
        timeout_s: seconds after which the test fails.
        why: function that returns the failure's message.
    """
    deadline = time.monotonic() + timeout_s
    while not (found := check()):
        assert time.monotonic() < deadline, why() or f"not within {timeout_s} s: {check}"
        time.sleep(POLL_S)
    return found


async def eventually(
    check: Callable[[], Any | Awaitable[Any]], timeout_s: float = 60.0, what: str = ""
) -> Any:
    """Wait on the loop until `check` returns a true value; return that value."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = check()
        if isinstance(found, Awaitable):
            found = await found
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what or check}"
        await asyncio.sleep(POLL_S)


async def fresh_window(needed_s: float) -> None:
    """Wait until the limits' window of clock time has at least `needed_s` left."""
    left = WINDOW_S - time.time() % WINDOW_S
    if left < needed_s:
        await asyncio.sleep(left + 0.1)
