"""Reports of the events of many sessions, in few log lines.

The first session with a reason is logged at once; those that follow within `GATHER_S` are counted
and named together.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from typing import Final

logger = logging.getLogger(__name__)

GATHER_S: Final = 10.0
NAMED: Final = 5
"""Maximum number of sessions named in a line."""


class Reports:
    """Reports of the sessions at one relay."""

    def __init__(self) -> None:
        self._gathered: dict[str, list[str]] = {}  # names of sessions, by what happened
        self._timer: asyncio.TimerHandle | None = None

    def add(self, name: str, text: str) -> None:
        """Record an event of a session."""
        gathered = self._gathered.get(text)
        if gathered is not None:
            gathered.append(name)
            return
        logger.warning("session %s: %s", name, text)
        self._gathered[text] = []
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(
                GATHER_S, self._tell, context=contextvars.Context()
            )

    def close(self) -> None:
        """Log the events gathered so far."""
        if self._timer is not None:
            self._timer.cancel()
            self._tell()

    def _tell(self) -> None:
        self._timer = None
        gathered, self._gathered = self._gathered, {}
        for text, names in gathered.items():
            if names:
                shown = ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")
                logger.warning("%d more sessions (%s): %s", len(names), shown, text)
