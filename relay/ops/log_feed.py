"""The log of a worker for readers in other programs: lines go out through Redis at once.

A worker publishes new lines twice a second, if there are any; nothing is stored, and no reader
needs to listen. Records below INFO stay on its standard error.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from redis.exceptions import RedisError

from redispipe import resp
from relay.access.errors import Away
from relay.ops.redis_client import open_async
from relay.queues import keys

if TYPE_CHECKING:
    from relay.queues.commit import CommitLog

PERIOD_S: Final = 0.5
MAX_LINES: Final = 200
"""Maximum number of lines published at once; if there are more, the newest."""
MAX_CHARS: Final = 2_000
"""Maximum length of one line, in characters."""
WAIT_S: Final = 1.0


class LogFeed(logging.Handler):
    """Log handler that keeps lines until they are taken."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._lines: deque[dict[str, Any]] = deque(maxlen=MAX_LINES)
        self._skipped = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record; never fails, whatever the record contains."""
        try:
            text = record.getMessage()
        except Exception:
            text = str(record.msg)
        self._skipped += len(self._lines) == MAX_LINES
        self._lines.append(
            {
                "at": round(record.created, 3),
                "level": record.levelname,
                "logger": record.name,
                "text": text[:MAX_CHARS],
            }
        )

    def take(self) -> bytes:
        """Return the lines to be published, as JSON; empty without lines."""
        if not self._lines:
            return b""
        self.acquire()
        try:
            lines, skipped = list(self._lines), self._skipped
            self._lines.clear()
            self._skipped = 0
        finally:
            self.release()
        return json.dumps({"skipped": skipped, "lines": lines}).encode()

    async def publish(self, boot_id: str, commit: CommitLog) -> None:
        """Publish new lines for ever; while Redis is unavailable, the newest ones wait."""
        channel = keys.log_channel(boot_id)
        while True:
            await asyncio.sleep(PERIOD_S)
            if commit.pipe.usable and (taken := self.take()):
                commit.submit(resp.command("PUBLISH", channel, taken), lambda reply: None)


async def follow(boot_id: str) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the lines of a worker from now on; `{"skipped": n}` stands for lines that are missing.

    Raises:
        Away: Redis does not answer.
    """
    redis = open_async(settings.RMB.redis.url)
    try:
        async with redis, redis.pubsub(ignore_subscribe_messages=True) as pubsub:
            await pubsub.subscribe(keys.log_channel(boot_id))
            while True:
                message = await pubsub.get_message(timeout=WAIT_S)
                if message is None:
                    continue
                news = json.loads(message["data"])
                if news["skipped"]:
                    yield {"skipped": news["skipped"]}
                for line in news["lines"]:
                    yield line
    except RedisError as error:
        raise Away(f"Redis does not answer: {error}") from error
