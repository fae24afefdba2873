"""Twins over REST: look-ups, which need no permission, and the registry, for operators."""

from __future__ import annotations

import io
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from django.http import HttpRequest, JsonResponse
from ninja import Field, Query, Router, Schema

from relay.access import matrix
from relay.access.errors import Invalid, NotFound
from relay.audit import services as audit
from relay.rest import etag
from relay.rest.bounds import MAX_IMPORT_BYTES
from relay.rest.caller import Caller, Request
from relay.rest.lines import CSV
from relay.rest.operation import delete, get, patch, post, put
from relay.rest.paging import listed, page
from relay.rest.problem import FieldProblem, Refusal
from relay.rest.schema import Body, Page, PageQuery, TwinId
from relay.sessions.rates import WINDOW_S
from relay.twins import listing, public, services
from relay.twins.bounds import MAX_RELAYS, MAX_RELAYS_BYTES
from relay.twins.csv_io import ImportRefusedError, import_twins
from relay.twins.fields import (
    FieldError,
    TwinValues,
    own_relay,
    parse_id,
    parse_pk,
    parse_relays,
    parse_signer,
)
from relay.twins.models import Twin
from relay.twins.source import RELAY_SEPARATOR, split_relays

router = Router(tags=["twins"])

MAX_FIELD_CHARS: Final = 200
"""Maximum length of an account or key as text."""

Account = Annotated[
    str,
    Field(max_length=MAX_FIELD_CHARS, description="ss58 address, or 0x and 64 hexadecimal digits."),
]
Key = Annotated[
    str,
    Field(max_length=MAX_FIELD_CHARS, description="0x and 66 hexadecimal digits; null: no key."),
]
RelayName = Annotated[str, Field(min_length=1, max_length=MAX_RELAYS_BYTES)]
Relays = Annotated[
    list[RelayName],
    Field(
        max_length=MAX_RELAYS,
        description="Relays that the twin connects to: host names, or host:port. A twin without "
        "relays receives no messages.",
    ),
]


class TwinPublic(Schema):
    """Public fields of a twin."""

    id: int
    account: str
    pk: str | None
    relays: list[str]


class TwinOut(TwinPublic):
    """A twin as operators see it."""

    source: str = Field(description="`registry`, or `chain` if the relay copied it from the chain.")
    updated: datetime
    version: int = Field(description="Number that grows with every change.")
    height: int | None = Field(
        description="Height of the block it was read at; null: not from the chain."
    )
    stale_since: int | None = Field(
        description="Height of the block after which a change may have been missed; null: up to "
        "date."
    )


class ListedTwinOut(TwinOut):
    """A twin in a list."""

    rate_in: float | None = Field(
        description=f"Messages a second from its sessions, over the last {WINDOW_S} s; null: "
        "Redis does not answer."
    )
    rate_out: float | None = Field(
        description="Messages a second to its sessions, over the same time."
    )


class TwinIn(Body):
    """All fields of a twin."""

    account: Account
    pk: Key | None = None
    relays: Relays | None = Field(None, description="null: the first domain of this relay.")


class TwinChange(Body):
    """Fields to change; missing fields keep their values. A `pk` of null removes the key."""

    account: Account | None = None
    pk: Key | None = None
    relays: Relays | None = None


class TwinQuery(PageQuery):
    """One twin by its account, or filters of the list."""

    account: str | None = Field(
        None,
        max_length=MAX_FIELD_CHARS,
        description="Look up the twin of this account; needs no permission.",
    )
    text: str = Field(
        "",
        max_length=listing.MAX_SEARCH_CHARS,
        description="Id, account, or part of a relay's name to search for.",
    )
    source: Literal["registry", "chain"] | None = None
    relay: str = Field(
        "",
        max_length=MAX_RELAYS_BYTES,
        pattern=f"^[^{RELAY_SEPARATOR}]*$",
        description="Only twins that list this relay.",
    )
    stale: Literal["true", "false"] | None = None
    order: Literal[
        "id", "updated", "rate_in", "rate_out", "-id", "-updated", "-rate_in", "-rate_out"
    ] = "id"


class ImportQuery(Schema):
    """Options of an import."""

    keep_going: Literal["true", "false"] = Field(
        "false", description="Import the valid lines even if others have errors."
    )


class LineOut(Schema):
    """A line with an error."""

    line: int
    text: str


class ImportOut(Schema):
    """Result of an import."""

    rows: int
    added: int
    changed: int
    error_count: int
    errors: list[LineOut]


def _look_up_account(request: HttpRequest, found: Caller | None) -> JsonResponse | None:
    if found is None or "account" in request.GET:
        return public.by_account(request)
    return None


def _look_up_id(request: HttpRequest, found: Caller | None, twin: str) -> JsonResponse | None:
    if found is None or not found.actor.may(matrix.permission_of("twin.view")):
        return public.by_id(request, twin)
    return None


@get(
    router,
    "/twins",
    action="twin.view",
    answer=Page[ListedTwinOut] | TwinPublic,
    open=_look_up_account,
)
def list_twins(request: Request, query: Query[TwinQuery]) -> Any:
    """List twins, or look up the twin of an account.

    With `account` the answer is the twin of that account; if several twins have it, the one with
    the lowest id. Requests without credentials must give `account`. All others get a list of
    twins. `order=-rate_in` sorts it by the messages that twins send now, the highest rate first.
    """
    rows = listing.search(
        query.text,
        relay=query.relay,
        source=query.source or "",
        stale=None if query.stale is None else query.stale == "true",
    )
    if query.order.removeprefix("-") in listing.RATES:
        found = listing.page(rows, order=query.order, limit=query.limit, cursor=query.cursor or "")
        return listed(found, _listed)
    return page(
        query, rows, listing.ORDERS, show=lambda found: map(_listed, listing.with_flows(found))
    )


# Before the paths in which `import` would match as an id.
@post(
    router,
    "/twins/import",
    action="twin.import",
    answer=ImportOut,
    body=CSV,
    max_bytes=MAX_IMPORT_BYTES,
)
def import_twin_file(request: Request, query: Query[ImportQuery]) -> Any:
    """Add and change twins from a CSV file.

    Its header is `id,account,pk,relays`. If a line has an error, nothing is imported, unless
    `keep_going` is true. Twins that the file does not list stay as they are. Relays that read
    twins from the chain answer 409.
    """
    try:
        text = request.body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Refusal(400, "the body is not UTF-8") from None
    try:
        return import_twins(
            io.StringIO(text, newline=""),
            actor=request.actor,
            keep_going=query.keep_going == "true",
        )
    except ImportRefusedError as refused:
        errors = [FieldProblem(f"line {each.line}", each.text) for each in refused.report.errors]
        raise Refusal(422, str(refused), errors=errors) from None


@get(
    router,
    "/twins/{twin}",
    action="twin.view",
    answer=TwinOut | TwinPublic,
    open=_look_up_id,
    tagged=True,
)
def get_twin(request: Request, twin: str) -> Any:
    """Get a twin.

    This needs no permission. Callers that may read the registry get more fields and an ETag.
    """
    return _out(_row(_number(twin)))


@put(router, "/twins/{twin}", action="twin.put", answer=TwinOut, tagged=True, conflicts=True)
def put_twin(request: Request, twin: TwinId, body: TwinIn) -> Any:
    """Add a twin to the registry, or replace it.

    Workers apply the change within a second. Relays that read twins from the chain answer 409:
    change the twin on the chain.
    """
    with audit.exclusive():
        row = Twin.objects.filter(pk=twin).first()
        if row is None:
            etag.check_absent(request)
        else:
            etag.check_match(request, _out(row))
        services.put_twin(_values(twin, body), actor=request.actor)
        return _out(_row(twin))


@patch(router, "/twins/{twin}", action="twin.put", answer=TwinOut, tagged=True, conflicts=True)
def patch_twin(request: Request, twin: TwinId, body: TwinChange) -> Any:
    """Change some fields of a twin.

    Relays that read twins from the chain answer 409: change the twin on the chain.
    """
    with audit.exclusive():
        present = _out(_row(twin))
        etag.check_match(request, present)
        changed = body.model_dump(exclude_unset=True)
        kept = {name: getattr(present, name) for name in ("account", "pk", "relays")}
        merged = {**kept, **{k: v for k, v in changed.items() if v is not None or k == "pk"}}
        services.put_twin(_values(twin, TwinIn(**merged)), actor=request.actor)
        return _out(_row(twin))


@delete(
    router,
    "/twins/{twin}",
    action="twin.remove",
    answer=None,
    status=204,
    tagged=True,
    conflicts=True,
)
def delete_twin(request: Request, twin: TwinId) -> Any:
    """Remove a twin from the registry.

    The relay closes its sessions; messages for it wait until they expire. Twins that come from the
    chain cannot be removed: 409.
    """
    with audit.exclusive():
        etag.check_match(request, _out(_row(twin)))
        services.remove_twins([twin], actor=request.actor)


def _values(twin: int, body: TwinIn) -> TwinValues:
    relays = own_relay() if body.relays is None else body.relays
    for relay in relays:
        if RELAY_SEPARATOR in relay or relay != relay.strip():
            raise Invalid(
                fields={"relays": f"a relay's name cannot contain {RELAY_SEPARATOR!r} or spaces"}
            )
    try:
        return TwinValues(
            twin,
            parse_signer(body.account),
            parse_pk(body.pk or ""),
            parse_relays(RELAY_SEPARATOR.join(relays)),
        )
    except FieldError as error:
        field, _, message = str(error).partition(": ")
        raise Invalid(fields={field: message}) from None


def _number(text: str) -> int:
    try:
        return parse_id(text)
    except FieldError as error:
        raise Refusal(400, str(error)) from None


def _row(twin: int) -> Twin:
    found = Twin.objects.filter(pk=twin).first()
    if found is None:
        raise NotFound(f"there is no twin {twin}")
    return found


def _listed(found: listing.Listed) -> dict[str, Any]:
    rates = found.flow._asdict() if found.flow else dict.fromkeys(listing.RATES)
    return {**_out(found.row).dict(), **rates}


def _out(row: Twin) -> TwinOut:
    return TwinOut(
        id=row.id,
        account=row.address,
        pk=f"0x{bytes(row.encryption_key).hex()}" if row.encryption_key else None,
        relays=list(split_relays(row.relays)),
        source=row.source,
        updated=row.updated,
        version=row.version,
        height=row.height,
        stale_since=row.stale_since,
    )
