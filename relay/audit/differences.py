"""Differences between the values before and after a change, field by field. No I/O."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

NOTHING: Final = ""


class Difference(NamedTuple):
    """One field.

    Attributes:
        field: dotted name, with those of enclosing objects; empty if the value is not an object.
        before, after: values as text; empty if absent. For lists, the items removed and added.
        kept: number of list items that are in both.
    """

    field: str
    before: str
    after: str
    kept: int = 0

    @property
    def changed(self) -> bool:
        """Whether the field changed."""
        return self.before != self.after


def differences(before: Any, after: Any) -> list[Difference]:
    """Return all fields of two JSON values, the changed ones first."""
    found = list(_fields("", before, after))
    return sorted(found, key=lambda each: not each.changed)


def summary(before: Any, after: Any) -> str:
    """Describe in one line what changed."""
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
