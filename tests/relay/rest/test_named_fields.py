"""Errors name fields as clients send them."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from tests.relay.rest.test_changes import send
from tests.relay.rest.test_shell import refused

OVER = "2020-01-01T00:00:00Z"

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("method", "path", "body", "fields"),
    [
        ("PUT", "/limits/7", {"count": 5, "unknown": True}, {"size"}),
        ("PUT", "/limits/7", {"count": 5, "size": 0, "unknown": True}, {"size"}),
        ("PUT", "/limits/7", {"count": 0, "size": 5, "unknown": True}, {"count"}),
        ("PUT", "/limits/7", {"count": 1 << 63, "size": 5}, {"count"}),
        ("PUT", "/limits/default", {"count": 0, "size": 5}, {"count"}),
        ("POST", "/limits/7/ban", {"until": OVER, "unknown": True}, {"until"}),
        ("POST", "/limits/addresses/ban", {"network": "192.0.2.7/24"}, {"network"}),
        ("POST", "/limits/addresses/ban", {"network": "192.0.2.7", "until": OVER}, {"until"}),
        ("PUT", "/relays/no%20name", {"paused": True}, {"path.domain"}),
        ("GET", "/queues/one?key=x", None, {"query.key"}),
        ("POST", "/queues/purge", {"key": "x"}, {"key"}),
        ("POST", "/queues/move", {"source": "x", "target": "7"}, {"source"}),
        ("POST", "/queues/move", {"source": "7", "target": "x"}, {"target"}),
        ("POST", "/queues/move", {"source": "7", "target": "8"}, {"target"}),
        ("POST", "/dead-letters/x/requeue", None, {"path.entry"}),
        ("PUT", "/alarms/rules/worker_silent", {"threshold": -1}, {"threshold"}),
        (
            "POST",
            "/alarms/silences",
            {"rule": "x", "until": OVER},
            {"rule", "until"},
        ),
        ("PUT", "/twins/7", {"account": "x", "pk": "", "relays": []}, {"account"}),
        ("GET", "/audit/export?until=0.5", None, {"query.until"}),
        ("POST", "/traces", {"kind": "twin", "subject": "x"}, {"subject"}),
        ("GET", "/traces?order=x", None, {"query.order"}),
    ],
)
def test_a_refusal_names_what_was_sent(
    owner: Client, method: str, path: str, body: Any, fields: set[str]
) -> None:
    answer = send(owner, method, path, body)
    problem = refused(answer, 422)
    assert {each["field"] for each in problem.get("errors", [])} == fields
