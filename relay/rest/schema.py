"""Types of bodies, queries and answers: bounded texts and numbers, and no unknown fields.

Texts of a client are checked before they get here (`relay.rest.parsing`): no NUL, which PostgreSQL
refuses, and nothing that is not Unicode.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Annotated, Any, Final, Generic, TypeVar

from ninja import Field, Schema
from pydantic import AfterValidator, AwareDatetime, BeforeValidator, ConfigDict, StrictBool

from proto.identity.bounds import MAX_TWIN
from relay.ops import storable
from relay.ops.storable import MAX_ID
from relay.rest import bounds

Item = TypeVar("Item")


def _within_reach(at: datetime) -> datetime:
    if not storable.is_within_reach(at):
        raise ValueError(f"must be between {storable.FIRST_YEAR} and {storable.LAST_YEAR}")
    return at


def _no_number(value: Any) -> Any:
    # Otherwise pydantic takes a number for seconds, or for milliseconds if it is large.
    if isinstance(value, date) or (isinstance(value, str) and value[4:5] == "-"):
        return value
    raise ValueError("must be a day such as 2026-01-31, with a time where one is asked for")


def whole(value: Any) -> Any:
    """Convert a whole number of JSON, where 3.0 is 3."""
    if type(value) is int or (type(value) is float and value.is_integer()):
        return int(value)
    raise ValueError("must be a whole number")


Flag = StrictBool
"""true or false in a body."""

TwinId = Annotated[int, Field(ge=1, le=MAX_TWIN, description="Id of a twin.")]
"""Twin id in a path or a query."""

Whole = Annotated[int, BeforeValidator(whole)]
"""Whole number in a body. JSON does not distinguish 3 from 3.0; texts and flags are refused."""

BodyTwinId = Annotated[Whole, Field(ge=1, le=MAX_TWIN, description="Id of a twin.")]

RowId = Annotated[int, Field(ge=1, le=MAX_ID)]

Count = Annotated[int, Field(ge=0, le=MAX_ID), BeforeValidator(whole)]
"""Whole number in a body that is not negative."""


Stamp = Annotated[
    AwareDatetime,
    Field(description="A point in time with its offset, such as 2026-01-31T12:00:00Z."),
    BeforeValidator(_no_number),
    AfterValidator(_within_reach),
]

Day = Annotated[date, BeforeValidator(_no_number)]


LIVE: Final = "live"
Live = Annotated[Item, LIVE]
"""Field of an answer that changes by itself: it is not a setting and not part of the ETag."""


class Body(Schema):
    """Base of request bodies; unknown names are refused."""

    model_config = ConfigDict(extra="forbid")


class PageQuery(Schema):
    """Base of the query of a list. Subclasses add filters, and narrow `order` to the fields that
    clients may order by (`Literal["id", "-id"]`).
    """

    limit: int = Field(
        bounds.DEFAULT_ITEMS,
        ge=1,
        le=bounds.MAX_ITEMS,
        description="Highest number of items on the page.",
    )
    cursor: str | None = Field(
        None,
        max_length=bounds.MAX_CURSOR_CHARS,
        description="`next` of the previous page; use the same filters and order.",
    )
    order: str | None = None


class Page(Schema, Generic[Item]):
    """One page of a list."""

    items: list[Item]
    next: str | None = Field(None, description="Cursor of the next page; null on the last page.")


class FieldError(Schema):
    """A field of the request and what is wrong with it."""

    field: str
    message: str


class Problem(Schema):
    """Problem details of an error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[FieldError] = Field(
        default_factory=list, description="Fields of the request with errors; otherwise empty."
    )


def moment(unix_s: float) -> datetime | None:
    """Convert unix seconds to a time for an answer; None for 0, or if it is out of range."""
    try:
        return datetime.fromtimestamp(unix_s, UTC) if unix_s > 0 else None
    except (ValueError, OverflowError, OSError):
        return None
