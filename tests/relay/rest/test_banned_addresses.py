"""Bans of addresses over REST."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from relay.limits.models import AddressBan

pytestmark = pytest.mark.django_db

PATH = "/api/v1/limits/addresses"


def send(client: Client, path: str, body: dict[str, Any]) -> Any:
    return client.post(f"{PATH}{path}", body, content_type="application/json")


def test_bans(operator: Client, viewer: Client) -> None:
    body = {"network": "192.0.2.0/24", "reason": "noise", "until": "2100-01-01T00:00:00Z"}
    answer = send(operator, "/ban", body)
    assert answer.status_code == 200 and answer.json()["network"] == "192.0.2.0/24"
    send(operator, "/ban", {"network": "::ffff:198.51.100.7"})
    listed = viewer.get(PATH, {"order": "network"}).json()["items"]
    assert [(each["network"], each["reason"]) for each in listed] == [
        ("192.0.2.0/24", "noise"), ("198.51.100.7", ""),
    ]  # fmt: skip
    around = viewer.get(PATH, {"text": "192.0.2.9"}).json()["items"]
    assert [each["network"] for each in around] == ["192.0.2.0/24"]
    lifted = send(operator, "/lift-ban", {"network": "192.0.2.0/24"})
    assert lifted.json() == {"network": "192.0.2.0/24"}
    assert send(operator, "/lift-ban", {"network": "192.0.2.0/24"}).status_code == 404
    assert send(viewer, "/ban", body).status_code == 403


def test_one_s_own_address_needs_force(operator: Client) -> None:
    answer = send(operator, "/ban", {"network": "127.0.0.1"})
    assert answer.status_code == 422 and "force" in answer.json()["errors"][0]["message"]
    assert not AddressBan.objects.exists()
    assert send(operator, "/ban", {"network": "127.0.0.1", "force": True}).status_code == 200
