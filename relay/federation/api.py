"""Partner relays over REST: the decisions about them, their state, and messages for them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from django.conf import settings
from ninja import Field, Query, Router, Schema
from pydantic import AfterValidator

from proto.federation import domains
from relay.access.errors import NotFound
from relay.audit import services as audit
from relay.federation import live, services
from relay.federation.live import PartnerState
from relay.federation.models import MAX_NOTE_CHARS, RelayNode
from relay.ops.redis_client import client
from relay.rest import etag
from relay.rest.caller import Request
from relay.rest.operation import delete, get, patch, post, put
from relay.rest.paging import page
from relay.rest.schema import Body, Flag, Page, PageQuery, moment

router = Router(tags=["relays"])

ORDERS: Final = {"domain": "domain", "updated": "updated"}

Domain = Annotated[
    str,
    Field(
        max_length=domains.MAX_DOMAIN_BYTES,
        description="Domain of a relay; upper and lower case are the same.",
    ),
    AfterValidator(domains.fold),
]


class Held(Schema):
    """Messages that wait for twins whose only relay is this one."""

    messages: int
    size_bytes: int


class RelayLiveOut(Schema):
    """Present state of a partner relay, read from Redis."""

    kind: str = Field(
        description="Implementation, derived from its answers: `ours`, `reference` or `unknown`."
    )
    failures: int = Field(description="Failed tries within `federation.ranker_period_s`.")
    rate_per_hour: float = Field(
        description="Rank in failures an hour: the relay with the lowest rank is tried first."
    )
    in_a_row: int = Field(description="Failed tries since the last success.")
    retry_at: datetime | None = Field(
        description="End of the back-off: this relay sends nothing before it; null: no back-off."
    )
    last_success: datetime | None
    last_failure: datetime | None
    last_error: str
    heard: datetime | None = Field(
        description="Time at which this relay last accepted a message from it."
    )
    sent: int
    received: int
    latency_ms: float
    held: Held
    oldest: datetime | None = Field(
        description="Time at which the oldest waiting message was stored; null: none waits."
    )

    @staticmethod
    def of(state: PartnerState) -> RelayLiveOut:
        return RelayLiveOut(
            kind=state.kind,
            failures=state.failures,
            rate_per_hour=state.rate_per_hour,
            in_a_row=state.in_a_row,
            retry_at=moment(state.retry_at),
            last_success=moment(state.last_success),
            last_failure=moment(state.last_failure),
            last_error=state.last_error,
            heard=moment(state.heard),
            sent=state.sent,
            received=state.received,
            latency_ms=state.latency_ms,
            held=Held(messages=state.held.messages, size_bytes=state.held.size_bytes),
            oldest=moment(state.oldest_at),
        )


class RelayOut(Schema):
    """Stored decisions about a partner relay. The ETag covers these fields."""

    domain: str
    trusted: bool = Field(
        description="Messages from it are accepted without a check of the senders' signatures."
    )
    paused: bool = Field(description="Nothing is sent to it; its messages keep waiting.")
    blocked: bool = Field(description="Nothing is sent to it and nothing is accepted from it.")
    note: str
    updated: datetime


class RelayRow(RelayOut):
    """A partner relay in a list, with its present state."""

    live: RelayLiveOut


class RelayIn(Body):
    """All decisions about a partner relay; missing fields are false or empty."""

    trusted: Flag = False
    paused: Flag = False
    blocked: Flag = False
    note: str = Field("", max_length=MAX_NOTE_CHARS)


class RelayChange(Body):
    """Fields to change; missing fields keep their values."""

    trusted: Flag | None = None
    paused: Flag | None = None
    blocked: Flag | None = None
    note: str | None = Field(None, max_length=MAX_NOTE_CHARS)


class RelayQuery(PageQuery):
    """Filters of the list."""

    trusted: Literal["true", "false"] | None = None
    paused: Literal["true", "false"] | None = None
    blocked: Literal["true", "false"] | None = None
    order: Literal["domain", "-domain", "updated", "-updated"] = "domain"


@get(router, "/relays", action="relay.view", answer=Page[RelayRow])
def list_relays(request: Request, query: Query[RelayQuery]) -> Any:
    """List partner relays with their present state.

    They are the relays that this one has exchanged messages with, and those an operator added.
    """
    services.discover()
    rows = RelayNode.objects.all()
    for name in ("trusted", "paused", "blocked"):
        value = getattr(query, name)
        if value is not None:
            rows = rows.filter(**{name: value == "true"})

    def show(found: list[RelayNode]) -> list[RelayRow]:
        states = _states([node.domain for node in found])
        return [
            RelayRow(**_out(node).model_dump(), live=RelayLiveOut.of(states[node.domain]))
            for node in found
        ]

    return page(query, rows, ORDERS, show=show)


@get(router, "/relays/{domain}", action="relay.view", answer=RelayOut, tagged=True)
def get_relay(request: Request, domain: Domain) -> Any:
    """Get the decisions about a partner relay."""
    return _out(_node(domain))


@get(router, "/relays/{domain}/live", action="relay.view", answer=RelayLiveOut)
def get_relay_live(request: Request, domain: Domain) -> Any:
    """Get the present state of a partner relay."""
    _node(domain)
    return RelayLiveOut.of(_states([domain])[domain])


@put(router, "/relays/{domain}", action="relay.put", answer=RelayOut, tagged=True)
def put_relay(request: Request, domain: Domain, body: RelayIn) -> Any:
    """Set the decisions about a partner relay.

    A relay that is not known yet is added. Workers apply the decisions within a second.
    """
    return _save(request, domain, body.model_dump(), known=False)


@patch(router, "/relays/{domain}", action="relay.put", answer=RelayOut, tagged=True)
def patch_relay(request: Request, domain: Domain, body: RelayChange) -> Any:
    """Change some decisions about a partner relay."""
    values = {name: value for name, value in body.model_dump().items() if value is not None}
    return _save(request, domain, values, known=True)


@delete(router, "/relays/{domain}", action="relay.forget", answer=None, status=204, tagged=True)
def forget_relay(request: Request, domain: Domain) -> Any:
    """Delete a partner relay with its decisions, rank and back-off.

    It is listed again, without decisions, once this relay exchanges messages with it.
    """
    with audit.exclusive():
        etag.check_match(request, _out(_node(domain)))
        services.forget([domain], actor=request.actor)


def _declare(verb: str, decide: Callable[..., None], text: str) -> None:
    """Define an operation that makes one decision about a known relay."""

    def act(request: Request, domain: Domain) -> Any:
        _node(domain)
        decide(domain, actor=request.actor)
        return _out(_node(domain))

    act.__name__, act.__doc__ = f"{verb}_relay", text
    post(router, f"/relays/{{domain}}/{verb}", action=f"relay.{verb}", answer=RelayOut)(act)


for _verb, _decide, _text in (
    ("reset", services.reset, "End the back-off of a partner relay and delete its failures."),
    ("pause", services.pause, "Pause a partner relay: send nothing to it until it is resumed."),
    ("resume", services.resume, "Resume sending to a paused partner relay."),
    (
        "block",
        services.block,
        "Block a partner relay: send nothing to it and accept nothing from it.",
    ),
    ("unblock", services.unblock, "Unblock a partner relay."),
    (
        "trust",
        services.trust,
        "Trust a partner relay: accept its messages without checking their signatures.",
    ),
    (
        "distrust",
        services.distrust,
        "Stop trusting a partner relay: check the signatures of its messages.",
    ),
):
    _declare(_verb, _decide, _text)


def _save(request: Any, domain: str, values: dict[str, Any], *, known: bool) -> RelayOut:
    with audit.exclusive():
        node = RelayNode.objects.filter(domain=domain).first()
        if node is None and known:
            raise _unknown(domain)
        if node is None:
            node = RelayNode(domain=domain)
            etag.check_absent(request)
        else:
            etag.check_match(request, _out(node))
        for name, value in values.items():
            setattr(node, name, value)
        services.save(node, actor=request.actor)
    return _out(node)


def _node(domain: str) -> RelayNode:
    node = RelayNode.objects.filter(domain=domain).first()
    if node is None:
        raise _unknown(domain)
    return node


def _unknown(domain: str) -> NotFound:
    return NotFound(f"there is no partner relay {domain}")


def _out(node: RelayNode) -> RelayOut:
    return RelayOut.model_validate(node, from_attributes=True)


def _states(found: list[str]) -> dict[str, PartnerState]:
    return live.read_partners(client(), found, settings.RMB.federation.ranker_period_s)
