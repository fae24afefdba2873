"""When to check again whether a caller may still use an open socket or stream.

    watch = Watch(15.0)
    ...
    if await watch.due():    # at least each `LOOK_S`
        ...                  # check permissions as at the opening

Everything that changes permissions, from roles to sign-outs, is in the audit log. So a new number
of its newest entry means that permissions may have changed; one process queries it once in
`LOOK_S`, however many sockets are open. Changes outside the log, such as the expiry of a token, are
noticed after the period.
"""

from __future__ import annotations

import contextlib
import time
from typing import Final

from channels.db import database_sync_to_async
from django.db import Error as DatabaseError

from relay.audit.models import AuditEntry

LOOK_S: Final = 0.4
"""Seconds between two queries, so that a query, this pause and a check take less than a second."""
SETTLE_S: Final = 1.0
"""Seconds until a second check after a new entry: a sign-out is logged before its session ends."""


class _Newest:
    """Number of the newest audit entry, cached in this process."""

    def __init__(self) -> None:
        self.number = 0
        self._look_at = 0.0

    async def look(self) -> int:
        """Return the number; callers that call it during a query get the previous one."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            with contextlib.suppress(DatabaseError):  # the next check notices this
                self.number = await database_sync_to_async(_newest_number)()
        return self.number


_newest: Final = _Newest()


class Watch:
    """Watch of one socket or stream."""

    def __init__(self, period_s: float) -> None:
        """Initialise the watch.

        Args:
            period_s: seconds until the next check if the audit log does not change.
        """
        self._period_s = period_s
        self._seen: int | None = None
        self._judge_at = 0.0

    async def due(self) -> bool:
        """Return whether to check now; the first call returns True."""
        number = await _newest.look()
        now = time.monotonic()
        if number != self._seen:
            self._seen = number
            self._judge_at = now + min(SETTLE_S, self._period_s)
            return True
        if now >= self._judge_at:
            self._judge_at = now + self._period_s
            return True
        return False


def _newest_number() -> int:
    found = AuditEntry.objects.order_by("-number").values_list("number", flat=True).first()
    return found or 0
