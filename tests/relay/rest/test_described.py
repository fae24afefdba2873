"""The OpenAPI document in words: operations, fields, and examples to paste into a shell."""

from __future__ import annotations

import json
import shlex
from typing import Any
from urllib.parse import urlsplit

import pytest

from relay.rest import described
from relay.rest.api import api

DOCUMENT = json.loads(api.document)
OPERATIONS = described.operations(DOCUMENT)
SITE = "https://relay.example.com"


def example(name: str) -> list[str]:
    return shlex.split(described.example(DOCUMENT, OPERATIONS[name], SITE).replace("\\\n", ""))


def fields(name: str, told: dict[str, Any]) -> dict[str, described.Field]:
    found = {schema: rows for schema, _, rows in described.schemas(DOCUMENT, told)}
    return {each.name: each for each in found[name]}


def test_all_operations_are_there() -> None:
    told = [each["operationId"] for item in DOCUMENT["paths"].values() for each in item.values()]
    assert list(OPERATIONS) == told and len(set(told)) == len(told) > 100


@pytest.mark.parametrize("name", OPERATIONS)
def test_examples_are_commands(name: str) -> None:
    operation, words = OPERATIONS[name], example(name)
    url = next(each for each in words if each.startswith(SITE))
    assert not {"{", "}"} & set(url)
    assert len(urlsplit(url).path.split("/")) == len(operation.path.split("/"))
    assert ("-X" in words) == (operation.method != "GET")
    for each in operation.told["parameters"]:
        if each["required"] and each["in"] == "query":
            assert f"{each['name']}=" in url
    if "application/json" in operation.told.get("requestBody", {}).get("content", {}):
        json.loads(words[words.index("--data-binary") + 1])


def test_an_example_with_a_body() -> None:
    words = example("ban_twin")
    assert words[:4] == ["curl", "-X", "POST", f"{SITE}/api/v1/limits/1/ban"]
    assert "Authorization: Bearer $RMB_TOKEN" in words
    assert "Content-Type: application/json" in words


def test_what_everybody_may_look_up_needs_no_role() -> None:
    assert OPERATIONS["get_twin"].role == ""
    assert OPERATIONS["delete_twin"].role == "owner"
    assert OPERATIONS["delete_twin"].permission == "relay_twins.delete_twin"


def test_fields_have_their_bounds_in_words() -> None:
    (limit,) = (
        each for each in described.parameters(OPERATIONS["list_twins"].told) if each.name == "limit"
    )
    assert limit.kind == "integer, at least 1, at most 500, default 50"
    assert (limit.place, limit.required) == ("query", False)


def test_objects_within_objects_are_told_once() -> None:
    told = OPERATIONS["list_alarms"].told
    names = [name for name, _, _ in described.schemas(DOCUMENT, told)]
    assert names[:2] == ["Page_AlarmOut_", "Problem"] and "AlarmOut" in names
    assert len(set(names)) == len(names)
    assert fields("Page_AlarmOut_", told)["items"].kind == "list of AlarmOut"


def test_answers_name_what_they_hold() -> None:
    found = {
        status: (meaning, content)
        for status, meaning, content in described.answers(DOCUMENT, OPERATIONS["get_twin"].told)
    }
    assert found["200"][1].startswith("application/json: ")
    assert found["404"] == ("The resource does not exist.", "application/problem+json: Problem")


def test_bounds_are_said_as_openapi_does() -> None:
    told = OPERATIONS["put_default_limit"].told
    kind = fields("DefaultIn", told)["count"].kind
    assert kind == "integer, at least 0, at most 9223372036854775807"
    assert not any(f'"{each}":' in json.dumps(DOCUMENT) for each in ("ge", "le", "gt", "lt"))
