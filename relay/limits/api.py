"""Limits and bans of twins over REST."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from operator import itemgetter
from typing import Annotated, Any, Final, Literal

from ninja import Field, Query, Router, Schema

from proto.identity.bounds import MAX_TWIN
from relay.access.errors import NotFound
from relay.audit import services as audit
from relay.limits import addresses, defaults, hits, sbd, services, waiting
from relay.limits.models import MAX_NOTE_CHARS, MAX_REASON_CHARS, AddressBan, SbdLimit, TwinLimit
from relay.rest import etag
from relay.rest.caller import Request
from relay.rest.operation import delete, get, post, put
from relay.rest.paging import page, page_list
from relay.rest.schema import Body, Count, Flag, Page, PageQuery, Stamp, TwinId, moment
from relay.twins import listing as twins

router = Router(tags=["limits"])

ORDERS: Final = {"twin": "pk", "updated": "updated"}


Bound = Annotated[int, Field(ge=1, le=defaults.MAX_VALUE)]

_WAITING_MESSAGES: Final = (
    "Messages that may wait for all its sessions, and as many of it in all queues; null: the "
    "relay's bound."
)
_WAITING_BYTES: Final = "The same in bytes of Redis' memory."
_WAY_OUT: Final = '"unknown": true'
_UNKNOWN: Final = "Accept a twin that this relay does not know. Its id may be misspelt."
MAX_TEXT_CHARS: Final = 64
"""Of an address or network, in whichever spelling."""
_WAITING_QUEUES: Final = (
    "Queues of its sessions that may have messages, and as many with messages of it; null: the "
    "relay's bound."
)


class LimitOut(Schema):
    """What is decided about one twin."""

    twin: int
    count: int | None = Field(description="Messages a minute; null: the relay's limit.")
    size: int | None = Field(description="Bytes a minute, and of one message.")
    waiting_messages: int | None = Field(description=_WAITING_MESSAGES)
    waiting_bytes: int | None = Field(description=_WAITING_BYTES)
    waiting_queues: int | None = Field(description=_WAITING_QUEUES)
    banned: bool
    ban_reason: str
    banned_until: datetime | None = Field(description="The ban is lifted then; null: never.")
    note: str
    updated: datetime


class LimitIn(Body):
    """Limits of one twin: both 0 for no limit, both null for the limit of all twins."""

    count: Count | None = None
    size: Count | None = None
    waiting_messages: Bound | None = Field(None, description=_WAITING_MESSAGES)
    waiting_bytes: Bound | None = Field(None, description=_WAITING_BYTES)
    waiting_queues: Bound | None = Field(None, description=_WAITING_QUEUES)
    note: str = Field("", max_length=MAX_NOTE_CHARS)
    unknown: Flag = Field(False, description=_UNKNOWN)


class AnyBanIn(Body):
    """Why, and for how long."""

    reason: str = Field("", max_length=MAX_REASON_CHARS)
    until: Stamp | None = Field(None, description="When it is lifted; null: never.")


class BanIn(AnyBanIn):
    """A ban."""

    unknown: Flag = Field(False, description=_UNKNOWN)


class NetworkIn(Body):
    """An address or a network."""

    network: str = Field(
        min_length=1,
        max_length=MAX_TEXT_CHARS,
        description="An address, or a network in CIDR notation such as 192.0.2.0/24.",
    )


class AddressBanIn(NetworkIn, AnyBanIn):
    """A ban of an address or a network."""

    force: Flag = Field(
        False, description="Ban it also where it holds loopback addresses or the caller's own."
    )


class AddressBanOut(Schema):
    """A banned address or network."""

    network: str
    reason: str
    until: datetime | None = Field(description="The ban is lifted then; null: never.")
    updated: datetime


class AddressBanQuery(PageQuery):
    """Filters of the list."""

    text: str = Field(
        "",
        max_length=MAX_REASON_CHARS,
        description="A part of the network or of the reason, or an address within the network.",
    )
    order: Literal["network", "-network", "updated", "-updated"] = "network"


class KeyIn(Body):
    """A key of SBD."""

    key: str = Field(
        min_length=1,
        max_length=MAX_TEXT_CHARS,
        description="As in the path its client connects to: 43 characters of base64url.",
    )


class KeyBanIn(KeyIn, AnyBanIn):
    """A ban of a key of SBD."""


class SbdLimitIn(Body):
    """What a key, or each address of a network, may send in SBD."""

    subject: str = Field(
        min_length=1, max_length=MAX_TEXT_CHARS, description="A key, an address or a network."
    )
    kbit_per_s: Count | None = Field(
        description="Kilobits a second; 0: no limit; null: the limit of the settings."
    )


class SbdLimitOut(Schema):
    """What is decided about a key of SBD, or about a network in SBD."""

    subject: str = Field(description="A key, an address or a network.")
    is_key: bool
    kbit_per_s: int | None = Field(
        description="Kilobits a second; 0: no limit; null: the limit of the settings."
    )
    banned: bool
    ban_reason: str
    banned_until: datetime | None = Field(description="The ban is lifted then; null: never.")
    updated: datetime


class SbdLimitQuery(PageQuery):
    """Filters of the list."""

    text: str = Field(
        "",
        max_length=MAX_REASON_CHARS,
        description="A part of the key, of the network or of the reason.",
    )
    banned: Literal["true", "false"] | None = None
    order: Literal["subject", "-subject", "updated", "-updated"] = "subject"


class CountsOut(Schema):
    """What waits in queues, or what may."""

    messages: int
    size_bytes: int = Field(description="Of Redis' memory.")
    queues: int = Field(description="Queues with messages.")
    unknown_queues: int = Field(description="Of these, of session ids that never signed in.")


class WaitingOut(Schema):
    """What waits for a twin and what of it waits elsewhere."""

    received: CountsOut = Field(description="For all its sessions that do not read.")
    sent: CountsOut = Field(description="Of it, in all queues.")
    bounds: CountsOut = Field(description="Of either; what is above is refused.")
    filled_percent: float = Field(description="Of the bound that is filled most.")


class DefaultOut(Schema):
    """The limit of every twin without one of its own; both 0 for no limit."""

    count: int = Field(description="Messages a minute.")
    size: int = Field(description="Bytes a minute, and of one message.")
    source: Literal["operator", "settings"]
    updated: datetime | None


class DefaultIn(Body):
    """0 and 0: no limit."""

    count: Count
    size: Count


class HitsQuery(PageQuery):
    """How far back, and in which order."""

    minutes: int = Field(
        hits.MINUTES, ge=1, le=hits.MINUTES, description="To look back, the present one included."
    )
    order: Literal["messages", "-messages", "twin", "-twin"] = "-messages"


class AddressHitsQuery(HitsQuery):
    """As of twins."""

    order: Literal["refused", "-refused", "address", "-address"] = "-refused"  # type: ignore[assignment]


class TwinHitsOut(Schema):
    """A twin that was refused messages."""

    twin: int
    messages: int
    banned: bool
    limited: bool = Field(description="It has a limit of its own.")


class AddressHitsOut(Schema):
    """An address that was refused something."""

    address: str
    messages: int
    handshakes: int
    banned: bool = Field(description="The address is banned, alone or as a part of a network.")


class MinuteOut(Schema):
    """One minute."""

    minute: datetime | None
    messages: int


class LimitQuery(PageQuery):
    """Filters of the list."""

    banned: Literal["true", "false"] | None = None
    order: Literal["twin", "-twin", "updated", "-updated"] = "twin"


@get(router, "/limits", action="limit.view", answer=Page[LimitOut])
def list_limits(request: Request, query: Query[LimitQuery]) -> Any:
    """Twins with limits of their own, a ban or a note."""
    rows = TwinLimit.objects.all()
    if query.banned is not None:
        rows = rows.filter(banned=query.banned == "true")
    return page(query, rows, ORDERS)


# Before the addresses that these words would be an id in.
@get(router, "/limits/default", action="limit.view", answer=DefaultOut, tagged=True)
def get_default_limit(request: Request) -> Any:
    """The limit of every twin that has none of its own."""
    return _default()


@put(router, "/limits/default", action="limit.default", answer=DefaultOut, tagged=True)
def put_default_limit(request: Request, body: DefaultIn) -> Any:
    """Set the limit of every twin that has none of its own, within a second."""
    with audit.exclusive():
        etag.check_match(request, _default())
        defaults.put(body.count, body.size, actor=request.actor)
        return _default()


@delete(router, "/limits/default", action="limit.default", answer=DefaultOut, tagged=True)
def clear_default_limit(request: Request) -> Any:
    """Go back to the limit that the settings say."""
    with audit.exclusive():
        etag.check_match(request, _default())
        defaults.clear(actor=request.actor)
        return _default()


@get(router, "/limits/hits", action="limit.hits", answer=Page[TwinHitsOut])
def list_limit_hits(request: Request, query: Query[HitsQuery]) -> Any:
    """Twins that were refused messages, over the last hour; the worst first.

    Counts grow while you read: a twin that moves up meanwhile is missing on later pages.
    """
    orders = {"messages": itemgetter(1), "twin": itemgetter(0)}
    refused = hits.twins(query.minutes).items()
    return page_list(query, refused, orders, _padded, show=_twin_hits)


@get(router, "/limits/hits/addresses", action="limit.hits", answer=Page[AddressHitsOut])
def list_address_hits(request: Request, query: Query[AddressHitsQuery]) -> Any:
    """Addresses that were refused messages or handshakes, over the last hour; the worst first."""
    return page_list(
        query,
        hits.addresses(query.minutes),
        {"refused": lambda each: each.refused, "address": lambda each: each.address},
        lambda each: each.address,
        show=lambda found: map(asdict, hits.with_bans(found)),
    )


@get(router, "/limits/addresses", action="limit.view", answer=Page[AddressBanOut])
def list_address_bans(request: Request, query: Query[AddressBanQuery]) -> Any:
    """Banned addresses and networks."""
    return page(query, addresses.search(query.text), addresses.ORDERS)


@post(router, "/limits/addresses/ban", action="ban.set", answer=AddressBanOut)
def ban_address(request: Request, body: AddressBanIn) -> Any:
    """Ban an address or a network.

    Within a second the relay ends the sessions from there (code 4007), and answers every request
    to its public listener with 403. The operator site stays within reach.
    """
    return _ban_out(
        addresses.ban(body.network, body.reason, body.until, actor=request.actor, force=body.force)
    )


@post(router, "/limits/addresses/lift-ban", action="ban.lift", answer=NetworkIn)
def lift_address_ban(request: Request, body: NetworkIn) -> Any:
    """Serve a banned address or network again."""
    return NetworkIn(network=addresses.lift(body.network, actor=request.actor))


@get(router, "/limits/sbd", action="limit.view", answer=Page[SbdLimitOut])
def list_sbd_limits(request: Request, query: Query[SbdLimitQuery]) -> Any:
    """Keys of SBD with a ban or a limit of their own, and networks with a limit in SBD."""
    banned = None if query.banned is None else query.banned == "true"
    return page(query, sbd.search(query.text, banned=banned), sbd.ORDERS)


@post(router, "/limits/sbd/limit", action="limit.set", answer=SbdLimitOut)
def limit_sbd(request: Request, body: SbdLimitIn) -> Any:
    """Give a key of SBD, or each address of a network, a limit of its own.

    It holds within a second, for open connections as well. What a key with a limit sends does not
    count for its address.
    """
    return _sbd_out(sbd.set_limit(body.subject, body.kbit_per_s, actor=request.actor))


@post(router, "/limits/sbd/ban", action="ban.set", answer=SbdLimitOut)
def ban_sbd_key(request: Request, body: KeyBanIn) -> Any:
    """Ban a key of SBD.

    Within a second the relay drops its connection, and answers its handshakes with 403.
    """
    return _sbd_out(sbd.ban(body.key, body.reason, body.until, actor=request.actor))


@post(router, "/limits/sbd/lift-ban", action="ban.lift", answer=KeyIn)
def lift_sbd_key_ban(request: Request, body: KeyIn) -> Any:
    """Let a banned key of SBD connect again."""
    return KeyIn(key=sbd.lift_ban(body.key, actor=request.actor))


@get(router, "/limits/{twin}/hits", action="limit.hits", answer=list[MinuteOut])
def list_twin_hits(request: Request, twin: TwinId) -> Any:
    """Messages of one twin that were refused, by minute, the latest first."""
    return [
        MinuteOut(minute=moment(minute), messages=count) for minute, count in hits.of_twin(twin)
    ]


@get(router, "/limits/{twin}/waiting", action="limit.view", answer=WaitingOut)
def get_waiting(request: Request, twin: TwinId) -> Any:
    """What waits for a twin, and of it in all queues, with its bounds."""
    return asdict(waiting.of_twin(twin))


@get(router, "/limits/{twin}", action="limit.view", answer=LimitOut, tagged=True)
def get_limit(request: Request, twin: TwinId) -> Any:
    """What is decided about a twin."""
    return _out(_row(twin))


@put(router, "/limits/{twin}", action="limit.set", answer=LimitOut, tagged=True)
def put_limit(request: Request, twin: TwinId, body: LimitIn) -> Any:
    """Give a twin limits of its own.

    They hold within a second. A ban stays as it is.
    """
    with audit.exclusive():
        limit = TwinLimit.objects.filter(twin=twin).first()
        if limit is None:
            etag.check_absent(request)
            if not body.unknown:
                twins.require_known(twin, _WAY_OUT)
            limit = TwinLimit(twin=twin)
        else:
            etag.check_match(request, _out(limit))
        for name, value in body.dict(exclude={"unknown"}).items():
            setattr(limit, name, value)
        services.save(limit, actor=request.actor)
    return _out(limit)


@delete(router, "/limits/{twin}", action="limit.remove", answer=None, status=204, tagged=True)
def delete_limit(request: Request, twin: TwinId) -> Any:
    """Forget what was decided about a twin.

    The relay's limit holds for it, and a ban is lifted.
    """
    with audit.exclusive():
        etag.check_match(request, _out(_row(twin)))
        services.remove([twin], actor=request.actor)


@post(router, "/limits/{twin}/ban", action="ban.set", answer=LimitOut)
def ban_twin(request: Request, twin: TwinId, body: BanIn) -> Any:
    """Ban a twin.

    Within a second the relay closes its sessions, and refuses new ones and its messages.
    """
    if not body.unknown:
        twins.require_known(twin, _WAY_OUT)
    services.ban(twin, body.reason, body.until, actor=request.actor)
    return _out(_row(twin))


@post(router, "/limits/{twin}/lift-ban", action="ban.lift", answer=LimitOut)
def lift_ban(request: Request, twin: TwinId) -> Any:
    """Let a banned twin in again."""
    _row(twin)
    services.lift_ban(twin, actor=request.actor)
    return _out(_row(twin))


def _padded(each: tuple[int, int]) -> str:
    """A twin as a text that is ordered as its number is."""
    return f"{each[0]:0{len(str(MAX_TWIN))}}"


def _twin_hits(found: list[tuple[int, int]]) -> Iterator[dict[str, Any]]:
    return map(asdict, hits.described(found))


def _row(twin: int) -> TwinLimit:
    found = TwinLimit.objects.filter(twin=twin).first()
    if found is None:
        raise NotFound(f"nothing is decided about twin {twin}")
    return found


def _ban_out(ban: AddressBan) -> AddressBanOut:
    return AddressBanOut.model_validate(ban, from_attributes=True)


def _sbd_out(row: SbdLimit) -> SbdLimitOut:
    return SbdLimitOut.model_validate(row, from_attributes=True)


def _default() -> DefaultOut:
    return DefaultOut.model_validate(defaults.get(), from_attributes=True)


def _out(limit: TwinLimit) -> LimitOut:
    return LimitOut.model_validate(limit, from_attributes=True)
