"""The reference of all declared resources as Markdown, which `make docs` writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from relay.access import matrix
from relay.resources.declaration import Resource, Verb
from relay.resources.fields import Argument, Field, Filter, Where
from relay.resources.values import Choice, Number, Text, Type
from relay.rest.bounds import DEFAULT_ITEMS, MAX_ITEMS


def markdown(resources: Iterable[Resource]) -> Iterator[str]:
    """Yield the lines of the reference page."""
    yield "# Resources"
    yield ""
    yield "Lists of the console, REST and commands that are declared once for all of them. REST"
    yield "addresses are below `/api/v1/`, pages below `/console/`. REST and `--json` have the same"
    yield f"fields. A page of REST has {DEFAULT_ITEMS} rows, or `limit` (at most {MAX_ITEMS});"
    yield "`cursor` continues. An order with a minus sign is descending."
    yield "`make docs` writes this page."
    for resource in resources:
        yield from _resource(resource)


def _resource(resource: Resource) -> Iterator[str]:
    yield from ("", f"## {resource.address}", "")
    yield f"{resource.summary}. {resource.details}".strip()
    yield ""
    yield f"- REST: `GET /{resource.address}`" + (
        f", `GET /{resource.address}/{{{resource.identity.name}}}`" if resource.identity else ""
    )
    if resource.console:
        yield f"- console: `{resource.address}/`"
    yield f"- {_may(resource.action)}"
    orders = [each.name for each in resource.orders if Where.DATA in each.where]
    yield f"- orders: {', '.join(f'`{each}`' for each in orders)}; without one `{resource.order}`"
    yield from ("", "| field | type | unit | meaning |", "|---|---|---|---|")
    for field in resource.fields_of(Where.DATA):
        yield f"| `{field.name}` | {_type(field)} | {field.unit or ''} | {field.description} |"
    if resource.filters_of(Where.DATA):
        yield from ("", "| filter | type | meaning |", "|---|---|---|")
        yield from _parts(resource.filters_of(Where.DATA))
    for verb in resource.verbs:
        yield from _verb(resource, verb)


def _verb(resource: Resource, verb: Verb) -> Iterator[str]:
    yield from ("", f"### {verb.title}", "")
    yield f"{verb.summary}. {verb.details}".strip()
    yield ""
    yield f"- REST: `{verb.method} /{resource.path_of(verb, verb.path)}`"
    yield f"- {_may(verb.action)}"
    if verb.arguments:
        yield from ("", "| argument | type | meaning |", "|---|---|---|")
        yield from _parts(verb.arguments)
    if verb.answer:
        yield from ("", "| answer | type | meaning |", "|---|---|---|")
        yield from (
            f"| `{each.name}` | {_type(each)} | {each.description} |" for each in verb.answer
        )


def _parts(parts: Sequence[Filter | Argument]) -> Iterator[str]:
    for each in parts:
        needed = isinstance(each, Argument) and each.required
        told = f"{_bounded(each.type)}{', required' if needed else ''}"
        yield f"| `{each.name}` | {told} | {each.description} |"


def _may(action: str) -> str:
    return f"permission `{matrix.permission_of(action)}`, from the role {matrix.role_of(action)}"


def _type(field: Field) -> str:
    return f"{_options(field.type)}{' or null' if field.null else ''}"


def _options(kind: Type) -> str:
    return (
        ", ".join(f"`{each}`" for each in kind.options) if isinstance(kind, Choice) else kind.word
    )


def _bounded(kind: Type) -> str:
    match kind:
        case Number(least, most):
            return f"{kind.word}, {least} to {most}"
        case Text():
            return f"{kind.word}, at most {kind.max_chars} characters"
    return _options(kind)
