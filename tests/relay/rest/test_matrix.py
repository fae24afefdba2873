"""Every operation with every kind of caller: the permission matrix alone decides."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from relay.access import matrix
from relay.access.matrix import Role
from tests.relay.rest.conftest import account, bearer, limit, token_of
from tests.relay.rest.test_openapi import OPERATIONS

PROBLEM = "application/problem+json"
ALLOWED = "allowed"
CALLERS = ("viewer", "operator", "owner", "nobody", "expired", "narrow", "demoted")

# The look-ups of peers, which need no token.
OPEN = {"list_twins", "get_twin"}
# Operations for every caller that has signed in.
ANY = {"get_me"}


@pytest.fixture(scope="module")
def callers(django_db_setup: None, django_db_blocker: Any) -> Iterator[dict[str, Client]]:
    """Yield one client of each kind, for all operations."""
    from django.db import transaction

    with django_db_blocker.unblock(), transaction.atomic():
        owner = account("owner", "owner")
        demoted = token_of(owner)
        # A token never has more permissions than its account, here a viewer's.
        viewer = account("viewer", "viewer")
        demoted = token_of(viewer, role="owner")
        found = {
            "viewer": bearer(token_of(owner, role="viewer")),
            "operator": bearer(token_of(owner, role="operator")),
            "owner": bearer(token_of(owner)),
            "nobody": Client(),
            "expired": bearer(token_of(owner, expires=timezone.now() - timedelta(days=1))),
            "narrow": bearer(token_of(owner, role="", permissions=["relay_sessions.view_session"])),
            "demoted": bearer(demoted),
        }
        yield found
        transaction.set_rollback(True)


def expected(operation: dict[str, Any], caller: str) -> int | str:
    """Return the expected status, 401 or 403, or `ALLOWED`."""
    name = operation["operationId"]
    if caller in ("nobody", "expired"):
        return ALLOWED if caller == "nobody" and name in OPEN else 401
    if name in ANY or name == "get_twin":
        return ALLOWED
    action = operation["x-action"]
    if caller == "narrow":
        may = matrix.permission_of(action) == "relay_sessions.view_session"
    else:
        role = Role.VIEWER if caller == "demoted" else Role(caller)
        may = role.includes(matrix.role_of(action))
    return ALLOWED if may else 403


@pytest.mark.parametrize("caller", CALLERS)
def test_the_matrix_decides(
    caller: str, callers: dict[str, Client], site_redis: Any, settings: Any, db: None
) -> None:
    """The matrix decides; ids and bodies are invalid, so that allowed callers change nothing."""
    limit(settings, requests_per_minute=0, failures_per_minute=0)
    wrong = {}
    for path, method, operation in OPERATIONS:
        address = re.sub(r"\{(\w+)\}", "0", path)
        content = next(iter(operation.get("requestBody", {}).get("content", {})), None)
        form = {"content_type": content, "data": b"\xff"} if content else {}
        answer = callers[caller].generic(method.upper(), address, **form)
        wanted = expected(operation, caller)
        name = operation["operationId"]
        if wanted == ALLOWED:
            if answer.status_code in (401, 403, 405, 500):
                wrong[name] = answer.status_code
        elif (answer.status_code, answer["Content-Type"]) != (wanted, PROBLEM):
            wrong[name] = answer.status_code
        elif "errors" in json.loads(answer.content):
            wrong[name] = "tells of fields"
    assert not wrong


def test_every_action_with_a_face_is_declared() -> None:
    """The matrix knows the action of every operation; its other actions have no REST operation."""
    served = {operation.get("x-action") for _, _, operation in OPERATIONS} - {None}
    known = {action.name for action in matrix.ACTIONS}
    assert served <= known
