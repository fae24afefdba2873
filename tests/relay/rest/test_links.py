"""The links of the OpenAPI document work: objects are made, read, changed and deleted with them."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from relay.rest.api import api
from tests.support.identities import twin
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)

DOCUMENT = json.loads(api.document)
OPERATIONS = {
    operation["operationId"]: (method, path, operation)
    for path, item in DOCUMENT["paths"].items()
    for method, operation in item.items()
}
ACCOUNT = f"0x{twin(7).account.hex()}"
TOMORROW = (timezone.now() + timedelta(days=1)).isoformat()

# Objects to make, by operation, at their own address if they have one.
MADE: dict[str, dict[str, Any]] = {
    "create_account": {"username": "vera"},
    "create_group": {"name": "night"},
    "create_token": {"label": "ci", "role": "viewer"},
    "add_receiver": {"name": "pager", "kind": "webhook", "target": "https://127.0.0.1:1/"},
    "add_silence": {"rule": "disk", "subject": "*", "until": TOMORROW},
    "start_trace": {"kind": "twin", "subject": "7"},
    "put_twin": {"account": ACCOUNT},
    "put_limit": {"count": 5, "size": 500, "unknown": True},
    "put_relay": {"note": "friends"},
}
BODIES: dict[str, dict[str, Any]] = {
    **MADE,
    "change_account": {"first_name": "Vera"},
    "set_account_password": {"password": "a password for tests"},
    "change_group": {"permissions": ["relay_sessions.kick_session"]},
    "change_receiver": {"enabled": False},
    "patch_twin": {"relays": ["a.example"]},
    "patch_relay": {"trusted": True},
    "ban_twin": {"reason": "noise", "unknown": True},
    "kick_twin": {"reason": "noise"},
}
ADDRESSES = {"twin": "7", "domain": "b.example"}
LAST = ("forget", "delete", "remove", "end", "stop", "revoke")
"""Prefixes of the operations that end something; they are called last."""
REFUSED = {"kick_twin": 404, "purge_twin": 409, "requeue_dead_letters": 404}
"""Statuses of operations that cannot succeed here.

The twin is not connected, it may still fetch its messages, and no message for the relay died."""
ENDLESS = "stream_trace_events"

UNLINKED = {
    *("get_worker", "drain_worker", "stream_worker_log"),  # no operation makes these
    *("retry_task", "forget_task"),
    "put_alarm_rule",  # rules always exist
}


def call(client: Client, name: str, values: dict[str, Any]) -> Any:
    """Call an operation and return its answer; `values` are the parameters of its address."""
    method, path, operation = OPERATIONS[name]
    address = re.sub(r"\{(\w+)\}", lambda found: str(values[found[1]]), path)
    form = {}
    if "requestBody" in operation:
        form = {"content_type": "application/json", "data": json.dumps(BODIES.get(name, {}))}
    answer = client.generic(method.upper(), address, **form)
    wanted = {REFUSED[name]} if name in REFUSED else {200, 201, 204}
    assert answer.status_code in wanted, (name, answer.content)
    return answer


def links(name: str, status: str, answer: Any) -> dict[str, dict[str, Any]]:
    """Return the operations that an answer links to, with the parameters of their addresses."""
    found = {}
    for target, link in OPERATIONS[name][2]["responses"][status].get("links", {}).items():
        values = {}
        for parameter, expression in link["parameters"].items():
            if expression.startswith("$request.path."):
                values[parameter] = ADDRESSES[expression.rpartition(".")[2]]
                continue
            value = answer.json()
            for step in expression.removeprefix("$response.body#/").split("/"):
                value = value[int(step) if isinstance(value, list) else step]
            values[parameter] = value
        assert link["operationId"] == target
        found[target] = values
    return found


@pytest.mark.parametrize("maker", MADE)
def test_from_its_making_to_its_end(
    maker: str, owner: Client, site_redis: RedisServer, settings: Any
) -> None:
    made = call(owner, maker, ADDRESSES)
    status = str(made.status_code)
    steps = links(maker, status, made)
    order = sorted(
        (name for name in steps if name != ENDLESS),
        key=lambda name: (
            name.startswith(LAST),
            OPERATIONS[name][0] == "delete",
            OPERATIONS[name][0] != "get",
        ),
    )
    assert any(name.startswith(LAST) for name in order), "each can be ended"
    for name in order:
        call(owner, name, steps[name])
    if OPERATIONS[order[-1]][0] == "delete":
        for name in order:
            method, path, _ = OPERATIONS[name]
            if method == "get" and path.endswith("}"):
                values = steps[name]
                address = re.sub(r"\{(\w+)\}", lambda found, v=values: str(v[found[1]]), path)
                assert owner.get(address).status_code == 404, f"{name} after {order[-1]}"


def test_lists_lead_to_what_they_list(owner: Client, site_redis: RedisServer) -> None:
    for maker in MADE:
        call(owner, maker, ADDRESSES)
    followed = set()
    for name, (method, path, operation) in OPERATIONS.items():
        if method != "get" or "{" in path or "links" not in operation["responses"]["200"]:
            continue
        answer = call(owner, name, {})
        if not answer.json()["items"]:
            continue
        for target, values in links(name, "200", answer).items():
            if OPERATIONS[target][0] == "get" and target != ENDLESS:
                call(owner, target, values)
                followed.add(target)
    assert followed >= {
        "get_account", "get_group", "get_token", "get_receiver", "get_trace", "get_twin",
        "get_limit", "get_relay", "get_relay_live", "get_setting", "get_audit_entry",
    }  # fmt: skip


def test_every_single_thing_is_linked() -> None:
    targets = {
        name
        for _, _, operation in OPERATIONS.values()
        for answer in operation["responses"].values()
        for name in answer.get("links", {})
    }
    assert {
        name for name, (_, path, _) in OPERATIONS.items() if "{" in path and name not in targets
    } <= UNLINKED
