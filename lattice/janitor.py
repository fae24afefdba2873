"""Deletes payloads from the object store that were never fetched.

Only objects that look like a payload of a call are deleted: a bucket may hold other objects too.
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
    """Deletes old payloads, a bounded number in each round.

    Attributes:
        deleted: number of objects deleted so far.
    """

    def __init__(self, objects: Objects, ttl_s: float) -> None:
        """Create a janitor.

        Args:
            objects: object store of the lattice.
            ttl_s: age in seconds from which payloads are deleted; longer than any call takes.
        """
        self.deleted = 0
        self._objects = objects
        self._ttl_s = ttl_s

    async def run(self, is_due: Callable[[], bool] = lambda: True) -> None:
        """Clean up every `PERIOD_S` seconds, without end.

        Args:
            is_due: function called before each round; False skips it. Of several processes, only
                one needs to clean up.
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
            if text and text != failed:  # logged once only, since a lattice may lack JetStream
                _log.warning("lattice: cannot clean up the object store: %s", text)
            failed = text

    async def clean(self, now: datetime) -> int:
        """Delete payloads that are too old, and return how many objects were deleted."""
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
                nuid = ""  # a deletion marker of another program
            name = _name_of(message.subject or "")
            if self._is_old(message, now) and _CALL_ID.fullmatch(name):
                await objects.forget(name, nuid)
                found += 1
            elif nuid:
                kept.add(nuid)
        else:
            return self._count(found)  # further descriptions are unread: chunks may be theirs
        return self._count(found + await self._clean_chunks(js, kept, now, MOST_EACH_ROUND - found))

    async def _clean_chunks(
        self, js: JetStreamContext, kept: set[str], now: datetime, most: int
    ) -> int:
        """Delete old chunks that have no description: those of a `put` that was interrupted."""
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
