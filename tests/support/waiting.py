"""Waiting in a thread for states no event tells of; on a loop it is `relay_process.eventually`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

POLL_S = 0.02


def wait_until(
    check: Callable[[], Any], timeout_s: float, why: Callable[[], object] = lambda: ""
) -> Any:
    """Wait until `check` gives something true.

    Args:
        check: asked again and again.
        timeout_s: then the test fails.
        why: what it fails with.
    """
    deadline = time.monotonic() + timeout_s
    while not (found := check()):
        assert time.monotonic() < deadline, why() or f"not within {timeout_s} s: {check}"
        time.sleep(POLL_S)
    return found
