"""Links between operations in the OpenAPI document: ids in an answer are parameters of others.

    POST /groups           201   its `id` is the `group` of GET, PATCH and DELETE /groups/{group}
    GET  /groups           200   so is the `id` of the first item
    PUT  /twins/{twin}     200   the `twin` of the request is that of GET and DELETE /twins/{twin}

The links are derived from the paths, so operations declare nothing. Programs that explore the API,
such as tests that follow links, find existing resources instead of guessing ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

METHODS: Final = ("get", "put", "post", "patch", "delete")
_TAIL: Final = re.compile(r"((?:/\{\w+\})+)(/[a-z-]+)?$")
"""End of the path of one item, or of an action on it."""


def add_links(document: dict[str, Any]) -> None:
    """Add links to each answer that contains parameters of other operations."""
    paths = document["paths"]
    for path, item in paths.items():
        tail = _TAIL.search(path)
        if tail is None:
            continue
        collection = path[: tail.start()]
        names = re.findall(r"\{(\w+)\}", tail[1])
        targets = [item[method]["operationId"] for method in METHODS if method in item]
        for operation, status, values in _sources(document, collection, tail[1], names):
            links = operation["responses"][status].setdefault("links", {})
            for target in targets:
                if target != operation["operationId"]:
                    links[target] = {"operationId": target, "parameters": values}


def _sources(
    document: dict[str, Any], collection: str, tail: str, names: list[str]
) -> Iterator[tuple[dict[str, Any], str, dict[str, str]]]:
    """Yield the operations whose answers identify such an item, with its place in the answer."""
    listed = document["paths"].get(collection, {})
    if "post" in listed and "201" in listed["post"]["responses"]:
        fields = _fields(document, names, listed["post"]["responses"]["201"])
        if fields:
            values = {name: f"$response.body#/{field}" for name, field in fields.items()}
            yield listed["post"], "201", values
    if "get" in listed:
        fields = _fields(document, names, listed["get"]["responses"]["200"], "items")
        if fields:
            values = {name: f"$response.body#/items/0/{field}" for name, field in fields.items()}
            yield listed["get"], "200", values
    put = document["paths"].get(f"{collection}{tail}", {}).get("put")
    if put:
        yield put, "200", {name: f"$request.path.{name}" for name in names}


def _fields(
    document: dict[str, Any], names: list[str], response: dict[str, Any], within: str = ""
) -> dict[str, str]:
    """Return the field of each parameter in an answer: its name or `id`; empty if one is absent."""
    schema = _resolved(document, response["content"]["application/json"]["schema"])
    if within:
        array = schema.get("properties", {}).get(within, {})
        schema = _resolved(document, array.get("items", {}))
    found = {}
    for name in names:
        field = name if name in schema.get("properties", {}) else "id"
        if field not in schema.get("properties", {}):
            return {}
        found[name] = field
    return found


def _resolved(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema that a reference names; of alternatives, the first."""
    if "anyOf" in schema:
        schema = schema["anyOf"][0]
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    return document["components"]["schemas"][name] if name else schema
