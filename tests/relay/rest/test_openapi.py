"""The OpenAPI document is complete and committed, and each operation states what it needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from ninja import Schema
from pydantic import BaseModel

from relay.access import matrix
from relay.rest.api import api
from relay.rest.lines import MEDIA_TYPES

FILE = Path(__file__).parents[3] / "docs" / "reference" / "openapi.json"

OPERATIONS: list[tuple[str, str, dict[str, Any]]] = [
    (path, method, operation)
    for path, item in json.loads(api.document)["paths"].items()
    for method, operation in item.items()
]
NAMES = [operation["operationId"] for _, _, operation in OPERATIONS]


def test_the_committed_file_is_what_is_served(client: Client) -> None:
    assert FILE.read_bytes() == api.document, "run `make docs`"
    answer = client.get("/api/v1/openapi.json")
    assert (answer.status_code, answer["Content-Type"]) == (200, "application/json")
    assert answer.json()["openapi"].startswith("3.1") and answer.content == api.document


def test_the_command_finds_a_file_that_is_behind(tmp_path: Path) -> None:
    file = tmp_path / "openapi.json"
    call_command("rmb_openapi", output=file)
    call_command("rmb_openapi", check=file)
    file.write_text("{}")
    with pytest.raises(CommandError, match="regenerate it"):
        call_command("rmb_openapi", check=file)


def test_names_are_unique() -> None:
    assert len(NAMES) == len(set(NAMES))


def test_no_schema_takes_the_name_of_another() -> None:
    """Schema names are unique: in the document, the last of two would replace the other."""
    classes: dict[str, set[Any]] = {}

    def walk(kind: Any) -> None:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            known = classes.setdefault(kind.__name__, set())
            if kind in known:
                return
            known.add(kind)
            for field in kind.model_fields.values():
                walk(field.annotation)
        for part in get_args(kind):
            walk(part)

    views = (view for _, router in api._routers for view in router.path_operations.values())
    for operation in (each for view in views for each in view.operations):
        for model in operation.response_models.values():
            walk(model)
    del classes["NinjaResponseSchema"]
    assert classes and [name for name, kinds in classes.items() if len(kinds) > 1] == []


@pytest.mark.parametrize(("path", "method", "operation"), OPERATIONS, ids=NAMES)
def test_an_operation_says_what_it_needs(path: str, method: str, operation: dict[str, Any]) -> None:
    assert operation["tags"] and operation["summary"] and operation["description"]
    if operation["operationId"] != "get_me":
        action = operation["x-action"]
        assert operation["x-permission"] == matrix.permission_of(action)
        assert operation["x-role"] == matrix.role_of(action)
        # Read-only roles change nothing.
        safe = method == "get" or operation["operationId"] in ("verify_audit", "test_receiver")
        assert safe or operation["x-role"] != "viewer"
    answers = set(operation["responses"])
    assert {"401", "403", "422", "429", "503"} <= answers
    assert "404" in answers or "{" not in path
    assert method != "post" or "409" in answers
    assert "requestBody" not in operation or {"400", "413", "415"} <= answers
    for parameter in operation["parameters"]:
        assert parameter["in"] != "path" or parameter["name"] in path
    assert sum(each["in"] == "path" for each in operation["parameters"]) == path.count("{")


@pytest.mark.parametrize("operation", [each for _, _, each in OPERATIONS], ids=NAMES)
def test_an_export_names_the_media_type_of_each_form(operation: dict[str, Any]) -> None:
    forms = next((each["schema"]["enum"] for each in operation["parameters"]
                  if each["name"] == "form"), [])  # fmt: skip
    if forms:
        content = set(operation["responses"]["200"]["content"])
        assert content == {MEDIA_TYPES[form] for form in forms}


def test_all_references_lead_somewhere() -> None:
    document = json.loads(api.document)
    schemas = set(document["components"]["schemas"])
    used = set()

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            if isinstance(reference := value.get("$ref"), str):
                *_, kind, name = reference.split("/")
                assert name in document["components"][kind], reference
                used.add(name)
            for each in value.values():
                walk(each)
        elif isinstance(value, list):
            for each in value:
                walk(each)

    walk(document)
    assert schemas <= used


def test_no_two_schemas_have_one_name() -> None:
    """Names of schemas are unique, as ninja would confuse two with the same name."""
    seen: dict[str, str] = {}
    waiting = Schema.__subclasses__()
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.__module__.startswith("relay."):
            assert seen.setdefault(kind.__qualname__, kind.__module__) == kind.__module__
