"""REST operations for the tables of results that are in the database.

One operation for each table is generated from its model, whose fields describe the columns:

    GET /analytics/results/traffic-matrix?since=2026-11-01&until=2026-11-07&origin=a.example

The operations return pages of rows, filtered by days (or months) and by the columns that name
relays and twins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

from django.db.models import BigIntegerField, CharField, Field
from ninja import Query, Router
from ninja.orm import create_schema
from pydantic import Field as Described
from pydantic import create_model

from relay.analytics.results import MODEL_OF
from relay.analytics.spark.catalogue import JOBS
from relay.ops.storable import MAX_ID
from relay.rest.caller import Request
from relay.rest.operation import get
from relay.rest.paging import page
from relay.rest.schema import Page, PageQuery

router = Router(tags=["analytics"])

TWINS: Final = ("twin", "src_twin", "dst_twin")
SPANS: Final = {
    "day": r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$",
    "month": r"^\d{4}-(0[1-9]|1[0-2])$",
}
EXAMPLES: Final = {"day": "2026-11-30", "month": "2026-11"}


def _declare(name: str, grain: str) -> None:
    """Declare the operation of one table."""
    model = MODEL_OF[name]
    fields = [each for each in model._meta.fields if not each.primary_key]
    orders = {each.name: each.name for each in fields if _orderable(each)}
    filters = {each.name: _filter(each) for each in fields if _filterable(each)}
    period = Annotated[
        str | None,
        Described(pattern=SPANS[grain], description=f"A {grain} such as {EXAMPLES[grain]}."),
    ]
    choices = tuple(sign + order for order in orders for sign in ("", "-"))
    wanted = create_model(
        f"{model.__name__}Query",
        __base__=PageQuery,
        __doc__="Filters of the list.",
        since=(period, None),
        until=(period, None),
        order=(Literal[choices], "-period"),
        **{each: (kind, None) for each, kind in filters.items()},
    )  # type: ignore[call-overload]
    row = create_schema(model, name=f"{model.__name__}Out", exclude=["id"])
    about = (model.__doc__ or "").strip()

    def listed(request: Request, query: Any) -> Any:
        rows: Any = model._default_manager.all()
        if query.since:
            rows = rows.filter(period__gte=query.since)
        if query.until:
            rows = rows.filter(period__lte=query.until)
        for each in filters:
            value = getattr(query, each)
            if value is not None:
                rows = rows.filter(**{each: value})
        return page(query, rows, orders)

    listed.__name__ = f"list_results_{name}"
    listed.__doc__ = f"{about.partition('.')[0]}.\n\n{_told(grain)}"
    asked: Any = Query[wanted]  # type: ignore[misc, valid-type]
    listed.__annotations__ = {"request": Request, "query": asked, "return": Any}
    path = f"/analytics/results/{name.replace('_', '-')}"
    declare: Callable[..., Any] = get(
        router,
        path,
        action="analytics.view",
        answer=Page[row],  # type: ignore[valid-type]
    )
    declare(listed)


def _told(grain: str) -> str:
    return (
        f"Rows of the computed {grain}s (`GET /analytics/tables` lists them), the "
        f"latest first. If a {grain} is computed again, all its rows are replaced."
    )


def _orderable(field: Field[Any, Any]) -> bool:
    return field.name == "period" or (
        isinstance(field, BigIntegerField) and not field.null and field.name not in TWINS
    )


def _filterable(field: Field[Any, Any]) -> bool:
    named = isinstance(field, CharField) and field.name != "period"
    return named or field.name in TWINS


def _filter(field: Field[Any, Any]) -> Any:
    if isinstance(field, CharField):
        return Annotated[str | None, Described(max_length=field.max_length)]
    return Annotated[int | None, Described(ge=0, le=MAX_ID)]


for _job in JOBS.values():
    for _table in _job.tables:
        if _table.in_database:
            _declare(_table.name, _job.grain)
