"""ETags of single resources: a GET tells one, a change may insist on it with `If-Match`.

The tag is a hash of what a GET answers, so two requests that read the same thing agree on it, over
all processes and releases that show the same fields. Fields that are declared `Live` are left out:
they change by themselves, and nobody's change is for an older state because of them. A GET whose
answer has such fields is answered whole, whatever `If-None-Match` says.
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
"""Of such a header."""


def live_fields(schema: Any) -> frozenset[str]:
    """The fields of an answer that are declared `Live` (`relay.rest.schema`)."""
    fields = getattr(schema, "model_fields", {})
    return frozenset(name for name, field in fields.items() if LIVE in field.metadata)


def tag_of(resource: Schema) -> str:
    """The ETag of a resource as it is shown."""
    document = resource.model_dump(exclude=set(live_fields(type(resource))))
    return _tag(json.dumps(document, cls=NinjaJSONEncoder).encode())


def tagged(request: HttpRequest, answer: HttpResponse, live: Collection[str]) -> HttpResponse:
    """The answer of a GET with its tag; 304 where the client has it.

    Args:
        request: the GET.
        answer: as JSON.
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
    """Hold a change against the tag it was made for, if it names one.

    The caller keeps other changes out meanwhile (`relay.audit.services.exclusive`).

    Raises:
        Refusal: 412, the resource is another one by now.
    """
    wanted = _header(request, "If-Match")
    if wanted is None or wanted.strip() == "*":
        return
    if tag_of(current) not in _tags(wanted):
        raise Refusal(412, "the resource has changed since it was read: read it again")


def check_absent(request: HttpRequest) -> None:
    """As `check_match`, of a resource that does not exist yet: no tag is its."""
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
