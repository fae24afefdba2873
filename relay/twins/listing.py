"""Search and lists of twins, for operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from django.db import InterfaceError, OperationalError
from django.db.models import Exists, OuterRef, Q, QuerySet
from redis.exceptions import RedisError

from proto.federation.domains import spelled
from relay.access.errors import Away, Invalid, NotFound
from relay.limits import listing as limits
from relay.limits.models import TwinLimit
from relay.ops import keyset, paging
from relay.ops.paging import Page
from relay.ops.redis_client import client
from relay.sessions import published_rates, ranking
from relay.sessions.models import Session
from relay.sessions.published_rates import Flow
from relay.sessions.ranking import Ranking
from relay.twins.bounds import MAX_RELAYS_BYTES
from relay.twins.fields import FieldError, parse_account, parse_id
from relay.twins.models import Twin
from relay.twins.source import RELAY_SEPARATOR

MAX_SEARCH_CHARS: Final = 256
ORDERS: Final = {"id": "pk", "updated": "updated"}
RATES: Final = Flow._fields
"""Further orders of twins: `rate_in` and `rate_out`."""


class Listed(NamedTuple):
    """A twin and the rates of its sessions; the rates are None if Redis does not answer."""

    row: Twin
    flow: Flow | None


def search(
    text: str = "",
    *,
    relay: str = "",
    source: str = "",
    stale: bool | None = None,
    banned: bool | None = None,
    connected: bool | None = None,
) -> QuerySet[Twin]:
    """Return twins that match all filters; all twins if no filter is given.

    Args:
        text: an id, an account (ss58, or 0x and 64 digits), or a part of a relay's name.
        relay: a relay that each twin lists.
        source: `registry` or `chain`.
        stale: only twins of the chain that may have missed changes, or only the others.
        banned: only twins that are banned now, or only the others.
        connected: only twins with a session in the database, or only the others.

    Raises:
        Invalid: a filter has an impossible value.
    """
    wrong = {}
    if len(text) > MAX_SEARCH_CHARS:
        wrong["text"] = f"must be at most {MAX_SEARCH_CHARS} characters"
    if len(relay) > MAX_RELAYS_BYTES or RELAY_SEPARATOR in relay:
        wrong["relay"] = "is not a relay name"
    if source and source not in Twin.Source.values:
        wrong["source"] = f"must be one of {', '.join(Twin.Source.values)}"
    if wrong:
        raise Invalid(fields=wrong)
    twins = _matching(text.strip())
    if source:
        twins = twins.filter(source=source)
    if stale is not None:
        twins = twins.filter(stale_since__isnull=not stale)
    if banned is not None:
        is_banned = Exists(limits.search(banned=True).filter(twin=OuterRef("pk")))
        twins = twins.filter(is_banned if banned else ~is_banned)
    if connected is not None:
        held = Session.objects.filter(closed_at=None, twin=OuterRef("pk"))
        twins = twins.filter(Exists(held) if connected else ~Exists(held))
    return twins.filter(_lists(relay)) if relay else twins


def page(rows: QuerySet[Twin], *, order: str, limit: int, cursor: str = "") -> Page[Listed]:
    """Return one page of twins.

    Args:
        order: one of `ORDERS` or `RATES`, optionally with a minus.

    Raises:
        Invalid: the order, limit or cursor is invalid.
        Away: the database does not answer, or Redis, if the order is by rate.
    """
    name, descending = paging.one_of(order, (*ORDERS, *RATES))
    if name in ORDERS:
        found = keyset.page(rows, ORDERS, order=order, limit=limit, cursor=cursor)
        return Page(with_flows(found.items), found.next)
    wanted = paging.bounded(limit)
    try:
        flows = published_rates.read(client()).twins()
        rates = {twin: rate for twin, flow in flows.items() if (rate := getattr(flow, name)) > 0}
        ranked = Ranking(rows, rates, _of, lambda row: row.id, descending)
        parts = ranked.parts(cursor, order, wanted + 1)
        chosen = ranking.page(parts, ranked.place, order, wanted)
    except RedisError as error:
        raise Away(f"Redis does not answer: {error}") from error
    except (OperationalError, InterfaceError) as error:
        raise Away(f"the database does not answer: {error}") from error
    return Page(_listed(chosen.items, flows), chosen.next)


def with_flows(rows: Iterable[Twin]) -> list[Listed]:
    """Add to twins the rates of their sessions."""
    try:
        flows = published_rates.read(client()).twins()
    except RedisError:
        return [Listed(row, None) for row in rows]
    return _listed(rows, flows)


def _listed(rows: Iterable[Twin], flows: Mapping[int, Flow]) -> list[Listed]:
    return [Listed(row, flows.get(row.id, Flow()).rounded()) for row in rows]


def _of(rows: QuerySet[Twin], ids: Sequence[int]) -> QuerySet[Twin]:
    return rows.filter(pk__in=ids)


def require_known(twin: int, way_out: str = "--unknown") -> None:
    """Refuse a twin that is neither in the table nor has a limit or ban: its id may be misspelt.

    Args:
        twin: id of the twin.
        way_out: option that allows unknown twins, as the caller's interface spells it.

    Raises:
        NotFound: this relay does not know the twin.
    """
    if not (Twin.objects.filter(pk=twin).exists() or TwinLimit.objects.filter(twin=twin).exists()):
        raise NotFound(
            f"this relay does not know twin {twin}: check the id, or allow unknown ones ({way_out})"
        )


def _matching(term: str) -> QuerySet[Twin]:
    twins = Twin.objects.all()
    if not term:
        return twins
    for field, parse in (("id", parse_id), ("account", parse_account)):
        try:
            return twins.filter(**{field: parse(term)})
        except FieldError:
            continue
    return twins.filter(relays__icontains=term)


def _lists(relay: str) -> Q:
    """Return a filter for twins that list a relay, in any case, or by its canonical name."""
    joint, found = RELAY_SEPARATOR, Q()
    for name in {relay, spelled(relay)}:
        found |= (
            Q(relays__iexact=name)
            | Q(relays__istartswith=f"{name}{joint}")
            | Q(relays__iendswith=f"{joint}{name}")
            | Q(relays__icontains=f"{joint}{name}{joint}")
        )
    return found
