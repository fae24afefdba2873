"""What a change changed: before and after, field by field. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

NOTHING: Final = ""


class Difference(NamedTuple):
    """One field.

    Attributes:
        field: its name, with those above it; empty where the value is no object.
        before, after: as text; empty where there is nothing. Of lists, what went and what came.
        kept: items of a list that stayed.
    """

    field: str
    before: str
    after: str
    kept: int = 0

    @property
    def changed(self) -> bool:
        """Whether it is another one now."""
        return self.before != self.after


def differences(before: Any, after: Any) -> list[Difference]:
    """All fields of two JSON values, those that changed first."""
    found = list(_fields("", before, after))
    return sorted(found, key=lambda each: not each.changed)


def summary(before: Any, after: Any) -> str:
    """What changed, in a line."""
    parts = []
    for each in differences(before, after):
        if not each.changed:
            break
        name = f"{each.field}: " if each.field else ""
        if not each.before or not each.after:
            parts.append(f"{name}{each.after or f'no more {each.before}'}")
        else:
            parts.append(f"{name}{each.before} → {each.after}")
    return ", ".join(parts)


def _fields(name: str, before: Any, after: Any) -> Iterator[Difference]:
    if isinstance(before, dict) or isinstance(after, dict):
        was = before if isinstance(before, dict) else {}
        now = after if isinstance(after, dict) else {}
        if not isinstance(before, dict | None) or not isinstance(after, dict | None):
            yield Difference(name, _text(before), _text(after))
            return
        for key in dict.fromkeys([*was, *now]):
            yield from _fields(f"{name}.{key}" if name else key, was.get(key), now.get(key))
    elif _is_plain_list(before) and _is_plain_list(after):
        gone = [each for each in before if each not in after]
        came = [each for each in after if each not in before]
        yield Difference(name, _text(gone), _text(came), len(before) - len(gone))
    elif before is not None or after is not None:
        yield Difference(name, _text(before), _text(after))


def _is_plain_list(value: Any) -> bool:
    return isinstance(value, list) and not any(isinstance(each, dict | list) for each in value)


def _text(value: Any) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if _is_plain_list(value):
        return ", ".join(map(_text, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
