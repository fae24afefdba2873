"""Pages of declared resources: table and export, one row, and the confirmation of each verb.

    urlpatterns = [..., *console.urls(HOSTS)]

Hand-written pages embed the same table with `part`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path, reverse

from relay.access.actor import Actor
from relay.access.errors import Invalid, NotFound
from relay.dashboard import tables
from relay.dashboard.acts import Question, act
from relay.dashboard.figures import Kind
from relay.dashboard.pages import may, page
from relay.dashboard.tables import Action, Cell, Column, Row, Tab, Table, respond, respond_all
from relay.ops.paging import Page
from relay.resources import registry
from relay.resources.declaration import Ask, Related, Resource, Values, Verb, parameters
from relay.resources.fields import Field, Labels, Look, Unit, Where, title_of
from relay.resources.forms import choices, form_of
from relay.resources.values import Choice, Moment, Number, Real, Type

_KINDS = {
    Unit.COUNT: Kind.NUMBER,
    Unit.PER_SECOND: Kind.RATE,
    Unit.BYTES: Kind.BYTES,
    Unit.BYTES_PER_SECOND: Kind.BYTE_RATE,
    Unit.SECONDS: Kind.DURATION,
    Unit.MILLISECONDS: Kind.MILLISECONDS,
    Unit.SHARE: Kind.SHARE,
}
_LOOKS = {
    Look.TEXT: Cell.TEXT,
    Look.CODE: Cell.CODE,
    Look.LINE: Cell.LINE,
    Look.STATE: Cell.STATE,
}
Known = Callable[[Labels], Mapping[str, str]]
"""Function that returns the labels of a page, and reads each mapping once only."""


def urls(resource: Resource) -> list[URLPattern]:
    """Return the URL patterns of a resource's pages."""
    found = []
    if resource.console:
        view = page(resource.action)(functools.partial(_list, resource))
        found.append(path(f"{resource.address}/", view, name=resource.name))
    # `lamps/add/` comes before `lamps/<id>/`.
    for verb in sorted(resource.verbs, key=lambda each: len(each.in_path(resource, each.page))):
        view = page(verb.action)(functools.partial(_ask, resource, verb))
        kinds = {each.name: each.type for each in verb.arguments}
        pattern = _pattern(resource.path_of(verb, verb.page), kinds)
        found.append(path(pattern, view, name=f"{verb.noun}_{verb.name}"))
    if resource.console and resource.identity:
        view = page(resource.action)(functools.partial(_one, resource))
        own = f"{resource.address}/{{{resource.identity.name}}}"
        kinds = {resource.identity.name: resource.identity.type}
        found.append(path(_pattern(own, kinds), view, name=resource.noun))
    return found


def part(
    request: HttpRequest,
    resource: Resource,
    columns: Sequence[str],
    filters: Values,
    *,
    order: str = "",
    **facts: Any,
) -> Table:
    """Return a short table of a resource, for a page about something else.

    Args:
        columns: names of the fields to show.
        filters: values by which the rows are filtered.
        order: order of the rows; empty: that of the resource.
        facts: arguments for `Table`: name, title, prefix and so on.
    """
    labels = functools.cache(_labels)
    verbs = _verbs(request, resource)

    def fetch(ask: tables.Ask) -> Page[Row]:
        found = resource.fetch(Ask(filters, order or resource.order, ask.limit, ""))
        return Page([_row(resource, each, labels, verbs) for each in found.items], found.next)

    offered = {each.key: each for each in _columns(resource, resource.fields_of(Where.CONSOLE))}
    return Table(request, columns=[offered[name] for name in columns], fetch=fetch, **facts)


def tabs(resource: Resource, current: str = "") -> list[Tab]:
    """Return the pages that are shown as tabs with a resource's page.

    Args:
        current: URL name of the current page, if it is not the resource's own.
    """
    found = resource.console.tabs() if resource.console and resource.console.tabs else {}
    shown = current or resource.name
    return [Tab(label, reverse(f"console:{name}"), name == shown) for name, label in found.items()]


def _list(resource: Resource, request: HttpRequest) -> HttpResponseBase:
    shown = resource.console
    assert shown is not None
    labels = functools.cache(_labels)
    verbs = _verbs(request, resource)
    filters = [each for each in resource.filters_of(Where.CONSOLE)
               if each.name not in (shown.fixed or {})]  # fmt: skip

    def given(texts: Mapping[str, str]) -> dict[str, Any]:
        wanted = {each.name: _parsed(each.name, each.type, texts[each.name])
                  for each in filters if texts[each.name]}  # fmt: skip
        return {**(shown.fixed or {}), **wanted}

    def fetch(ask: tables.Ask) -> Page[Row]:
        found = resource.fetch(Ask(given(ask.filters), ask.order, ask.limit, ask.cursor))
        return Page([_row(resource, each, labels, verbs) for each in found.items], found.next)

    table = Table(
        request, shown.table or resource.name.replace("_", "-"),
        _columns(resource, resource.fields_of(Where.CONSOLE)), fetch,
        order=shown.order or resource.order, live=shown.live, empty=shown.empty,
        filters=[
            tables.Filter(
                each.name, title_of(each),
                choices(each.type, each.labels and labels(each.labels)), each.hint,
            )
            for each in filters
        ],
    )  # fmt: skip
    try:
        wanted: Values | None = given({each.name: each.value for each in table.filters})
    except Invalid:  # the table shows the error
        wanted = None
    known = [(each, each.of_list(wanted)) for each in verbs if each.of_list and wanted is not None]
    context = {"tabs": tabs(resource), "actions": _actions(resource, known)}
    template = "relay_dashboard/table_page.html"
    return respond(request, table, template, resource.title, context)


def _one(resource: Resource, request: HttpRequest, /, **values: Any) -> HttpResponseBase:
    identity = resource.identity
    assert identity is not None
    try:
        wanted = identity.type.parse(str(values[identity.name]))
    except ValueError as error:
        raise NotFound(f"{identity.name}: {error}") from None
    found = identity.get(wanted)
    fields = resource.fields_of(Where.CONSOLE)
    names = {each.name for each in fields}
    fields += [each for each in resource.fields_of(Where.DATA) if each.name not in names]
    row = _row(resource, found, _labels, _verbs(request, resource), fields)
    row = replace(row, links={name: link for name, link in row.links.items()
                              if name != identity.column})  # fmt: skip
    context = {"row": row, "columns": _columns(resource, fields), "actions": row.actions,
               "tabs": tabs(resource)}  # fmt: skip
    shown = resource.console
    assert shown is not None
    title = shown.title(found) if shown.title else f"{_words(resource.noun)} {wanted}"
    short = [table for each in shown.related if (table := _related(request, each, wanted))]
    return respond_all(request, short, "relay_dashboard/resource.html", title, context)


def _related(request: HttpRequest, related: Related, value: Any) -> Table | None:
    """Return the table of related rows, or None if the operator has no permission to see them."""
    other = next(each for each in registry.resources() if each.name == related.resource)
    assert other.console is not None
    if not may(request, other.action):
        return None
    columns = [each.name for each in other.fields_of(Where.CONSOLE)
               if each.is_shown() and each.name not in related.without]  # fmt: skip
    query = urlencode({related.filter: value})
    return part(
        request, other, columns, {related.filter: value}, order=other.console.order,
        name=f"related-{other.name.replace('_', '-')}", title=related.title,
        prefix=f"{other.name}-", live=other.console.live, empty="None.",
        all_url=f"{reverse(f'console:{other.name}')}?{query}",
    )  # fmt: skip


def _words(noun: str) -> str:
    return noun.replace("_", " ").capitalize()


def _ask(
    resource: Resource, verb: Verb, request: HttpRequest, /, **values: Any
) -> HttpResponseBase:
    """Show the confirmation of a verb, or run the verb."""
    known: dict[str, Any] = {}
    for each in verb.known:
        text = str(values.get(each.name, "")) or tables.given(request, each.name)
        known[each.name] = each.default
        if text:
            try:
                known[each.name] = each.type.parse(text)
            except ValueError as error:
                if each.name in values:
                    raise NotFound(f"{each.name} {text:.80}: {error}") from None
                raise Invalid(fields={each.name: str(error)}) from None
        elif each.required:
            raise Invalid(fields={each.name: "is missing"})
    edited = _edited(resource, verb, request)
    form = form_of(request, verb, {} if edited is None else _values_of(resource, verb, edited))

    def perform(actor: Actor) -> str:
        asked = {each.name: form.cleaned_data[each.name] for each in verb.arguments if each.asked}
        given = {**known, **asked}
        told = verb.done(given, verb.run(actor, **given))
        return told[:1].upper() + told[1:]

    confirm = verb.confirm(known)
    title, button = confirm.title, verb.title
    if resource.identity and edited is not None:
        title, button = f"Edit {verb.noun} {resource.identity.value(edited)}", "Save"
        form.fields[resource.identity.name].widget.attrs["readonly"] = True
    question = Question(title, button, confirm.text, confirm.loses, danger=bool(confirm.loses))
    return act(request, question, perform, _back(resource, known), form)


def _edited(resource: Resource, verb: Verb, request: HttpRequest) -> Any:
    """Return the row that a form edits, or None if the form is for a new one."""
    identity = resource.identity
    if not (identity and verb.edits and identity.name in request.GET):
        return None
    return identity.get(_parsed(identity.name, identity.type, request.GET[identity.name]))


def _values_of(resource: Resource, verb: Verb, row: Any) -> dict[str, Any]:
    fields = {each.name: each for each in resource.fields_of(Where.DATA)}
    return {each.name: fields[each.name].value(row) for each in verb.arguments
            if each.name in fields}  # fmt: skip


def _columns(resource: Resource, fields: Sequence[Field]) -> list[Column]:
    orders = {each.field or each.name: each.name
              for each in resource.orders if Where.CONSOLE in each.where}  # fmt: skip
    return [
        Column(each.name, title_of(each), _kind(each), order=orders.get(each.name, ""),
               optional=not each.is_shown(), hint=each.description)
        for each in fields
    ]  # fmt: skip


def _kind(field: Field) -> Cell | Kind:
    match field.type:
        case Number() | Real():
            return _KINDS[field.unit] if field.unit else Cell.CODE
        case Moment():
            return Cell.MOMENT
        case Choice() if field.look is Look.TEXT:
            return Cell.LINE
    return _LOOKS[field.look]


def _row(
    resource: Resource,
    row: Any,
    labels: Known,
    verbs: Sequence[Verb],
    fields: Sequence[Field] = (),
) -> Row:
    fields = fields or resource.fields_of(Where.CONSOLE)
    links = {each.name: each.link(row) for each in fields if each.link}
    one = resource.identity
    if resource.console and one and one.value(row) not in ("", None):
        links[one.column] = reverse(f"console:{resource.noun}", args=[one.value(row)])
    known = [(verb, verb.of_row(row)) for verb in verbs if verb.of_row]
    edits = [
        Action("Edit", f"{_address(resource, verb, {})}?{urlencode({one.name: one.value(row)})}")
        for verb in verbs
        if verb.edits and one
    ]
    return Row(
        {each.name: _shown(each, row, labels) for each in fields},
        {name: link for name, link in links.items() if link},
        [*edits, *_actions(resource, known)],
    )


def _shown(field: Field, row: Any, labels: Known) -> Any:
    value = field.value(row)
    if field.labels and value in (known := labels(field.labels)):
        return known[value]
    if field.show:
        return field.show(row)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{key}={each}" for key, each in value.items())
    return ", ".join(value) if isinstance(value, list | tuple) else value


def _verbs(request: HttpRequest, resource: Resource) -> list[Verb]:
    return [each for each in resource.verbs if may(request, each.action)]


def _actions(resource: Resource, known: Sequence[tuple[Verb, Values | None]]) -> list[Action]:
    """Return the buttons of verbs whose arguments are known."""
    return [
        Action(verb.title, _address(resource, verb, values), danger=verb.danger)
        for verb, values in known
        if values is not None
    ]


def _address(resource: Resource, verb: Verb, known: Values) -> str:
    """Return the URL of a verb's confirmation; arguments that are not in the path are a query."""
    in_path = verb.in_path(resource, verb.page)
    kinds = {each.name: each.type for each in verb.arguments}
    found = reverse(
        f"console:{verb.noun}_{verb.name}",
        kwargs={
            name: known[name] if isinstance(kinds[name], Number) else str(known[name])
            for name in in_path
        },
    )
    rest = {name: value for name, value in known.items()
            if name not in in_path and value is not None}  # fmt: skip
    return f"{found}?{urlencode(rest)}" if rest else found


def _back(resource: Resource, known: Values) -> str:
    """Return the URL of the list, filtered by the arguments that are filters of the list too."""
    if not resource.console:
        return reverse("console:overview")
    found = reverse(f"console:{resource.name}")
    shared = {each.name: known[each.name] for each in resource.filters if each.name in known}
    return f"{found}?{urlencode(shared)}" if shared else found


def _pattern(own: str, kinds: Mapping[str, Type]) -> str:
    """Return a path as a Django URL pattern: `sessions/<key:key>/kick/`."""
    for name in parameters(own):
        kind = "int" if isinstance(kinds[name], Number) else "key"
        own = own.replace(f"{{{name}}}", f"<{kind}:{name}>")
    return f"{own}/"


def _labels(own: Labels) -> Mapping[str, str]:
    return own()


def _parsed(name: str, kind: Type, text: str) -> Any:
    try:
        return kind.parse(text)
    except ValueError as error:
        raise Invalid(fields={name: str(error)}) from None
