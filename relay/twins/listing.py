"""Twins as operators look for them."""

from __future__ import annotations

from typing import Final

from django.db.models import Exists, OuterRef, Q, QuerySet

from proto.federation.domains import spelled
from relay.access.errors import Invalid, NotFound
from relay.limits import listing as limits
from relay.limits.models import TwinLimit
from relay.sessions.models import Session
from relay.twins.bounds import MAX_RELAYS_BYTES
from relay.twins.fields import FieldError, parse_account, parse_id
from relay.twins.models import Twin
from relay.twins.source import RELAY_SEPARATOR

MAX_SEARCH_CHARS: Final = 256


def search(
    text: str = "",
    *,
    relay: str = "",
    source: str = "",
    stale: bool | None = None,
    banned: bool | None = None,
    connected: bool | None = None,
) -> QuerySet[Twin]:
    """Twins by what is known of them; all of them without a word.

    Args:
        text: an id, an account (ss58, or 0x and 64 digits), or a part of a relay's name.
        relay: a relay each of them lists.
        source: `registry` or `chain`.
        stale: only those of the chain that may have changed unseen, or only the others.
        banned: only those that are banned now, or only the others.
        connected: only those with a session, by what the database knows, or only the others.

    Raises:
        Invalid: a value can be none.
    """
    wrong = {}
    if len(text) > MAX_SEARCH_CHARS:
        wrong["text"] = f"must be at most {MAX_SEARCH_CHARS} characters"
    if len(relay) > MAX_RELAYS_BYTES or RELAY_SEPARATOR in relay:
        wrong["relay"] = "is no name of a relay"
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


def require_known(twin: int, way_out: str = "--unknown") -> None:
    """Refuse a twin that is neither in the table nor has a decision: its id may be misspelt.

    Args:
        twin: its id.
        way_out: what accepts it all the same, as the caller of this face writes it.

    Raises:
        NotFound: this relay does not know it.
    """
    if not (Twin.objects.filter(pk=twin).exists() or TwinLimit.objects.filter(twin=twin).exists()):
        raise NotFound(
            f"this relay never met twin {twin}: check the id, or allow unknown ones ({way_out})"
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
    """One of the names that are joined in the column, in any case, also by its canonical name."""
    joint, found = RELAY_SEPARATOR, Q()
    for name in {relay, spelled(relay)}:
        found |= (
            Q(relays__iexact=name)
            | Q(relays__istartswith=f"{name}{joint}")
            | Q(relays__iendswith=f"{joint}{name}")
            | Q(relays__icontains=f"{joint}{name}{joint}")
        )
    return found
