"""REST operations of declared resources: a list, one row, and each verb.

They are defined with `relay.rest.operation`, like those that are written by hand. Schemas have the
names of the declaration, so that the OpenAPI document reads the same.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from ninja import Field as Described
from ninja import Router, Schema
from ninja.params.functions import Path, Query
from pydantic import AfterValidator, BeforeValidator, create_model

from relay.resources import registry
from relay.resources.declaration import Ask, Resource, Shape, Verb
from relay.resources.fields import Argument, Field, Filter, Where
from relay.resources.values import (
    Choice,
    Flag,
    Moment,
    Number,
    Pairs,
    Real,
    Text,
    Texts,
    Type,
)
from relay.rest.caller import Request
from relay.rest.operation import operation
from relay.rest.paging import bad_cursor
from relay.rest.schema import Body, Page, PageQuery, Stamp, whole
from relay.rest.schema import Flag as StrictFlag


def declare(router: Router, resource: Resource) -> None:
    """Add the operations of a resource to a router."""
    fields = {each.name: _answered(each) for each in resource.fields_of(Where.DATA)}
    row = _schema(resource.schema, Schema, fields)
    _declare_list(router, resource, row)
    # `lamps/add` comes before `lamps/{id}`.
    for verb in sorted(resource.verbs, key=lambda each: len(each.in_path(resource, each.path))):
        _declare_verb(router, resource, verb)
    if resource.identity:
        _declare_one(router, resource, row)


def _declare_list(router: Router, resource: Resource, row: Any) -> None:
    filters = resource.filters_of(Where.DATA)
    offered: Any = Literal[tuple(resource.orders_of(Where.DATA))]
    schema = _schema(
        Shape(f"{resource.schema.name}Query", "Filters of the list."),
        PageQuery,
        {**{each.name: _asked(each) for each in filters}, "order": (offered, resource.order)},
    )  # fmt: skip

    def run(request: Request, query: Any) -> Any:
        if query.cursor == "":
            raise bad_cursor()
        given = {name: value for name, value in _read(filters, query).items() if value is not None}
        found = resource.fetch(Ask(given, query.order, query.limit, query.cursor or ""))
        return {"items": [resource.data(each) for each in found.items], "next": found.next or None}

    _operate(
        router, f"/{resource.address}", run, f"list_{resource.name}",
        _doc(resource.summary, resource.details), {"query": Annotated[schema, Query()]},
        method="GET", action=resource.action, answer=Page[row], tags=[resource.tag],
    )  # fmt: skip


def _declare_one(router: Router, resource: Resource, row: Any) -> None:
    identity = resource.identity
    assert identity is not None

    def run(request: Request, **values: Any) -> Any:
        return resource.data(identity.get(values[identity.name]))

    _operate(
        router, f"/{resource.address}/{{{identity.name}}}", run, f"get_{resource.noun}",
        _doc(identity.summary), {identity.name: _in_path(identity.type, identity.description)},
        method="GET", action=resource.action, answer=row, tags=[resource.tag],
    )  # fmt: skip


def _declare_verb(router: Router, resource: Resource, verb: Verb) -> None:
    path = resource.path_of(verb, verb.path)
    in_path = verb.in_path(resource, verb.path)
    places = {each.name: _in_path(each.type, each.description)
              for each in verb.arguments if each.name in in_path}  # fmt: skip
    brought = [each for each in verb.arguments if each.name not in places]
    name = "".join(map(str.capitalize, verb.operation.split("_")))
    shape = verb.takes or Shape(f"{name}In", f"{verb.summary}.")
    if brought and verb.method == "DELETE":
        wanted = {each.name: _brought(each, body=False) for each in brought}
        places["query"] = Annotated[_schema(shape, Schema, wanted), Query()]
    elif brought:
        wanted = {each.name: _brought(each, body=True) for each in brought}
        places["body"] = _schema(shape, Body, wanted)
    answer = None
    if verb.answer:
        shape = verb.gives or Shape(f"{name}Out", f"{verb.summary}.")
        answer = _schema(shape, Schema, {each.name: _answered(each) for each in verb.answer})

    def run(request: Request, body: Any = None, query: Any = None, **values: Any) -> Any:
        done = verb.run(request.actor, **values, **_read(brought, body or query))
        return {each.name: each.value(done) for each in verb.answer} if verb.answer else None

    _operate(
        router, f"/{path}", run, verb.operation, _doc(verb.summary, verb.details), places,
        method=verb.method, action=verb.action, answer=answer, status=200 if answer else 204,
        missing=verb.missing, tags=[resource.tag],
    )  # fmt: skip


def _operate(
    router: Router,
    path: str,
    run: Callable[..., Any],
    name: str,
    doc: str,
    places: dict[str, Any],
    **facts: Any,
) -> None:
    """Define an operation with computed parameters: ninja reads them from the signature."""
    kind = inspect.Parameter.KEYWORD_ONLY
    run.__name__, run.__doc__ = name, doc
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter("request", inspect.Parameter.POSITIONAL_OR_KEYWORD),
            *(inspect.Parameter(key, kind, annotation=each) for key, each in places.items()),
        ]
    )
    operation(router, path, **facts)(run)


def _doc(summary: str, details: str = "") -> str:
    return f"{summary}.\n\n{details}" if details else f"{summary}."


def _schema(shape: Shape, base: type[Schema], fields: dict[str, Any]) -> Any:
    return create_model(
        shape.name, __base__=base, __doc__=shape.description, __module__=__name__, **fields
    )


def _answered(field: Field) -> tuple[Any, Any]:
    kind = _plain(field.type)
    return (kind | None if field.null else kind), Described(description=field.description)


def _asked(each: Filter) -> tuple[Any, Any]:
    kind = _bounded(each.type, body=False)
    return kind | None, Described(None, description=each.description)


def _read(parts: Sequence[Filter | Argument], source: Any) -> dict[str, Any]:
    """Return values from a body or a query; in a query, flags are texts."""
    found = {each.name: getattr(source, each.name) for each in parts}
    for each in parts:
        if isinstance(each.type, Flag) and isinstance(found[each.name], str):
            found[each.name] = each.type.parse(found[each.name])
    return found


def _brought(argument: Argument, *, body: bool) -> tuple[Any, Any]:
    kind = _bounded(argument.type, body=body)
    if argument.required:
        return kind, Described(..., description=argument.description)
    described = Described(argument.default, description=argument.description)
    return (kind | None if argument.default is None else kind), described


def _in_path(kind: Type, description: str) -> Any:
    bounded: Any = _bounded(kind, body=False)
    return Annotated[bounded, Path(description=description)]


def _plain(kind: Type) -> Any:
    """Return the type of a value in an answer."""
    match kind:
        case Choice():
            return Literal[tuple(map(str, kind.options))]
        case Texts():
            return list[str]
        case Pairs():
            return dict[str, str]
    return {Text: str, Number: int, Real: float, Flag: bool, Moment: datetime}[type(kind)]


def _bounded(kind: Type, *, body: bool) -> Any:
    """Return the type of a value in a request.

    Args:
        body: whether the value is in a body, where 3.0 equals 3 and a text is not a number;
            otherwise it is in a path or a query.
    """
    match kind:
        case Text():
            least = kind.min_chars or None
            sized = Described(max_length=kind.max_chars, min_length=least)
            return (
                Annotated[str, sized, AfterValidator(kind.check)]
                if kind.form
                else Annotated[str, sized]
            )
        case Number():
            bounds = Described(ge=kind.least, le=kind.most)
            return (
                Annotated[int, bounds, BeforeValidator(whole)] if body else Annotated[int, bounds]
            )
        case Moment():
            return Stamp
        case Flag():
            return StrictFlag if body else Literal["true", "false"]
        case Texts():
            return Annotated[list[str], Described(max_length=kind.max_items),
                             AfterValidator(kind.check)]  # fmt: skip
        case Pairs():
            return Annotated[dict[str, str], Described(max_length=kind.max_items),
                             AfterValidator(kind.check)]  # fmt: skip
    return _plain(kind)


def router_of(resources: Iterable[Resource]) -> Router:
    """Return a router with all operations of some resources."""
    router = Router()
    for resource in resources:
        declare(router, resource)
    return router


router = router_of(registry.resources())
