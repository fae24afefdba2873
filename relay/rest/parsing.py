"""Parsing of bodies and queries, bounded and checked before an operation sees them.

JSON is parsed strictly (no NaN, no duplicate names) and to a bounded depth. No text may contain
what a store refuses: NUL, which PostgreSQL does not accept, or half a surrogate pair, which is not
Unicode.
"""

from __future__ import annotations

import json
from typing import Any, Final

from django.http import HttpRequest
from django.utils.datastructures import MultiValueDict
from ninja.parser import Parser

from relay.ops import storable
from relay.rest.bounds import MAX_JSON_DEPTH
from relay.rest.problem import Refusal, refuse_field

_PARSED: Final = "_rest_body"


class CleanParser(Parser):
    """Parser that ninja uses for requests."""

    def parse_body(self, request: HttpRequest) -> Any:
        """Return the body that `read_json` has parsed."""
        return getattr(request, _PARSED)

    def parse_querydict(
        self, data: MultiValueDict[str, str], list_fields: list[str], request: HttpRequest
    ) -> dict[str, Any]:
        for name, values in data.lists():
            for value in values:
                if not storable.is_text(value):
                    raise refuse_field(f"query.{name[:80]}", "must be text without NUL")
        found: dict[str, Any] = super().parse_querydict(data, list_fields, request)
        return found


def read_json(request: HttpRequest) -> None:
    """Parse the body once, for the operation.

    Raises:
        Refusal: it is not valid JSON, nested too deep, or has a text that cannot be stored.
    """
    try:
        value = json.loads(
            request.body, parse_constant=_no_constant, object_pairs_hook=_unique_names
        )
    except UnicodeDecodeError:
        raise Refusal(400, "the body is not UTF-8") from None
    except RecursionError:
        raise Refusal(400, "the body is nested too deep") from None
    except ValueError as error:
        raise Refusal(400, f"the body is not JSON: {error}") from None
    _check(value)
    setattr(request, _PARSED, value)


def _check(value: Any) -> None:
    level = [("", value)]
    for _ in range(MAX_JSON_DEPTH):
        below: list[tuple[str, Any]] = []
        for name, each in level:
            if isinstance(each, str) and not storable.is_text(each):
                raise refuse_field(name or "body", "must be Unicode text without NUL")
            if isinstance(each, dict):
                if not all(map(storable.is_text, each)):
                    raise Refusal(400, "a name in the body is not Unicode text without NUL")
                below += [(f"{name}.{key}" if name else key, part) for key, part in each.items()]
            elif isinstance(each, list):
                below += [(f"{name}.{at}", part) for at, part in enumerate(each)]
        if not below:
            return
        level = below
    raise Refusal(400, f"the body is nested deeper than {MAX_JSON_DEPTH} levels")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name comes twice in one object")
    return found
