"""Limits and bans over REST: of twins, addresses, networks and SBD keys."""

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
    "Bound on messages that wait for the twin, and on messages from it that wait "
    "for others; null: the relay's bound."
)
_WAITING_BYTES: Final = (
    "Bound on the same messages, in bytes of Redis' memory; null: the relay's bound."
)
_WAY_OUT: Final = '"unknown": true'
_UNKNOWN: Final = "Accept a twin that this relay does not know. Check its id for typing errors."
MAX_TEXT_CHARS: Final = 64
"""Maximum length of an address or network, in any spelling."""
_WAITING_QUEUES: Final = (
    "Bound on queues of the twin that hold messages, and on queues that hold "
    "messages from it; null: the relay's bound."
)


class LimitOut(Schema):
    """Limits, ban and note of a twin."""

    twin: int
    count: int | None = Field(description="Messages a minute; null: the relay's limit.")
    size: int | None = Field(description="Bytes a minute; also the highest size of one message.")
    waiting_messages: int | None = Field(description=_WAITING_MESSAGES)
    waiting_bytes: int | None = Field(description=_WAITING_BYTES)
    waiting_queues: int | None = Field(description=_WAITING_QUEUES)
    banned: bool
    ban_reason: str
    banned_until: datetime | None = Field(description="Time at which the ban ends; null: never.")
    note: str
    updated: datetime


class LimitIn(Body):
    """Limits of a twin. `count` and `size`: both 0 no limit, both null the limit of all twins."""

    count: Count | None = None
    size: Count | None = None
    waiting_messages: Bound | None = Field(None, description=_WAITING_MESSAGES)
    waiting_bytes: Bound | None = Field(None, description=_WAITING_BYTES)
    waiting_queues: Bound | None = Field(None, description=_WAITING_QUEUES)
    note: str = Field("", max_length=MAX_NOTE_CHARS)
    unknown: Flag = Field(False, description=_UNKNOWN)


class AnyBanIn(Body):
    """Reason and end of a ban."""

    reason: str = Field("", max_length=MAX_REASON_CHARS)
    until: Stamp | None = Field(None, description="Time at which the ban ends; null: never.")


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
        False,
        description="Accept a network that contains loopback addresses or the caller's address.",
    )


class AddressBanOut(Schema):
    """A banned address or network."""

    network: str
    reason: str
    until: datetime | None = Field(description="Time at which the ban ends; null: never.")
    updated: datetime


class AddressBanQuery(PageQuery):
    """Filters of the list."""

    text: str = Field(
        "",
        max_length=MAX_REASON_CHARS,
        description="Part of the network or reason, or an address in the network, to search for.",
    )
    order: Literal["network", "-network", "updated", "-updated"] = "network"


class KeyIn(Body):
    """An SBD key."""

    key: str = Field(
        min_length=1,
        max_length=MAX_TEXT_CHARS,
        description="Key in the path that its client connects to: 43 characters of base64url.",
    )


class KeyBanIn(KeyIn, AnyBanIn):
    """A ban of an SBD key."""


class SbdLimitIn(Body):
    """SBD limit of a key, or of each address of a network."""

    subject: str = Field(
        min_length=1, max_length=MAX_TEXT_CHARS, description="A key, an address or a network."
    )
    kbit_per_s: Count | None = Field(
        description="Kilobits a second; 0: no limit; null: the limit of the settings."
    )


class SbdLimitOut(Schema):
    """Limit and ban of an SBD key, or SBD limit of a network."""

    subject: str = Field(description="A key, an address or a network.")
    is_key: bool
    kbit_per_s: int | None = Field(
        description="Kilobits a second; 0: no limit; null: the limit of the settings."
    )
    banned: bool
    ban_reason: str
    banned_until: datetime | None = Field(description="Time at which the ban ends; null: never.")
    updated: datetime


class SbdLimitQuery(PageQuery):
    """Filters of the list."""

    text: str = Field(
        "",
        max_length=MAX_REASON_CHARS,
        description="Part of the key, network or reason to search for.",
    )
    banned: Literal["true", "false"] | None = None
    order: Literal["subject", "-subject", "updated", "-updated"] = "subject"


class CountsOut(Schema):
    """Messages and queues that wait, or their bounds."""

    messages: int
    size_bytes: int = Field(description="Bytes of Redis' memory.")
    queues: int = Field(description="Number of queues with messages.")
    unknown_queues: int = Field(
        description="Queues of session ids that never connected; part of `queues`."
    )


class WaitingOut(Schema):
    """Messages that wait for a twin, and messages from it that wait for others."""

    received: CountsOut = Field(
        description="Messages that wait for the twin, in the queues of all its sessions."
    )
    sent: CountsOut = Field(description="Messages from the twin that wait in all queues.")
    bounds: CountsOut = Field(
        description="Bounds on each of the two; the relay refuses messages beyond them."
    )
    filled_percent: float = Field(description="Percent used of the bound that is nearest to full.")


class DefaultOut(Schema):
    """Limit of twins without a limit of their own; both 0: no limit."""

    count: int = Field(description="Messages a minute.")
    size: int = Field(description="Bytes a minute; also the highest size of one message.")
    source: Literal["operator", "settings"]
    updated: datetime | None


class DefaultIn(Body):
    """Limit of all twins; both 0: no limit."""

    count: Count
    size: Count


class HitsQuery(PageQuery):
    """Period and order of the list."""

    minutes: int = Field(
        hits.MINUTES,
        ge=1,
        le=hits.MINUTES,
        description="Number of minutes to count, including the present one.",
    )
    order: Literal["messages", "-messages", "twin", "-twin"] = "-messages"


class AddressHitsQuery(HitsQuery):
    """Period and order of the list."""

    order: Literal["refused", "-refused", "address", "-address"] = "-refused"  # type: ignore[assignment]


class TwinHitsOut(Schema):
    """A twin whose messages were refused."""

    twin: int
    messages: int
    banned: bool
    limited: bool = Field(description="Whether the twin has a limit of its own.")


class AddressHitsOut(Schema):
    """An address whose messages or handshakes were refused."""

    address: str
    messages: int
    handshakes: int
    banned: bool = Field(
        description="Whether the address, or a network that contains it, is banned."
    )


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
    """List twins that have a limit of their own, a ban or a note."""
    rows = TwinLimit.objects.all()
    if query.banned is not None:
        rows = rows.filter(banned=query.banned == "true")
    return page(query, rows, ORDERS)


# Before the paths in which these words would match as an id.
@get(router, "/limits/default", action="limit.view", answer=DefaultOut, tagged=True)
def get_default_limit(request: Request) -> Any:
    """Get the limit of twins without a limit of their own."""
    return _default()


@put(router, "/limits/default", action="limit.default", answer=DefaultOut, tagged=True)
def put_default_limit(request: Request, body: DefaultIn) -> Any:
    """Set the limit of twins without a limit of their own; it applies within a second."""
    with audit.exclusive():
        etag.check_match(request, _default())
        defaults.put(body.count, body.size, actor=request.actor)
        return _default()


@delete(router, "/limits/default", action="limit.default", answer=DefaultOut, tagged=True)
def clear_default_limit(request: Request) -> Any:
    """Reset that limit to the one in the settings."""
    with audit.exclusive():
        etag.check_match(request, _default())
        defaults.clear(actor=request.actor)
        return _default()


@get(router, "/limits/hits", action="limit.hits", answer=Page[TwinHitsOut])
def list_limit_hits(request: Request, query: Query[HitsQuery]) -> Any:
    """List twins whose messages the relay refused, the most refused first.

    Counts change between pages: a twin whose count grows meanwhile can be missing on later pages.
    """
    orders = {"messages": itemgetter(1), "twin": itemgetter(0)}
    refused = hits.twins(query.minutes).items()
    return page_list(query, refused, orders, _padded, show=_twin_hits)


@get(router, "/limits/hits/addresses", action="limit.hits", answer=Page[AddressHitsOut])
def list_address_hits(request: Request, query: Query[AddressHitsQuery]) -> Any:
    """List addresses whose messages or handshakes were refused, the most refused first."""
    return page_list(
        query,
        hits.addresses(query.minutes),
        {"refused": lambda each: each.refused, "address": lambda each: each.address},
        lambda each: each.address,
        show=lambda found: map(asdict, hits.with_bans(found)),
    )


@get(router, "/limits/addresses", action="limit.view", answer=Page[AddressBanOut])
def list_address_bans(request: Request, query: Query[AddressBanQuery]) -> Any:
    """List banned addresses and networks."""
    return page(query, addresses.search(query.text), addresses.ORDERS)


@post(router, "/limits/addresses/ban", action="ban.set", answer=AddressBanOut)
def ban_address(request: Request, body: AddressBanIn) -> Any:
    """Ban an address or a network.

    Within a second the relay closes the sessions from there (code 4007) and answers all requests to
    its public listener with 403. The operator site still accepts requests from there.
    """
    return _ban_out(
        addresses.ban(body.network, body.reason, body.until, actor=request.actor, force=body.force)
    )


@post(router, "/limits/addresses/lift-ban", action="ban.lift", answer=NetworkIn)
def lift_address_ban(request: Request, body: NetworkIn) -> Any:
    """Lift the ban of an address or network."""
    return NetworkIn(network=addresses.lift(body.network, actor=request.actor))


@get(router, "/limits/sbd", action="limit.view", answer=Page[SbdLimitOut])
def list_sbd_limits(request: Request, query: Query[SbdLimitQuery]) -> Any:
    """List SBD keys with a ban or limit, and networks with a limit for SBD."""
    banned = None if query.banned is None else query.banned == "true"
    return page(query, sbd.search(query.text, banned=banned), sbd.ORDERS)


@post(router, "/limits/sbd/limit", action="limit.set", answer=SbdLimitOut)
def limit_sbd(request: Request, body: SbdLimitIn) -> Any:
    """Set the limit of an SBD key, or of each address of a network.

    It applies within a second, also to open connections. Packets of a key with a limit do not count
    towards the limit of its address.
    """
    return _sbd_out(sbd.set_limit(body.subject, body.kbit_per_s, actor=request.actor))


@post(router, "/limits/sbd/ban", action="ban.set", answer=SbdLimitOut)
def ban_sbd_key(request: Request, body: KeyBanIn) -> Any:
    """Ban an SBD key.

    Within a second the relay closes its connection and answers its handshakes with 403.
    """
    return _sbd_out(sbd.ban(body.key, body.reason, body.until, actor=request.actor))


@post(router, "/limits/sbd/lift-ban", action="ban.lift", answer=KeyIn)
def lift_sbd_key_ban(request: Request, body: KeyIn) -> Any:
    """Lift the ban of an SBD key."""
    return KeyIn(key=sbd.lift_ban(body.key, actor=request.actor))


@get(router, "/limits/{twin}/hits", action="limit.hits", answer=list[MinuteOut])
def list_twin_hits(request: Request, twin: TwinId) -> Any:
    """List the refused messages of a twin by minute, the latest first."""
    return [
        MinuteOut(minute=moment(minute), messages=count) for minute, count in hits.of_twin(twin)
    ]


@get(router, "/limits/{twin}/waiting", action="limit.view", answer=WaitingOut)
def get_waiting(request: Request, twin: TwinId) -> Any:
    """Get how much waits for a twin and from it, with the bounds."""
    return asdict(waiting.of_twin(twin))


@get(router, "/limits/{twin}", action="limit.view", answer=LimitOut, tagged=True)
def get_limit(request: Request, twin: TwinId) -> Any:
    """Get the limits, ban and note of a twin."""
    return _out(_row(twin))


@put(router, "/limits/{twin}", action="limit.set", answer=LimitOut, tagged=True)
def put_limit(request: Request, twin: TwinId, body: LimitIn) -> Any:
    """Set the limits and note of a twin.

    They apply within a second. A ban of the twin is not changed.
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
    """Delete the limits, ban and note of a twin.

    The limit of all twins applies to it again.
    """
    with audit.exclusive():
        etag.check_match(request, _out(_row(twin)))
        services.remove([twin], actor=request.actor)


@post(router, "/limits/{twin}/ban", action="ban.set", answer=LimitOut)
def ban_twin(request: Request, twin: TwinId, body: BanIn) -> Any:
    """Ban a twin.

    Within a second the relay closes its sessions and refuses its new sessions and messages.
    """
    if not body.unknown:
        twins.require_known(twin, _WAY_OUT)
    services.ban(twin, body.reason, body.until, actor=request.actor)
    return _out(_row(twin))


@post(router, "/limits/{twin}/lift-ban", action="ban.lift", answer=LimitOut)
def lift_ban(request: Request, twin: TwinId) -> Any:
    """Lift the ban of a twin."""
    _row(twin)
    services.lift_ban(twin, actor=request.actor)
    return _out(_row(twin))


def _padded(each: tuple[int, int]) -> str:
    """Return a twin as a text that sorts like its number."""
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
