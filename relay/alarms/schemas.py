"""Bodies, queries and answers of the alarms' REST operations."""

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
    """One subject of one rule that is or was in trouble."""

    id: int
    rule: str = Field(description="Key of its rule.")
    title: str
    severity: str
    subject: str = Field(description="What it is about; empty where there is only one.")
    state: str = Field(description="pending, firing, acknowledged, silenced or resolved.")
    since: datetime = Field(description="When it began to be in this state.")
    fired_at: datetime | None
    value: float | None = Field(description="The last reading; null where it is unknown.")
    unit: str
    detail: str
    acknowledged_by: str
    acknowledged_at: datetime | None
    note: str
    silenced_until: datetime | None
    repeats: int = Field(description="How often it came back within an hour of its end.")
    runbook: str = Field(description="What it means and what to do.")


class AlarmEventOut(Schema):
    """Something that happened to an alarm."""

    id: int
    at: datetime
    kind: str
    rule: str
    subject: str
    severity: str
    value: float | None
    detail: str
    by: str = Field(description="Who did it; empty where it happened by itself.")


class RuleOut(Schema):
    """A rule as it is in force."""

    key: str
    title: str
    severity: str
    unit: str = Field(description="Of its readings; empty where they are yes or no.")
    subject: str = Field(description="What each of its alarms is about.")
    rising: bool = Field(description="Whether large readings are the bad ones.")
    threshold: float
    clear: float = Field(description="An alarm ends beyond this.")
    hold_s: float = Field(description="Seconds the reading is bad before it fires.")
    clear_hold_s: float = Field(description="Seconds it is good before it ends.")
    enabled: bool
    changed: bool = Field(description="Whether anything is not as delivered.")
    unknown_since: Live[datetime | None] = Field(description="Since when it cannot be measured.")
    error: Live[str] = Field(description="Why it cannot.")
    runbook: str


class SilenceOut(Schema):
    """Receivers hear nothing of alarms that match, until a time."""

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
    target: str = Field(description="An address, or the beginning of a URL.")
    min_severity: str
    enabled: bool
    revision: str = Field(
        description="Changes with every change, also of fields that are not shown."
    )
    waiting: Live[int] = Field(description="Notices it has not taken yet.")
    last_success: Live[datetime | None]
    last_error: Live[str]


class ReceiverAdded(ReceiverOut):
    """A new receiver."""

    secret: str = Field(description="Signs its webhooks; shown this once. Empty for e-mail.")


class NoticeOut(Schema):
    """What a receiver was told, or is to be."""

    id: int
    receiver: str
    event: str = Field(description="Id of the event, as receivers see it.")
    type: str
    rule: str
    subject: str
    created: datetime
    outcome: str
    tries: int
    error: str
    ended: datetime | None


class TestOut(Schema):
    """What a receiver answered to a test."""

    ok: bool
    text: str


class NoteBody(Body):
    """A remark."""

    note: str = Field("", max_length=bounds.MAX_NOTE_CHARS)


class SilenceBody(Body):
    """What is to be silenced."""

    rule: RuleKey = Field(description="Key of a rule; * and ? stand for any.")
    subject: str = Field("*", min_length=1, max_length=bounds.MAX_SUBJECT_CHARS)
    until: Stamp
    note: str = Field("", max_length=bounds.MAX_NOTE_CHARS)


class RuleBody(Body):
    """A whole rule; missing or null fields are reset to their defaults."""

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
        "", max_length=MAX_SECRET_CHARS, description="Of a webhook; one is made where it is empty."
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
