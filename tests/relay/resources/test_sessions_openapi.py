"""The declared sessions have the same REST operations as the earlier hand-written ones.

`sessions_openapi.json` is the part of the earlier OpenAPI document that describes them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from relay.calls import operations as calls
from relay.rest.api import api

RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("sessions_openapi.json").read_text())
DOCUMENT = json.loads(api.document)
NOW = {"paths": DOCUMENT["paths"], "schemas": DOCUMENT["components"]["schemas"]}


def told(value: Any, key: str = "") -> Any:
    """Return what programs rely on: no descriptions, and no order that has no meaning."""
    if isinstance(value, dict):
        return {
            name: told(each, name)
            for name, each in value.items()
            if not (name == "description" and isinstance(each, str))
        }
    if not isinstance(value, list):
        return value
    items = [told(each) for each in value]
    if key in ("required", "enum"):
        return sorted(items)
    return sorted(items, key=lambda each: each["name"]) if key == "parameters" else items


def silent(recorded: Any, now: Any, path: str = "") -> list[str]:
    """Return the paths whose description is missing, or has left its parameter or field."""
    if not isinstance(recorded, dict) or not isinstance(now, dict):
        return []
    described = any("description" in each for each in (recorded, *recorded.get("anyOf", ())))
    lost = [path] if described and not now.get("description") else []
    for name, each in recorded.items():
        others = now.get(name)
        if name == "parameters" and isinstance(each, list):
            by_name = {other["name"]: other for other in now["parameters"]}
            for parameter in each:
                lost += silent(parameter, by_name[parameter["name"]], f"{path}/{parameter['name']}")
        else:
            lost += silent(each, others, f"{path}/{name}")
    return lost


@pytest.mark.parametrize(
    ("part", "name"), [(part, name) for part, named in RECORDED.items() for name in named]
)
def test_nothing_but_words_has_changed(part: str, name: str) -> None:
    recorded, now = RECORDED[part][name], NOW[part][name]
    assert told(now) == told(recorded)
    assert silent(recorded, now) == []
    for operation in recorded.values() if part == "paths" else ():
        (changed,) = (each for each in now.values())
        assert changed["summary"] == operation["summary"]
        assert changed["description"].split() == operation["description"].split()


def test_fields_have_descriptions() -> None:
    for name in ("LiveSessionOut", "SessionOut", "KickIn"):
        for field, schema in NOW["schemas"][name]["properties"].items():
            assert schema["description"].endswith("."), (name, field)


def test_calls_are_confirmed_because_the_declaration_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calls, "DANGEROUS", frozenset())
    found = calls.operations.__wrapped__()
    assert found["kick_session"].dangerous and found["kick_twin"].dangerous
    assert not found["kick_connection"].dangerous and not found["list_sessions"].dangerous
