"""Public look-up of a twin over HTTP, for peers without a chain. It returns only public fields.

    GET /api/v1/twins/7             the twin with this id
    GET /api/v1/twins?account=5G…   the twin of this account: ss58, or 0x and 64 digits

The answer has the text forms of the CSV file (`relay.twins.fields`), with relays as a list. Errors
are problem+json (RFC 9457). It is served on the operator's listener, from the table of this site:
the registry, or the mirror of the chain. `relay.twins.api` adds it to the REST API, where operators
get more fields from the same addresses.
"""

from __future__ import annotations

from typing import Final

from django.conf import settings
from django.db import Error as DatabaseError
from django.db.models import QuerySet
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from proto.identity import ss58
from relay.twins.fields import FieldError, parse_account, parse_id
from relay.twins.models import Twin
from relay.twins.source import split_relays

TITLES: Final = {400: "Bad Request", 404: "Not Found", 503: "Service Unavailable"}


@never_cache
@require_safe
def by_id(request: HttpRequest, twin: str) -> JsonResponse:
    """Answer with the twin of an id."""
    try:
        number = parse_id(twin)
    except FieldError as error:
        return _problem(400, str(error))
    return _answer(_twins().filter(id=number), f"there is no twin {number}")


@never_cache
@require_safe
def by_account(request: HttpRequest) -> JsonResponse:
    """Answer with the twin of an account; if several have it, the one with the lowest id."""
    try:
        account = parse_account(request.GET.get("account", ""))
    except FieldError as error:
        return _problem(400, str(error))
    return _answer(_twins().filter(account=account), f"no twin has {ss58.encode(account)}")


def _twins() -> QuerySet[Twin]:
    """Return the twins of the configured source."""
    if settings.RMB.twins.source == "tfchain":
        return Twin.objects.filter(source=Twin.Source.CHAIN)
    return Twin.objects.all()


def _answer(found: QuerySet[Twin], missing: str) -> JsonResponse:
    try:
        twin = found.order_by("id").first()
    except DatabaseError as error:
        return _problem(503, f"database: {error}")
    if twin is None:
        return _problem(404, missing)
    return JsonResponse(
        {
            "id": twin.id,
            "account": twin.address,
            "pk": f"0x{bytes(twin.encryption_key).hex()}" if twin.encryption_key else None,
            "relays": list(split_relays(twin.relays)),
        }
    )


def _problem(status: int, detail: str) -> JsonResponse:
    body = {"type": "about:blank", "title": TITLES[status], "status": status, "detail": detail}
    return JsonResponse(body, status=status, content_type="application/problem+json")
