"""The methods of operators' calls: the operations of REST, named by their operation ids."""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode

from relay.resources import registry

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
HEADERS: Final = ("Idempotency-Key", "If-Match")
"""Headers of REST requests that a call may pass in its metadata, under these names."""
DANGEROUS: Final = frozenset(
    {"session.kick", "queue.purge", "queue.move", "ban.set", "worker.drain", "relay.block",
     "token.revoke", "account.end_sessions", "account.reset_second_factor", "limit.default",
     "twin.import", "chain.import"}
)  # fmt: skip
"""Actions that take something away from others and therefore need a confirmation. Every DELETE and
every verb of a declared resource that is marked as dangerous need one too."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of an operation, in the path or in the query."""

    name: str
    place: str
    required: bool
    type: str
    description: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One method.

    Attributes:
        path: path with its parameters in braces.
        body: media type of the request body; empty if the operation has none.
        content: media type of the answer; any other than JSON is sent as a stream of parts.
        dangerous: whether it needs a confirmation.
    """

    id: str
    method: str
    path: str
    summary: str
    parameters: tuple[Parameter, ...]
    body: str
    content: str
    dangerous: bool

    @property
    def is_stream(self) -> bool:
        """Whether the answer is a stream of parts."""
        return self.content != JSON

    def described(self) -> dict[str, Any]:
        """Return the description of the operation for `describe`."""
        params = [
            {
                "name": each.name,
                "in": each.place,
                "required": each.required,
                "type": each.type,
                "description": each.description,
            }
            for each in self.parameters
        ]
        if self.body:
            params.append(
                {
                    "name": "body",
                    "in": "body",
                    "required": False,
                    "type": "object" if self.body == JSON else "string",
                    "description": self.body,
                }
            )
        return {
            "id": self.id,
            "summary": self.summary,
            "dangerous": self.dangerous,
            "stream": self.is_stream,
            "params": params,
        }

    def target(self, params: Mapping[str, Any]) -> str:
        """Return path and query string for parameters.

        Raises:
            ValueError: a parameter is unknown, missing, of the wrong type, or not usable in a path.
        """
        places = {each.name: each.place for each in self.parameters}
        path, query = self.path, []
        for name, value in params.items():
            if name == "body" and self.body:
                continue
            place = places.get(name)
            if place is None:
                known = ", ".join([*places, *(["body"] if self.body else [])]) or "none"
                raise ValueError(f"{name:.80}: is not a parameter of {self.id} (known: {known})")
            if place == "path":
                text = _text(name, value)
                if text in ("", ".", "..") or "/" in text:
                    raise ValueError(f"{name}: must not be empty, a dot, or contain a slash")
                path = path.replace(f"{{{name}}}", quote(text, safe=""))
            elif value is not None:
                query.append((name, _text(name, value)))
        for each in self.parameters:
            if each.place == "path" and params.get(each.name) is None:
                raise ValueError(f"{each.name}: is missing")
        return path + (f"?{urlencode(query)}" if query else "")

    def content_of(self, params: Mapping[str, Any]) -> bytes:
        """Return the request body for parameters; empty without a body.

        Raises:
            ValueError: the operation takes a text body, and the given one is not a string.
        """
        body = params.get("body")
        if not self.body or body is None:
            return b""
        if self.body == JSON:
            return json.dumps(body).encode()
        if not isinstance(body, str):
            raise ValueError(f"body: must be a string ({self.body})")
        return body.encode()


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    raise ValueError(f"{name}: must be a string, a number or a boolean")


@functools.cache
def operations() -> dict[str, Operation]:
    """Return all methods by their ids."""
    from relay.rest.api import api  # imported late: it loads ninja and pydantic

    document = json.loads(api.document)
    declared = {each.operation for resource in registry.resources() for each in resource.verbs
                if each.danger}  # fmt: skip
    found = {}
    for path, item in document["paths"].items():
        for method, described in item.items():
            if "operationId" in described:
                operation = _operation(path, method.upper(), described, declared)
                found[operation.id] = operation
    return found


def _operation(
    path: str, method: str, described: dict[str, Any], declared: Collection[str]
) -> Operation:
    answers = [
        answer.get("content", {})
        for status, answer in described["responses"].items()
        if status.startswith("2")
    ]
    contents = [name for content in answers for name in content]
    return Operation(
        id=described["operationId"],
        method=method,
        path=path,
        summary=described.get("summary", ""),
        parameters=tuple(
            Parameter(
                each["name"],
                each["in"],
                bool(each.get("required")),
                _type(each.get("schema", {})),
                each.get("description", ""),
            )
            for each in described.get("parameters", ())
            if each["in"] in ("path", "query")
        ),
        body=next(iter(described.get("requestBody", {}).get("content", {})), ""),
        content=contents[0] if contents else JSON,
        dangerous=method == "DELETE"
        or described.get("x-action") in DANGEROUS
        or described["operationId"] in declared,
    )


def _type(schema: Mapping[str, Any]) -> str:
    """Return the type of a parameter: the first that is not null."""
    for each in (schema, *schema.get("anyOf", ())):
        if each.get("type") not in (None, "null"):
            return str(each["type"])
    return "string"
