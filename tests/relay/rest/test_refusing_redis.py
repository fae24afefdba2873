"""While Redis refuses commands, every operation reports it, and no change is applied in part."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from relay.audit.models import AuditEntry
from relay.rest.api import api
from relay.trace.models import TraceOrder
from relay.twins.models import Twin
from tests.relay.conftest import use_redis
from tests.relay.rest.conftest import account, bearer, token_of
from tests.support.identities import twin as make_twin
from tests.support.refusing_redis import ERRORS, refusing_redis

pytestmark = pytest.mark.django_db

CHANGES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/traces", {"kind": "twin", "subject": "7"}),
    ("/sessions/kick", {"key": "7"}),
    ("/twins/7/kick", {}),
    ("/queues/purge", {"key": "7", "up_to": "1-1"}),
    ("/queues/move", {"source": "7", "target": "7:x"}),
    ("/workers/boot/drain", {}),
    ("/dead-letters/1-1/requeue", {}),
    ("/relays/b.example/requeue", {}),
)


@pytest.fixture(params=sorted(ERRORS))
def owner(request: pytest.FixtureRequest, db: None, settings: Any) -> Iterator[Client]:
    """Yield a client with the token of an owner, for a site whose Redis refuses commands."""
    with refusing_redis(request.param) as url:
        use_redis(settings, url)
        yield bearer(token_of(account("owner", "owner")))


def test_what_is_read_is_there_or_away(owner: Client) -> None:
    paths = json.loads(api.document)["paths"]
    statuses = set()
    for path, operations in paths.items():
        get = operations.get("get")
        if get is None or "{" in path or "text/event-stream" in str(get["responses"]):
            continue
        answer = owner.get(path)
        assert answer.status_code in (200, 422, 503), (path, answer.content)
        statuses.add(answer.status_code)
        if answer.status_code == 503:
            assert "does not answer" in answer.json()["detail"], path
    assert statuses >= {200, 503}


def test_a_change_is_refused_as_a_whole(owner: Client) -> None:
    Twin.objects.create(id=7, account=make_twin(7).account)
    for path, body in CHANGES:
        answer = owner.post(f"/api/v1{path}", json.dumps(body), content_type="application/json")
        assert answer.status_code == 503, (path, answer.content)
    assert not AuditEntry.objects.exists() and not TraceOrder.objects.exists()
