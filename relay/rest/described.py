"""The OpenAPI document for people: operations with their fields in words, and an example."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

_BOUNDS: Final = {
    "format": "{}",
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "maxItems": "at most {} items",
    "pattern": "matches {}",
}
_SAMPLES: Final = {"boolean": True, "integer": 1, "number": 1, "date-time": "2026-01-31T12:00:00Z"}

Json = dict[str, Any]


class Field(NamedTuple):
    """A parameter, or a field of a body or an answer, with its type and bounds in words."""

    name: str
    kind: str
    required: bool
    doc: str
    place: str = ""


class Operation(NamedTuple):
    """One operation; `told` is its part of the document."""

    name: str
    method: str
    path: str
    tag: str
    summary: str
    role: str
    permission: str
    told: Json


def operations(document: Json) -> dict[str, Operation]:
    """List all operations by their names, in the document's order."""
    return {
        told["operationId"]: Operation(
            told["operationId"],
            method.upper(),
            path,
            told["tags"][0],
            told["summary"],
            # No sign-in is needed; with the role, the answer has more fields.
            "" if {} in told["security"] else told.get("x-role", ""),
            told.get("x-permission", ""),
            told,
        )
        for path, item in document["paths"].items()
        for method, told in item.items()
    }


def parameters(told: Json) -> list[Field]:
    """List the parameters of an operation in its path, query and headers."""
    return [
        _field(each["name"], each["schema"], each["required"], each["in"])
        for each in told["parameters"]
    ]


def answers(document: Json, told: Json) -> list[tuple[str, str, str]]:
    """List the status, meaning and content of each answer."""
    found = {status: _found(document, each) for status, each in told["responses"].items()}
    return [(status, each["description"], content(each)) for status, each in found.items()]


def content(body: Json) -> str:
    """Return the media types of a body, each with its schema unless it is only text."""
    return ", ".join(
        kind if each["schema"].get("type") == "string" else f"{kind}: {_kind(each['schema'])}"
        for kind, each in body.get("content", {}).items()
    )


def schemas(document: Json, told: Json) -> Iterator[tuple[str, str, list[Field]]]:
    """Yield name, meaning and fields of each object in a body or an answer, nested ones too."""
    waiting: list[Any] = [told.get("requestBody"), told["responses"]]
    seen: set[str] = set()
    while waiting:
        value = waiting.pop(0)
        if isinstance(value, dict) and "$ref" in value:
            name, found = value["$ref"].rpartition("/")[2], _found(document, value)
            if name in seen:
                continue
            seen.add(name)
            properties, needed = found.get("properties", {}), found.get("required", ())
            if properties:
                fields = [_field(key, each, key in needed) for key, each in properties.items()]
                yield name, found.get("description", ""), fields
            value = properties or found
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def example(document: Json, operation: Operation, site: str) -> str:
    """Return an operation as a command line; names in capitals stand for values of the caller.

    Args:
        site: address of the site, such as `https://relay.example.com`.
    """
    told, method = operation.told, operation.method
    needed = [each for each in told["parameters"] if each["required"]]
    values = {each["name"]: _sample(document, each["schema"], each["name"]) for each in needed}
    url = site + re.sub(r"{(\w+)}", lambda found: str(values[found[1]]), operation.path)
    query = {each["name"]: values[each["name"]] for each in needed if each["in"] == "query"}
    lines = [
        f"curl{'' if method == 'GET' else f' -X {method}'}"
        f" {shlex.quote(f'{url}?{urlencode(query)}' if query else url)}",
        '-H "Authorization: Bearer $RMB_TOKEN"',
    ]
    for kind, each in told.get("requestBody", {}).get("content", {}).items():
        lines.append(f"-H 'Content-Type: {kind}'")
        data = json.dumps(_sample(document, each["schema"], "")) if "json" in kind else "@FILE"
        lines.append(f"--data-binary {shlex.quote(data)}")
    return " \\\n  ".join(lines)


def _found(document: Json, value: Json) -> Json:
    """Return what a reference names, or the value itself if it is not a reference."""
    if "$ref" in value:
        _, kind, name = value["$ref"].rsplit("/", 2)
        value = document["components"][kind][name]
    return value


def _sample(document: Json, schema: Json, name: str) -> Any:
    """Return a sample value; for an object its required fields, or all if no field is required."""
    schema = _found(document, schema)
    if "properties" in schema:
        properties = schema["properties"]
        names = schema.get("required") or properties
        return {each: _sample(document, properties[each], each) for each in names}
    if schema.get("default") is not None:
        return schema["default"]
    if "anyOf" in schema:
        return _sample(document, schema["anyOf"][0], name)
    if "enum" in schema:
        return schema["enum"][0]
    if "items" in schema:
        return [_sample(document, schema["items"], name)]
    return _SAMPLES.get(schema.get("format") or schema.get("type", ""), name.upper())


def _field(name: str, schema: Json, required: bool, place: str = "") -> Field:
    return Field(name, _kind(schema), required, schema.get("description", ""), place)


def _kind(schema: Json) -> str:
    """Describe a type and its bounds in words."""
    if "$ref" in schema:
        words = [schema["$ref"].rpartition("/")[2]]
    elif "anyOf" in schema:
        words = [" or ".join(map(_kind, schema["anyOf"]))]
    elif "enum" in schema:
        words = ["one of " + ", ".join(map(str, schema["enum"]))]
    elif "items" in schema:
        words = [f"list of {_kind(schema['items'])}"]
    else:
        words = [schema.get("type", "any value")]
    words += [text.format(schema[key]) for key, text in _BOUNDS.items() if key in schema]
    if schema.get("default") not in (None, ""):
        words.append(f"default {schema['default']}")
    return ", ".join(words)
