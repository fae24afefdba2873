"""Pages of the messages that wait for partner relays, and of dead letters."""

from __future__ import annotations

from redis.exceptions import RedisError

from relay.access.errors import Away, Invalid, NotFound
from relay.federation import letters
from relay.federation.letters import Letter
from relay.federation.services import NO_LETTER
from relay.ops import paging
from relay.ops.paging import Page
from relay.ops.redis_client import client
from relay.queues import headers, keys

_WAITING = "waiting"
_DEAD = "dead"


def waiting(*, relay: str = "", limit: int = letters.MAX_SHOWN, cursor: str = "") -> Page[Letter]:
    """Return a page of messages of the outbox, the oldest first.

    Args:
        relay: only messages for it, among the oldest of each shard, on one page.
        limit: maximum number on the page; there are fewer if payloads are large.

    Raises:
        Invalid: the cursor does not belong to this list.
        Away: Redis does not answer.
    """
    try:
        if relay:
            return Page(letters.pending_for(client(), relay, limit), "")
        after = None
        if cursor:
            entry, shard = paging.decode(cursor, _WAITING, str, int)
            after = (_entry(entry), shard)
        found = letters.pending(client(), after, limit)
        if not found:
            return Page([], "")
        last = (found[-1].entry, found[-1].shard)
        more = bool(letters.pending(client(), last, 1))
    except RedisError as error:
        raise _away(error) from error
    return Page(found, paging.encode(_WAITING, *last) if more else "")


def dead(
    *, relay: str = "", why: str = "", limit: int = letters.MAX_SHOWN, cursor: str = ""
) -> Page[Letter]:
    """Return a page of dead letters, the latest first.

    Args:
        relay: only letters for it.
        why: only letters with this reason.
        limit: maximum number on the page; there are fewer if payloads are large.

    Raises:
        Invalid: the cursor does not belong to this list.
        Away: Redis does not answer.
    """
    more = _entry(*paging.decode(cursor, _DEAD, str)) if cursor else ""
    ids: list[str] = []
    try:
        while True:
            some, more = letters.dead_ids(
                client(), relay=relay, why=why, before=more, limit=limit - len(ids)
            )
            ids += some
            if not more or len(ids) >= limit:
                break
        found, left_out = letters.read_dead(client(), ids)
    except RedisError as error:
        raise _away(error) from error
    if left_out:
        more = found[-1].entry
    return Page(found, paging.encode(_DEAD, more) if more else "")


def count_dead(relay: str) -> int:
    """Return the number of dead letters for a relay.

    Raises:
        Away: Redis does not answer.
    """
    try:
        return len(letters.all_dead_ids(client(), relay))
    except RedisError as error:
        raise _away(error) from error


def get_waiting(shard: int, entry: str) -> Letter:
    """Return one message of the outbox.

    Raises:
        NotFound: it was delivered or given up, or never existed.
        Away: Redis does not answer.
    """
    if not headers.is_entry(entry) or shard >= keys.OUTBOX_SHARDS:
        raise NotFound("message not found in the outbox")
    try:
        found = letters.pending_one(client(), shard, entry)
    except RedisError as error:
        raise _away(error) from error
    if found is None:
        raise NotFound("the message does not wait any more: it was delivered, or failed")
    return found


def get_dead(entry: str) -> Letter:
    """Return one dead letter.

    Raises:
        NotFound: it does not exist any more.
        Away: Redis does not answer.
    """
    try:
        found = letters.dead_one(client(), entry) if headers.is_entry(entry) else None
    except RedisError as error:
        raise _away(error) from error
    if found is None:
        raise NotFound(NO_LETTER)
    return found


def _entry(entry: str) -> str:
    if not headers.is_entry(entry):
        raise Invalid(fields={"cursor": "is not a cursor of this list"})
    return entry


def _away(error: RedisError) -> Away:
    return Away(f"Redis does not answer: {error}")
