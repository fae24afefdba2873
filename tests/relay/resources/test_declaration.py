"""Wrong declarations make the import of their module fail, with a text that names the part."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from relay.resources import registry
from relay.resources.declaration import Console, Identity
from relay.resources.fields import Argument, DeclarationError, Field, Filter, Look, Order, Unit
from relay.resources.values import (
    Choice,
    Flag,
    Moment,
    Number,
    Pairs,
    Text,
    Texts,
    Type,
)
from tests.relay.resources.lamps import RESOURCE

ADD, SWITCH, _ = RESOURCE.verbs
NOTE = Field("note", Text(), "A note.")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"name": "The Lamps"}, "resource The Lamps: its name is not a lower-case name"),
        ({"path": "/lamps"}, "path '/lamps': no slash"),
        ({"action": "lamp.view"}, "no action 'lamp.view' in relay.access.matrix"),
        ({"fields": (*RESOURCE.fields, NOTE)}, "DATA: field note is declared twice"),
        ({"filters": RESOURCE.filters * 2}, "filter room is declared twice"),
        ({"orders": (Order("id"), Order("id"))}, "order id is declared twice"),
        ({"orders": (Order("id"), Order("power", "years"))}, "no column 'years'"),
        ({"orders": (*RESOURCE.orders, Order("room"))}, "`fetch` does not know the order room"),
        ({"order": "-age"}, "order '-age': must be one of id, power"),
        ({"order": ""}, "order '': must be one of"),
        ({"console": Console(order="age")}, "order 'age': must be one of"),
        ({"console": Console(fixed={"age": 1})}, "there is no filter age"),
        ({"terminal": ("id", "note")}, "no field 'note' for the terminal"),
        ({"verbs": (ADD, ADD)}, "verb add_lamp is declared twice"),
        ({"identity": None}, "verb add: it does not ask for the identity"),
        ({"identity": replace(RESOURCE.identity, column="age")}, "no column 'age'"),  # type: ignore[type-var]
    ],
)
def test_resources(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(DeclarationError, match=told):
        replace(RESOURCE, **changes)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"action": "lamp.switch"}, "verb switch of lamp: there is no action 'lamp.switch'"),
        ({"word": "Switch it"}, "'Switch it' is not a word"),
        ({"method": "GET"}, "the method must be one of POST"),
        ({"path": "lamps/{lamp}/switch"}, "has no argument lamp"),
        ({"page": "lamps/{lamp}/switch"}, "has no argument lamp"),
        ({"arguments": SWITCH.arguments[:1]}, "`run` does not take its arguments: missing"),
        ({"arguments": SWITCH.arguments * 2}, "argument id is declared twice"),
        ({"of_list": lambda given: {}}, "of a row or of the list"),
    ],
)
def test_verbs(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(DeclarationError, match=told):
        replace(SWITCH, **changes)


@pytest.mark.parametrize(
    ("kind", "arguments", "told"),
    [
        (Field, ("Note", Text(), "A note."), "field 'Note': is not a lower-case name"),
        (Field, ("note", Text(), "A note"), "field note: its description 'A note' does not end"),
        (Field, ("note", Text(), ""), "field note: its description '' does not end"),
        (Filter, ("limit", Number(), "A bound."), "filter limit: the name has another meaning"),
        (Filter, ("a-b", Number(), "A bound."), "filter 'a-b': is not a lower-case name"),
        (Argument, ("note", Text(), "note"), "argument note: its description"),
        (Argument, ("next", Text(), "A page."), "argument next: the name has another meaning"),
        (Identity, ("note", Text(), "note", id, "Get", "note"), "identity note: its description"),
    ],
)
def test_parts(kind: Any, arguments: tuple[Any, ...], told: str) -> None:
    with pytest.raises(DeclarationError, match=told):
        kind(*arguments)


def test_units_and_states() -> None:
    with pytest.raises(DeclarationError, match="note: only numbers have a unit"):
        Field("note", Text(), "A note.", unit=Unit.BYTES)
    with pytest.raises(DeclarationError, match="note: a state needs `show`"):
        replace(NOTE, look=Look.STATE)


def test_two_resources_of_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MODULES", registry.MODULES * 2)
    with pytest.raises(DeclarationError, match="resource sessions: is declared twice"):
        registry.resources.__wrapped__()


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Text(3), "abc", "abc"),
        (Number(-5, 5), "-5", -5),
        (Flag(), "false", False),
        (Choice(("a", "b")), "b", "b"),
        (Moment(), "2026-01-31T13:00:00+01:00", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        (Texts(2), " a\n\nb ", ["a", "b"]),
        (Pairs(2), "a=1\nb=", {"a": "1", "b": ""}),
    ],
)
def test_texts_become_values(kind: Type, text: str, value: Any) -> None:
    assert kind.parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Text(3), "abcd"), (Text(3, 1), ""), (Text(), "a\0"), (Text(), "\ud800"),
        (Number(), "-1"), (Number(), "--1"), (Number(), ""), (Number(), "1.0"), (Number(), "٣"),
        (Number(), "9" * 5000), (Flag(), "True"), (Choice(("a",)), "b"), (Moment(), "noon"),
        (Moment(), "9999-12-31T23:59:59-14:00"), (Texts(1), "a\nb"), (Texts(1, 1), "ab"),
        (Pairs(1), "a=1\nb=2"), (Pairs(), "a"), (Pairs(), "=a"), (Pairs(), "a=1\na=2"),
        (Pairs(1, 2), "a=123"),
    ],
)  # fmt: skip
def test_other_texts_do_not(kind: Type, text: str) -> None:
    with pytest.raises(ValueError, match=r"^(must|has)"):
        kind.parse(text)
