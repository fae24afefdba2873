"""When to judge again whether somebody may have what is open: a socket or a stream.

    watch = Watch(15.0)
    ...
    if await watch.due():    # each `LOOK_S` at least
        ...                  # judge as at the opening

Everything that changes rights, from roles to sign-outs, is in the audit log. So the number of its
newest entry tells that something may have changed; one process asks for it once in `LOOK_S`,
whatever is open. What is in no log, such as a token that expires, is seen after the period.
"""

from __future__ import annotations

import contextlib
import time
from typing import Final

from channels.db import database_sync_to_async
from django.db import Error as DatabaseError

from relay.audit.models import AuditEntry

LOOK_S: Final = 0.4
"""A look, the pause before the next one and a judgement together take less than a second."""
SETTLE_S: Final = 1.0
"""After news one more judgement follows: a sign-out is logged before its session is gone."""


class _Newest:
    """The number of the newest audit entry, as this process knows it."""

    def __init__(self) -> None:
        self.number = 0
        self._look_at = 0.0

    async def look(self) -> int:
        """The number; callers that come while it is asked for get the one before."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            with contextlib.suppress(DatabaseError):  # the next judgement finds that out
                self.number = await database_sync_to_async(_newest_number)()
        return self.number


_newest: Final = _Newest()


class Watch:
    """Of one socket or stream."""

    def __init__(self, period_s: float) -> None:
        """
        Args:
            period_s: judge so often though nothing changed.
        """
        self._period_s = period_s
        self._seen: int | None = None
        self._judge_at = 0.0

    async def due(self) -> bool:
        """Whether to judge now; the first time it is."""
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
