"""ETags of single resources: a GET returns one, and a change may require it with `If-Match`.

The tag is a hash of the answer to a GET, so two requests that read the same state get the same tag,
from all processes and releases that show the same fields. Fields declared `Live` are not hashed:
they change by themselves, and must not make changes fail. An answer to a GET with such fields is
always sent in full, whatever `If-None-Match` contains.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from typing import Any, Final

from django.http import HttpRequest, HttpResponse, HttpResponseNotModified
from ninja import Schema
from ninja.responses import NinjaJSONEncoder

from relay.rest.problem import Refusal, refuse_field
from relay.rest.schema import LIVE

MAX_TAGS: Final = 32
MAX_CHARS: Final = 1000
"""Maximum length of such a header."""


def live_fields(schema: Any) -> frozenset[str]:
    """Return the fields of an answer that are declared `Live` (`relay.rest.schema`)."""
    fields = getattr(schema, "model_fields", {})
    return frozenset(name for name, field in fields.items() if LIVE in field.metadata)


def tag_of(resource: Schema) -> str:
    """Return the ETag of a resource as it is shown."""
    document = resource.model_dump(exclude=set(live_fields(type(resource))))
    return _tag(json.dumps(document, cls=NinjaJSONEncoder).encode())


def tagged(request: HttpRequest, answer: HttpResponse, live: Collection[str]) -> HttpResponse:
    """Return the answer to a GET with its tag; 304 if the client has it already.

    Args:
        request: the GET.
        answer: answer as JSON.
        live: fields of the answer that the tag does not cover.
    """
    content = answer.content
    if live:
        document = json.loads(content)
        kept = {name: value for name, value in document.items() if name not in live}
        content = json.dumps(kept).encode()
    tag = _tag(content)
    if not live and tag in _tags(_header(request, "If-None-Match") or ""):
        answer = HttpResponseNotModified()
    answer["ETag"] = tag
    return answer


def check_match(request: HttpRequest, current: Schema) -> None:
    """Check that the resource still has the tag that a change requires, if it requires one.

    The caller excludes concurrent changes (`relay.audit.services.exclusive`).

    Raises:
        Refusal: 412, the resource has changed.
    """
    wanted = _header(request, "If-Match")
    if wanted is None or wanted.strip() == "*":
        return
    if tag_of(current) not in _tags(wanted):
        raise Refusal(412, "the resource has changed since it was read: read it again")


def check_absent(request: HttpRequest) -> None:
    """Refuse a change with `If-Match`, as the resource does not exist."""
    if _header(request, "If-Match") is not None:
        raise Refusal(412, "the resource does not exist")


def _tags(header: str) -> list[str]:
    return [each.strip() for each in header.split(",", MAX_TAGS)[:MAX_TAGS]]


def _header(request: HttpRequest, name: str) -> str | None:
    value = request.headers.get(name)
    if value is not None and len(value) > MAX_CHARS:
        raise refuse_field(f"header.{name}", f"must be at most {MAX_CHARS} characters")
    return value


def _tag(content: bytes) -> str:
    return f'"{hashlib.sha256(content).hexdigest()[:20]}"'
