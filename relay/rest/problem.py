"""Errors as problem+json (RFC 9457): one form for every refusal of the API.

    {"type": "about:blank", "title": "Unprocessable Content", "status": 422,
     "detail": "count: must be at least 0", "errors": [{"field": "count", "message": "..."}]}

`errors` is present if fields of the request are invalid. `field` is the name in the body, or
`query.<name>`, `path.<name>`, `header.<name>`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from django.http import HttpResponse

CONTENT_TYPE: Final = "application/problem+json"

TITLES: Final[Mapping[int, str]] = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    412: "Precondition Failed",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class FieldProblem(NamedTuple):
    """A field of the request and what is wrong with it."""

    field: str
    message: str


class Refusal(Exception):
    """Exception that ends a request with a problem.

    Attributes:
        headers: headers of the answer, such as `Retry-After`.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        errors: Iterable[FieldProblem] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.errors = tuple(errors)
        self.headers = dict(headers or {})

    def answer(self) -> HttpResponse:
        return problem(self.status, self.detail, errors=self.errors, headers=self.headers)


def refuse_field(field: str, message: str, status: int = 422) -> Refusal:
    """Return the refusal of one field."""
    return Refusal(status, f"{field}: {message}", errors=[FieldProblem(field, message)])


def problem(
    status: int,
    detail: str,
    *,
    errors: Iterable[FieldProblem] = (),
    headers: Mapping[str, str] | None = None,
) -> HttpResponse:
    """Return an answer with a problem."""
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": TITLES[status],
        "status": status,
        "detail": detail,
    }
    fields = [each._asdict() for each in errors]
    if fields:
        body["errors"] = fields
    answer = HttpResponse(json.dumps(body), status=status, content_type=CONTENT_TYPE)
    answer["Cache-Control"] = "no-store"
    for name, value in (headers or {}).items():
        answer[name] = value
    return answer
