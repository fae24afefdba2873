"""Uploads that have ended: their commands on arrival, and answers to senders that ask again.

The command is called at least once: if the peer was killed before the call was recorded, it is
called again. A call that cannot be delivered is retried for an hour.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from peer.modules.api import JSON_SCHEMA, Request
from peer.modules.files_folder import UploadFolder
from proto.files.messages import Offer, State, Status
from proto.files.records import Record, Stage
from proto.rmb.bounds import DEFAULT_EXPIRATION_S

KEEP_S: Final = 3600.0
"""Seconds for which the end of an upload can be queried, and its command is retried."""
MAX_ENDED: Final = 1000
"""Maximum number of ended uploads that are kept for that; the oldest are dropped first."""

Deliver = Callable[[Request], Awaitable[None]]


class Ended:
    """The ended uploads of one folder.

    Args:
        folder: folder of the uploads.
        deliver: passes the command on arrival to its service.
        log: logger of the module.
        clock: returns the Unix time in seconds.
    """

    def __init__(
        self,
        folder: UploadFolder,
        deliver: Deliver,
        log: logging.Logger,
        clock: Callable[[], float],
    ) -> None:
        self._folder = folder
        self._deliver = deliver
        self._log = log
        self._clock = clock
        self._records: dict[str, Record] = {}  # by key, the oldest first
        self._calls: dict[str, asyncio.Task[None]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._records

    def add(self, key: str, record: Record) -> None:
        """Add an upload whose file is in place, and call its command if that was not done."""
        self._records[key] = record
        if record.stage is Stage.MOVED:
            self._call(key)

    async def stop(self) -> None:
        """Stop; the next start calls the commands that were not called."""
        calls = list(self._calls.values())
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    def status(self, key: str) -> Status:
        """Return the status of an ended upload for its sender."""
        record = self._records[key]
        return Status(record.id, State.DONE, record.offer.chunks, name=record.name)

    async def answers(self, key: str, offer: Offer) -> bool:
        """Return whether a former upload answers an offer; forget the former one otherwise.

        The same attempt is repeated if its sender did not get the answer. Another attempt wants the
        file to exist: if it does, and is not to be replaced, there is nothing to do.
        """
        record = self._records[key]
        if offer.nonce is not None and offer.nonce == record.offer.nonce:
            return True
        if not offer.replace:
            found = await asyncio.to_thread(self._folder.find, record.source.twin, record.name)
            if found is not None and found == record.target:
                return True
        await self._forget(key)
        return False

    async def sweep(self) -> None:
        """Retry calls that failed, and forget old uploads."""
        now = self._clock()
        for key, record in list(self._records.items()):
            if key not in self._records:  # forgotten meanwhile
                continue
            if now - record.at > KEEP_S or len(self._records) > MAX_ENDED:
                await self._forget(key)
            elif record.stage is Stage.MOVED:
                self._call(key)

    async def _forget(self, key: str) -> None:
        if self._records.pop(key, None) is None:
            return  # another task forgets it
        call = self._calls.get(key)
        if call is not None:
            call.cancel()
            await asyncio.wait([call])  # a cancellation of this task still works
        await asyncio.to_thread(self._folder.remove, key)

    def _call(self, key: str) -> None:
        if key not in self._calls:
            call = self._calls[key] = asyncio.create_task(self._arrived(key))
            call.add_done_callback(lambda _: self._calls.pop(key, None))

    async def _arrived(self, key: str) -> None:
        record = self._records[key]
        if record.offer.cmd is not None:
            try:
                await self._deliver(self._request(record))
            except Exception as error:  # in any case, an upload that has arrived stays
                self._log.warning("upload %s: can't call its command: %s", key, error)
                return
        record = record.at_stage(Stage.DONE, self._clock())
        try:
            await asyncio.to_thread(partial(self._folder.save, key, record))
        except OSError as error:
            self._log.warning("upload %s: can't save its end: %s", key, error)
        if key in self._records:
            self._records[key] = record

    def _request(self, record: Record) -> Request:
        """Return the request for the service of the command."""
        facts = {
            "id": record.id,
            "path": str(self._folder.path_of(record.source.twin, record.name)),
            "name": record.name,
            "size": record.offer.size_bytes,
            "sha256": record.sha256,
        }
        return Request(
            uid=str(uuid.uuid4()),
            source=record.source,
            command=record.offer.cmd or "",
            payload=json.dumps(facts).encode(),
            schema=JSON_SCHEMA,
            tags=None,
            deadline=int(self._clock()) + DEFAULT_EXPIRATION_S,
        )
