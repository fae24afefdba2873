"""Cleanup of the sessions of a worker that died."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

import hiredis

from redispipe import resp
from relay.queues import keys
from relay.sbd import crossing
from relay.sessions import scripts

if TYPE_CHECKING:
    from relay.sessions.worker import Worker

log = logging.getLogger(__name__)

LEASE_S: Final = 10
"""Seconds without progress after which another worker takes over the cleanup of a dead worker."""
PAGE: Final = 500
"""Directory entries examined in one step."""
LINKS: Final = "relay:links"
"""Hash: boot id -> ``<run id> <client id>`` of its commit connection. It outlives the heartbeat, so
that the worker that finds another one dead can end the connection that may still hold a batch of
it."""


async def bury(worker: Worker, boot: str) -> None:
    """End the commit connection of a dead worker, then free what it held.

    Only one worker does it, in parallel with its heartbeat: there may be tens of thousands of
    sessions.

    Raises:
        LinkLost: Redis went away; to be retried.
        hiredis.ReplyError: Redis refused.
    """

    def ask(*arguments: resp.Argument) -> asyncio.Future[Any]:
        return worker.request(resp.command(*arguments))

    lease = keys.burial(boot)
    if await ask("SET", lease, worker.boot_id, "NX", "EX", LEASE_S) is None:
        return
    if not await ask("SISMEMBER", keys.WORKERS, boot):  # another worker finished it meanwhile
        await ask("DEL", lease)
        return
    link = await ask("HGET", LINKS, boot)
    if link is not None:
        run_id, _, client_id = link.decode().partition(" ")
        if run_id == worker.commit.run_id:
            try:
                await ask("CLIENT", "KILL", "ID", client_id)
            except hiredis.ReplyError as error:
                if "No such client" not in str(error):
                    raise
    log.warning("worker %s is gone", boot)
    cursor = b"0"
    while True:
        cursor, entries = await ask("HSCAN", keys.SESSIONS, cursor, "COUNT", PAGE)
        held = [
            (text.decode(), scripts.entry_epoch(entry))
            for text, entry in zip(entries[::2], entries[1::2], strict=True)
            if entry.split(b" ")[1:2] == [boot.encode()]
        ]
        await asyncio.gather(
            *(worker.request(scripts.release(text, epoch)) for text, epoch in held),
            ask("EXPIRE", lease, LEASE_S),
        )
        for text, _ in held:
            if text in worker.guests.everywhere:
                worker.guests.left(worker.destination(keys.parse_key(text)))
        if cursor == b"0":
            break
    while await worker.request(crossing.bury(boot)):
        await ask("EXPIRE", lease, LEASE_S)
    await ask("SREM", keys.WORKERS, boot)
    await ask("HDEL", LINKS, boot)
    await ask("DEL", lease)
