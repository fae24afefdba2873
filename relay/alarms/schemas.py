"""Bodies, queries and answers of the REST operations for alarms."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from ninja import Field, Schema

from relay.alarms import bounds, checks
from relay.alarms.models import (
    MAX_KEY_CHARS,
    MAX_NAME_CHARS,
    MAX_SECRET_CHARS,
    MAX_URL_CHARS,
    Kind,
    Outcome,
    State,
)
from relay.rest.schema import Body, Flag, Live, PageQuery, RowId, Stamp

SeverityName = Literal["info", "warning", "critical"]
RuleKey = Annotated[str, Field(max_length=MAX_KEY_CHARS)]
Number = Annotated[float, Field(ge=0, le=1e12, strict=False)]


class AlarmOut(Schema):
    """State of one rule for one subject."""

    id: int
    rule: str = Field(description="Key of the rule.")
    title: str
    severity: str
    subject: str = Field(
        description="Subject of the alarm, such as a worker or a relay; empty if the rule has only "
        "one."
    )
    state: str = Field(description="pending, firing, acknowledged, silenced or resolved.")
    since: datetime = Field(description="Time at which it entered this state.")
    fired_at: datetime | None
    value: float | None = Field(description="Last reading; null: unknown.")
    unit: str
    detail: str
    acknowledged_by: str
    acknowledged_at: datetime | None
    note: str
    silenced_until: datetime | None
    repeats: int = Field(description="Times it fired again within an hour of its end.")
    runbook: str = Field(description="Meaning of the alarm and what to do.")


class AlarmEventOut(Schema):
    """An event of an alarm."""

    id: int
    at: datetime
    kind: str
    rule: str
    subject: str
    severity: str
    value: float | None
    detail: str
    by: str = Field(description="Actor; empty for events without one.")


class RuleOut(Schema):
    """A rule with the values in force."""

    key: str
    title: str
    severity: str
    unit: str = Field(description="Unit of the readings; empty for readings that are yes or no.")
    subject: str = Field(description="Kind of subject that its alarms have.")
    rising: bool = Field(description="Whether high readings fire the alarm; if not, low ones do.")
    threshold: float
    clear: float = Field(description="Reading beyond which an alarm ends.")
    hold_s: float = Field(
        description="Seconds a reading must be beyond the threshold before the alarm fires."
    )
    clear_hold_s: float = Field(
        description="Seconds a reading must be beyond `clear` before the alarm ends."
    )
    enabled: bool
    changed: bool = Field(description="Whether any value differs from its default.")
    unknown_since: Live[datetime | None] = Field(
        description="Time since which the reading is unavailable; null: it is available."
    )
    error: Live[str] = Field(description="Reason why the reading is unavailable.")
    runbook: str


class SilenceOut(Schema):
    """A time during which receivers get no notices about matching alarms."""

    id: int
    rule: str
    subject: str
    until: datetime
    note: str
    by: str
    created: datetime


class ReceiverOut(Schema):
    """A receiver of alarms."""

    id: int
    name: str
    kind: str
    target: str = Field(description="E-mail address, or the beginning of the webhook's URL.")
    min_severity: str
    enabled: bool
    revision: str = Field(
        description="Value that differs after every change, also of fields that are not shown."
    )
    waiting: Live[int] = Field(description="Notices that wait for the receiver.")
    last_success: Live[datetime | None]
    last_error: Live[str]


class ReceiverAdded(ReceiverOut):
    """A new receiver."""

    secret: str = Field(
        description="Secret that signs webhooks, shown only once. Empty for e-mail."
    )


class NoticeOut(Schema):
    """A notice that a receiver got or will get."""

    id: int
    receiver: str
    event: str = Field(description="Id of the event that receivers see.")
    type: str
    rule: str
    subject: str
    created: datetime
    outcome: str
    tries: int
    error: str
    ended: datetime | None


class TestOut(Schema):
    """Answer of a receiver to a test notice."""

    ok: bool
    text: str


class NoteBody(Body):
    """A remark."""

    note: str = Field("", max_length=bounds.MAX_NOTE_CHARS)


class SilenceBody(Body):
    """A rule and a subject to silence."""

    rule: RuleKey = Field(description="Key of a rule; * and ? stand for any.")
    subject: str = Field("*", min_length=1, max_length=bounds.MAX_SUBJECT_CHARS)
    until: Stamp
    note: str = Field("", max_length=bounds.MAX_NOTE_CHARS)


class RuleBody(Body):
    """A rule; missing and null fields are reset to their defaults."""

    threshold: Number | None = None
    clear: Number | None = None
    hold_s: Annotated[float, Field(ge=0, le=checks.MAX_HOLD_S)] | None = None
    enabled: Flag = True


class ReceiverBody(Body):
    """A new receiver."""

    name: str = Field(max_length=MAX_NAME_CHARS)
    kind: Literal["webhook", "email"]
    target: str = Field(max_length=MAX_URL_CHARS)
    secret: str = Field(
        "",
        max_length=MAX_SECRET_CHARS,
        description="Secret that signs webhooks; empty: the relay generates one.",
    )
    min_severity: SeverityName = "warning"
    enabled: Flag = True


class ReceiverPatch(Body):
    """Fields to change; missing fields keep their values."""

    name: str | None = Field(None, max_length=MAX_NAME_CHARS)
    target: str | None = Field(None, max_length=MAX_URL_CHARS)
    secret: str | None = Field(None, max_length=MAX_SECRET_CHARS)
    min_severity: SeverityName | None = None
    enabled: Flag | None = None


class AlarmQuery(PageQuery):
    """Filters of alarms."""

    state: Literal[tuple(State.values)] | None = None  # type: ignore[valid-type]
    severity: SeverityName | None = None
    rule: RuleKey | None = None
    subject: str | None = Field(None, max_length=bounds.MAX_SUBJECT_CHARS)
    order: Literal["id", "-id", "since", "-since"] = "-since"


class EventQuery(PageQuery):
    """Filters of the history."""

    kind: Literal[tuple(Kind.values)] | None = None  # type: ignore[valid-type]
    rule: RuleKey | None = None
    subject: str | None = Field(None, max_length=bounds.MAX_SUBJECT_CHARS)
    order: Literal["id", "-id"] = "-id"


class SilenceQuery(PageQuery):
    """Order of silences."""

    order: Literal["id", "-id", "until", "-until"] = "until"


class ReceiverQuery(PageQuery):
    """Order of receivers."""

    order: Literal["id", "-id", "name", "-name"] = "name"


class NoticeQuery(PageQuery):
    """Filters of notices."""

    receiver: RowId | None = None
    outcome: Literal[tuple(Outcome.values)] | None = None  # type: ignore[valid-type]
    order: Literal["id", "-id"] = "-id"
