"""Settings over REST: values in force, their origin and meaning. They are read-only here: operators
change them in the file or the environment, and restart the relay.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

from django.conf import settings
from ninja import Field, Query, Router, Schema

from relay.access.errors import NotFound
from relay.rest.caller import Request
from relay.rest.operation import get
from relay.rest.paging import page_list
from relay.rest.schema import Page, PageQuery

router = Router(tags=["settings"])

MAX_KEY_CHARS: Final = 64

Value = str | int | float | bool | list[str]
Key = Annotated[str, Field(max_length=MAX_KEY_CHARS, description="`<section>.<name>`.")]


class SettingOut(Schema):
    """A setting."""

    key: str
    section: str
    kind: str
    value: Value = Field(description="Value in the operator site; secrets are not shown.")
    default: Value
    origin: str = Field(
        description="Origin of the value: `default`, the file, the variable, or the command line."
    )
    doc: str
    secret: bool
    variable: str = Field(description="Environment variable of the setting.")
    minimum: float | None
    maximum: float | None
    choices: list[str]


class SettingQuery(PageQuery):
    """Filters of the list."""

    section: str | None = Field(None, max_length=MAX_KEY_CHARS)
    changed: Literal["true", "false"] | None = Field(
        None,
        description="true: only settings with another value than their default; false: only the "
        "others.",
    )
    order: Literal["key", "-key"] = "key"


@get(router, "/settings", action="setting.view", answer=Page[SettingOut])
def list_settings(request: Request, query: Query[SettingQuery]) -> Any:
    """List all settings with value, origin and meaning."""
    found = [
        each
        for each in every()
        if query.section in (None, each.section)
        and (query.changed is None or (each.origin == "default") == (query.changed == "false"))
    ]
    return page_list(query, found, {"key": lambda each: each.key}, lambda each: each.key)


@get(router, "/settings/{key}", action="setting.view", answer=SettingOut, tagged=True)
def get_setting(request: Request, key: Key) -> Any:
    """Get a setting."""
    for each in every():
        if each.key == key:
            return each
    raise NotFound("there is no such setting")


def every() -> Iterator[SettingOut]:
    """Yield all settings, in the order of the documentation."""
    for declared in settings.RMB_OPTIONS:
        origin = settings.RMB_ORIGINS.get(declared.key)
        value = getattr(getattr(settings.RMB, declared.section), declared.name)
        yield SettingOut(
            key=declared.key,
            section=declared.section,
            kind=declared.kind,
            value=_plain(declared.shown(value)),
            default=_plain(declared.default),
            origin=origin or "default",
            doc=declared.doc,
            secret=declared.secret,
            variable=declared.variable,
            minimum=declared.bounds.minimum,
            maximum=declared.bounds.maximum,
            choices=list(declared.bounds.choices),
        )


def _plain(value: Any) -> Value:
    return list(value) if isinstance(value, tuple) else value
