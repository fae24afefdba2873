"""Messages for partner relays over REST: the outbox, dead letters, and their failed attempts."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

from ninja import Field, Query, Router, Schema

from relay.access.errors import NotFound
from relay.federation import letters, live, services
from relay.federation.api import Domain
from relay.federation.letters import Letter
from relay.ops.redis_client import client
from relay.queues import headers, keys
from relay.rest.caller import Request
from relay.rest.operation import delete, get, post
from relay.rest.paging import bad_cursor, decode, encode
from relay.rest.schema import Page, PageQuery, moment

router = Router(tags=["outbox"])

ENTRY: Final = r"^[0-9]{1,15}-[0-9]{1,15}$"
"""Id of an entry of a stream."""

Entry = Annotated[str, Field(pattern=ENTRY, description="Id of the message in its stream.")]
Shard = Annotated[int, Field(ge=0, lt=keys.OUTBOX_SHARDS, description="Shard of the outbox.")]


class TryOut(Schema):
    """One try that failed."""

    at: datetime | None
    relay: str
    answer: str
    ms: float


class LetterOut(Schema):
    """Headers of a message, without its payload."""

    entry: str
    shard: int
    at: datetime | None = Field(description="Time at which it was stored, or became a dead letter.")
    relays: str = Field(description="The relays it is for, joined by `_`.")
    why: str = Field(description="Reason why it is a dead letter; empty while it waits.")
    source: str
    destination: str
    kind: str
    command: str
    uid: str
    tags: str
    deadline: datetime | None = Field(description="Time at which it expires, as its sender set it.")
    size_bytes: int
    tries: list[TryOut]

    @staticmethod
    def of(letter: Letter) -> LetterOut:
        return LetterOut(
            entry=letter.entry,
            shard=letter.shard,
            at=moment(letter.at),
            relays=letter.account,
            why=letter.why,
            source=letter.source,
            destination=letter.destination,
            kind=letter.kind,
            command=letter.command,
            uid=letter.uid,
            tags=letter.tags,
            deadline=moment(letter.deadline),
            size_bytes=letter.size_bytes,
            tries=[
                TryOut(at=moment(each.at), relay=each.relay, answer=each.answer, ms=each.ms)
                for each in letter.tries
            ],
        )


class LetterQuery(PageQuery):
    """Pages of messages; a page may hold fewer than its limit where payloads are large."""

    limit: int = Field(
        50, ge=1, le=letters.MAX_SHOWN, description="Highest number of items on the page."
    )


class ShardOut(Schema):
    """One shard of the outbox."""

    shard: int
    messages: int
    oldest: datetime | None


class ShardsOut(Schema):
    """The outbox as a whole."""

    shards: list[ShardOut]
    dead_letters: int


class Requeued(Schema):
    """Place of a requeued dead letter."""

    entry: str = Field(description="New id in the outbox.")


class RequeuedAll(Schema):
    """Number of dead letters that are in the outbox again."""

    count: int


@get(router, "/outbox", action="letter.view", answer=ShardsOut)
def get_outbox(request: Request) -> Any:
    """Get the number of messages that wait in the outbox."""
    with client().pipeline(transaction=False) as pipe:
        live.queue_heads(pipe, 1)
        pipe.xlen(keys.DEAD_LETTERS)
        heads, dead = pipe.execute()
    shards = [
        ShardOut(shard=number, messages=head.length, oldest=moment(head.oldest_at))
        for number, head in enumerate(live.read_heads(heads))
    ]
    return ShardsOut(shards=shards, dead_letters=dead)


@get(router, "/outbox/messages", action="letter.view", answer=Page[LetterOut])
def list_outbox(request: Request, query: Query[LetterQuery]) -> Any:
    """List messages that wait for partner relays, the oldest first."""
    after = None
    if query.cursor is not None:
        entry, shard = decode(query.cursor, None, 2)
        after = (_entry(entry), _shard(shard))
    found = letters.pending(client(), after, query.limit)
    last = (found[-1].entry, found[-1].shard) if found else None
    return _page(found, last, bool(found) and bool(letters.pending(client(), last, 1)))


@get(router, "/outbox/messages/{shard}/{entry}", action="letter.view", answer=LetterOut)
def get_outbox_message(request: Request, shard: Shard, entry: Entry) -> Any:
    """Get a waiting message with its failed tries."""
    found = letters.pending_one(client(), shard, entry)
    if found is None:
        raise NotFound("this message does not wait, or no more")
    return LetterOut.of(found)


@get(router, "/dead-letters", action="letter.view", answer=Page[LetterOut])
def list_dead_letters(request: Request, query: Query[LetterQuery]) -> Any:
    """List dead letters of the last day, the latest first."""
    before = ""
    if query.cursor is not None:
        before = _entry(decode(query.cursor, None, 1)[0])
    found = letters.dead(client(), before, query.limit)
    last = (found[-1].entry,) if found else None
    return _page(found, last, bool(last) and bool(letters.dead(client(), found[-1].entry, 1)))


@get(router, "/dead-letters/{entry}", action="letter.view", answer=LetterOut)
def get_dead_letter(request: Request, entry: Entry) -> Any:
    """Get a dead letter with its failed tries."""
    found = letters.dead_one(client(), entry)
    if found is None:
        raise NotFound(services.NO_LETTER)
    return LetterOut.of(found)


@post(router, "/dead-letters/{entry}/requeue", action="letter.requeue", answer=Requeued)
def requeue_dead_letter(request: Request, entry: Entry) -> Any:
    """Send a dead letter again, as the newest message of its shard."""
    return Requeued(entry=services.requeue(entry, actor=request.actor))


@post(router, "/relays/{domain}/requeue", action="letter.requeue", answer=RequeuedAll)
def requeue_dead_letters(request: Request, domain: Domain) -> Any:
    """Send the dead letters of a relay again, the oldest first.

    One request sends at most 1000 of them; repeat it for more.
    """
    return RequeuedAll(count=services.requeue_all(domain, actor=request.actor))


@delete(router, "/dead-letters/{entry}", action="letter.delete", answer=None, status=204)
def delete_dead_letter(request: Request, entry: Entry) -> Any:
    """Delete a dead letter."""
    services.delete_letter(entry, actor=request.actor)


def _page(found: list[Letter], last: tuple[Any, ...] | None, more: bool) -> dict[str, Any]:
    following = encode(None, last) if more and last else None
    return {"items": [LetterOut.of(each) for each in found], "next": following}


def _entry(value: Any) -> str:
    if not isinstance(value, str) or not headers.is_entry(value):
        raise bad_cursor()
    return value


def _shard(value: Any) -> int:
    if type(value) is not int or not 0 <= value < keys.OUTBOX_SHARDS:
        raise bad_cursor()
    return value
