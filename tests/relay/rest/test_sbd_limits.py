"""Limits and bans of SBD over REST."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from relay.limits.models import SbdLimit
from tests.relay.limits.test_sbd import KEY

pytestmark = pytest.mark.django_db

PATH = "/api/v1/limits/sbd"


def send(client: Client, path: str, body: dict[str, Any]) -> Any:
    return client.post(f"{PATH}{path}", body, content_type="application/json")


def test_bans_and_limits(operator: Client, viewer: Client) -> None:
    body = {"key": KEY, "reason": "flood", "until": "2100-01-01T00:00:00Z"}
    answer = send(operator, "/ban", body)
    assert answer.status_code == 200 and answer.json()["ban_reason"] == "flood"
    answer = send(operator, "/limit", {"subject": "192.0.2.0/24", "kbit_per_s": 800})
    assert (answer.json()["is_key"], answer.json()["kbit_per_s"]) == (False, 800)
    listed = viewer.get(PATH).json()["items"]
    assert [each["subject"] for each in listed] == ["192.0.2.0/24", KEY]
    for query in ({"banned": "true"}, {"text": "FLOOD"}, {"text": KEY[3:9]}):
        assert [each["subject"] for each in viewer.get(PATH, query).json()["items"]] == [KEY]
    assert send(operator, "/lift-ban", {"key": KEY}).json() == {"key": KEY}
    assert send(operator, "/lift-ban", {"key": KEY}).status_code == 404
    answer = send(operator, "/limit", {"subject": "192.0.2.0/24", "kbit_per_s": None})
    assert answer.status_code == 200 and answer.json()["kbit_per_s"] is None
    assert not SbdLimit.objects.exists()
    assert send(viewer, "/ban", body).status_code == 403


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/ban", {"key": "nonsense"}, "key"),
        ("/lift-ban", {"key": "nonsense"}, "key"),
        ("/ban", {"key": KEY, "until": "2020-01-01T00:00:00Z"}, "until"),
        ("/limit", {"subject": "nonsense", "kbit_per_s": 1}, "subject"),
        ("/limit", {"subject": KEY, "kbit_per_s": 8_000_001}, "kbit_per_s"),
        ("/limit", {"subject": KEY}, "kbit_per_s"),
    ],
)
def test_errors_name_the_field(
    operator: Client, path: str, body: dict[str, Any], field: str
) -> None:
    answer = send(operator, path, body)
    assert answer.status_code == 422
    assert [each["field"].rpartition(".")[2] for each in answer.json()["errors"]] == [field]
