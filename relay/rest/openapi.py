"""The OpenAPI document: ninja's document, completed with what operations declare beyond it.

It adds to each operation: its action, the permission and the lowest role that has it (`x-action`,
`x-permission`, `x-role`), the ways to authenticate, the headers that it uses, every problem that it
may answer with, and the links of its answer (`relay.rest.links`).
"""

from __future__ import annotations

from typing import Any, Final

from ninja import NinjaAPI
from ninja.schema import NinjaGenerateJsonSchema

from relay.access import matrix
from relay.rest import etag, idempotency, links
from relay.rest.bounds import MAX_KEY_CHARS
from relay.rest.operation import Declared, declared
from relay.rest.problem import CONTENT_TYPE, TITLES
from relay.rest.schema import Problem

DESCRIPTION: Final = """\
Every task of an operator, for programs. Authenticate with an API token \
(`Authorization: Bearer <token>`), or call it from the operator site's own pages.

Lists have pages: the query takes `limit`, `cursor`, `order` and filters; the answer has `items` \
and `next`. Errors are problem+json (RFC 9457). A POST with an `Idempotency-Key` runs once, \
however often it is sent within a day. Requests are limited per token: 429 has `Retry-After`.\
"""

SECURITY: Final[dict[str, Any]] = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API token, from `manage.py rmb_token` or `/api/v1/tokens`.",
    },
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": "rmb_operator",
        "description": "The session of a browser; changes also need the header `X-CSRFToken`.",
    },
}

_PROBLEMS: Final = {
    400: "The request is malformed.",
    401: "No token was sent, or it is unknown, expired or revoked.",
    403: "The permission is missing.",
    404: "The resource does not exist.",
    409: "The present state forbids it, or a request with this `Idempotency-Key` still runs.",
    412: "The resource has changed since it was read.",
    413: "The body is too large.",
    415: "The media type of the body is not supported.",
    422: "A value is invalid; `errors` names the fields.",
    429: "Too many requests; `Retry-After` contains the seconds to wait.",
    503: "Redis, the database or the chain does not answer.",
}

_KEY: Final[dict[str, Any]] = {
    "in": "header",
    "name": idempotency.HEADER,
    "required": False,
    "description": "Key that makes repeats safe: within a day, the relay runs requests with the "
    "same key once.",
    "schema": {"type": "string", "minLength": 1, "maxLength": MAX_KEY_CHARS, "pattern": "^[!-~]+$"},
}


def complete(document: dict[str, Any], api: NinjaAPI) -> dict[str, Any]:
    """Add to the document what ninja does not know."""
    for bound in api._get_bound_routers():
        for path, view in bound.path_operations.items():
            item = document["paths"]["/".join(["/api/v1", path.lstrip("/")])]
            for operation in view.operations:
                for method in operation.methods:
                    _complete(item[method.lower()], declared(operation), operation)
    components = document["components"]
    components["schemas"] = dict(sorted(components["schemas"].items()))
    schema = Problem.model_json_schema(
        ref_template="#/components/schemas/{model}", schema_generator=NinjaGenerateJsonSchema
    )
    components["schemas"].update(schema.pop("$defs"))
    components["schemas"]["Problem"] = schema
    components["securitySchemes"] = SECURITY
    components["responses"] = {_name(status): _response(status) for status in _PROBLEMS}
    _drop_unused(document)
    links.add_links(document)
    document["servers"] = [{"url": "/", "description": "This site."}]
    document["tags"] = [
        {"name": name}
        for name in sorted(
            {tag for item in document["paths"].values() for each in item.values()
             for tag in each["tags"]}
        )
    ]  # fmt: skip
    return document


def _drop_unused(document: dict[str, Any]) -> None:
    """Remove unused schemas: ninja also lists those of queries, whose fields are parameters."""
    schemas = document["components"]["schemas"]
    waiting: list[Any] = [document["paths"], document["components"]["responses"]]
    used: set[str] = set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            reference = value.get("$ref")
            name = reference.rpartition("/")[2] if isinstance(reference, str) else ""
            if name in schemas and name not in used:
                used.add(name)
                waiting.append(schemas[name])
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    for name in set(schemas) - used:
        del schemas[name]


def _complete(described: dict[str, Any], facts: Declared, operation: Any) -> None:
    parameters = described["parameters"]
    statuses = {422, 429, 503}
    described["security"] = [{name: []} for name in SECURITY]
    if facts.open:
        described["security"].insert(0, {})
        statuses.add(400)
    statuses |= {401, 403}
    if facts.action is not None:
        described["x-action"] = facts.action
        described["x-permission"] = matrix.permission_of(facts.action)
        described["x-role"] = matrix.role_of(facts.action).value
    if any(each["name"] == "cursor" for each in parameters):
        statuses.add(400)
    if facts.missing:
        statuses.add(404)
    if facts.conflicts:
        statuses.add(409)
    if facts.method == "POST":
        parameters.append(_KEY)
    if facts.tagged and not (facts.method == "GET" and facts.live):
        name = "If-None-Match" if facts.method == "GET" else "If-Match"
        parameters.append(
            {
                "in": "header",
                "name": name,
                "required": False,
                "description": "ETag of the resource; if it has changed since, the answer is 412.",
                "schema": {"type": "string", "maxLength": etag.MAX_CHARS},
            }
        )
    if facts.tagged and facts.method != "GET":
        statuses.add(412)
    if facts.body:
        described["requestBody"] = {
            "required": True,
            "content": {facts.body: {"schema": {"type": "string"}}},
        }
    if "requestBody" in described:
        statuses |= {400, 413, 415}
    if facts.content:
        for answer in described["responses"].values():
            answer["content"] = {each: {"schema": {"type": "string"}} for each in facts.content}
    responses = described["responses"]
    if facts.tagged and facts.method == "GET":
        responses["200"] = responses.pop(200)
        responses["200"]["headers"] = {"ETag": {"schema": {"type": "string"}}}
        if not facts.live:
            responses["304"] = {"description": "Not Modified"}
    for status in sorted(statuses):
        responses[str(status)] = {"$ref": f"#/components/responses/{_name(status)}"}
    described["responses"] = {str(status): answer for status, answer in responses.items()}


def _name(status: int) -> str:
    return TITLES[status].replace(" ", "")


def _response(status: int) -> dict[str, Any]:
    content = {"schema": {"$ref": "#/components/schemas/Problem"}}
    found: dict[str, Any] = {
        "description": _PROBLEMS[status],
        "content": {CONTENT_TYPE: content},
    }
    if status in (429, 503):
        found["headers"] = {"Retry-After": {"schema": {"type": "integer"}}}
    return found
