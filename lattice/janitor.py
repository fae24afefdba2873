"""Delete payloads that nobody took from the object store.

Only what looks like a payload of a call is touched: a bucket may hold other objects as well.
"""

from __future__ import annotations

import asyncio
import logging
import re
from base64 import urlsafe_b64decode
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import nats.errors
from nats.js import JetStreamContext, api

from lattice.errors import LatticeError
from lattice.objects import Description, Objects

PERIOD_S: Final = 300.0
MOST_EACH_ROUND: Final = 1_000

_CALL_ID: Final = re.compile(r"[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}(-r)?")
_log = logging.getLogger(__name__)


class Janitor:
    """Deletes old payloads, some each time.

    Attributes:
        deleted: how many it has deleted.
    """

    def __init__(self, objects: Objects, ttl_s: float) -> None:
        """
        Args:
            objects: of the lattice.
            ttl_s: age of what is deleted; longer than any call takes.
        """
        self.deleted = 0
        self._objects = objects
        self._ttl_s = ttl_s

    async def run(self, is_due: Callable[[], bool] = lambda: True) -> None:
        """Clean up for ever.

        Args:
            is_due: asked before each round; of several processes one is enough.
        """
        failed = ""
        while True:
            await asyncio.sleep(PERIOD_S)
            if not is_due():
                continue
            try:
                found, text = await self.clean(datetime.now(UTC)), ""
            except (LatticeError, nats.errors.Error) as error:
                found, text = 0, str(error)
            if found:
                _log.info("lattice: deleted %d old payloads", found)
            if text and text != failed:  # once, where a lattice has no JetStream
                _log.warning("lattice: cannot clean up the object store: %s", text)
            failed = text

    async def clean(self, now: datetime) -> int:
        """Delete what is too old; returns how many objects."""
        objects = self._objects
        js = await objects.jetstream()
        kept: set[str] = set()
        found = 0
        sequence = 1
        while found < MOST_EACH_ROUND:
            message = await objects.message(js, f"{objects.descriptions}>", sequence)
            if message is None or message.seq is None:
                break
            sequence = message.seq + 1
            try:
                nuid = Description.read(message.data or b"").nuid
            except LatticeError:
                nuid = ""  # a tombstone of others
            name = _name_of(message.subject or "")
            if self._is_old(message, now) and _CALL_ID.fullmatch(name):
                await objects.forget(name, nuid)
                found += 1
            elif nuid:
                kept.add(nuid)
        else:
            return self._count(found)  # not all descriptions are known: chunks may belong to one
        return self._count(found + await self._clean_chunks(js, kept, now, MOST_EACH_ROUND - found))

    async def _clean_chunks(
        self, js: JetStreamContext, kept: set[str], now: datetime, most: int
    ) -> int:
        """Delete old chunks without a description: of a `put` that ended half way."""
        objects = self._objects
        seen: set[str] = set()
        sequence = 1
        while len(seen) < most:
            message = await objects.message(js, f"{objects.chunks}>", sequence)
            if message is None or message.seq is None or not self._is_old(message, now):
                break
            sequence = message.seq + 1
            subject = message.subject or ""
            if subject.removeprefix(objects.chunks) not in kept and subject not in seen:
                seen.add(subject)
                await objects.purge(subject)
        return len(seen)

    def _is_old(self, message: api.RawStreamMsg, now: datetime) -> bool:
        return message.time is not None and (now - message.time).total_seconds() > self._ttl_s

    def _count(self, found: int) -> int:
        self.deleted += found
        return found


def _name_of(subject: str) -> str:
    try:
        return urlsafe_b64decode(subject.rpartition(".")[2]).decode()
    except ValueError:
        return ""
