"""The pages of the audit log: filters, one entry, the export and the verification."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import connection
from django.test import AsyncClient, Client
from django.utils import timezone

from relay.access.actor import Actor, Face
from relay.access.errors import Invalid
from relay.access.matrix import Role
from relay.audit import chain, services, triggers
from relay.audit.models import AuditEntry
from relay.dashboard.views import audit as pages
from relay.dashboard.views.audit import time_of
from tests.relay.dashboard.conftest import SignIn

pytestmark = pytest.mark.django_db

BASE = "/console/audit"
MANY = 5000
OLGA = Actor("olga", Face.REST, "192.0.2.7", None)


@pytest.fixture
def entries() -> None:
    """Make three changes of two twins."""
    for target, count in (("7", 1), ("7", 2), ("9", 3)):
        with services.change(OLGA, "limit.set", target=target) as change:
            change.before, change.after = {"count": 0, "note": "<b>"}, {"count": count, "note": ""}


def text(client: Client, path: str) -> str:
    answer = client.get(f"{BASE}/{path}")
    assert answer.status_code == 200, path
    return answer.content.decode()


@pytest.mark.usefixtures("entries")
def test_filters(sign_in: SignIn) -> None:
    client = sign_in(Role.VIEWER)
    listed = text(client, "?actor=olga")
    assert listed.count("limit.set</a>") == 3 and "count: 0 → 3" in listed and "<b>" not in listed
    assert text(client, "?target=9").count("limit.set</a>") == 1
    assert text(client, "?action=limit&since=1 h").count("limit.set</a>") == 3
    assert "Nothing matches" in text(client, "?action=ban")
    assert "Nothing matches" in text(client, "?until=2001-01-01")
    assert "Nothing matches" in text(client, "?face=cli")
    wrong = client.get(f"{BASE}/?since=yesterday")
    assert wrong.status_code == 422 and "2026-01-31 14:00" in wrong.content.decode()
    assert "Export" not in listed, "viewers look"


@pytest.mark.usefixtures("entries")
def test_one_entry(sign_in: SignIn) -> None:
    client = sign_in(Role.VIEWER)
    page = text(client, "2/")
    assert "≠ count" in page and "≠ note" in page and "&lt;b&gt;" in page
    assert f"{BASE}/1/" in page and f"{BASE}/3/" in page, "the entries beside it"
    assert client.get(f"{BASE}/99/").status_code == 404
    assert client.get(f"{BASE}/{1 << 70}/").status_code == 404


@pytest.mark.usefixtures("entries")
def test_the_export_is_an_entry_itself(sign_in: SignIn) -> None:
    owner = sign_in(Role.OWNER)
    assert f"{BASE}/export/csv/?target=7" in text(owner, "?target=7")
    answer = owner.get(f"{BASE}/export/csv/?target=7")
    lines = b"".join(answer.streaming_content).decode().splitlines()  # type: ignore[attr-defined]
    assert len(lines) == 3 and lines[0].startswith("number,at,actor")
    entry = AuditEntry.objects.latest("number")
    assert (entry.action, entry.after) == ("audit.export", {"entries": 2, "form": "csv"})
    assert owner.get(f"{BASE}/export/exe/").status_code == 404
    assert sign_in(Role.OPERATOR).get(f"{BASE}/export/csv/").status_code == 403


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("path", ["export/jsonl/", "export/csv/"])
async def test_an_export_leaves_while_it_is_made(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An export is streamed while it is made; the replaced `from_db` counts the rows read."""
    read = 0
    from_db = AuditEntry.from_db

    def counted(*arguments: Any) -> AuditEntry:
        nonlocal read
        read += 1
        return from_db(*arguments)

    def prepare() -> AsyncClient:
        AuditEntry.objects.bulk_create(
            AuditEntry(number=number, at=timezone.now(), actor="olga", target="x" * 100)
            for number in range(1, MANY + 1)
        )
        client = AsyncClient()
        client.force_login(User.objects.create_superuser("one"))
        return client

    client = await sync_to_async(prepare)()
    monkeypatch.setattr(AuditEntry, "from_db", counted)
    answer = await client.get(f"{BASE}/{path}")
    assert answer.status_code == 200
    parts = aiter(answer)  # type: ignore[arg-type]
    text = await anext(parts)
    assert 0 < read < MANY, "the first part leaves before the last row is read"
    text += b"".join([part async for part in parts])
    assert read >= MANY and text.count(b"x" * 100) == MANY


@pytest.mark.usefixtures("entries")
def test_the_check(sign_in: SignIn, monkeypatch: pytest.MonkeyPatch) -> None:
    client, head = sign_in(Role.VIEWER), services.head()

    def check(kept: str) -> str:
        return client.post(f"{BASE}/verify/", {"head": kept}).content.decode()

    whole = check("")
    assert "The log is intact" in whole and str(head) in whole
    assert "The log is intact" in check(str(head))
    assert "Not a head of the log" in check("no")
    assert "The log was changed" in check(str(chain.Head(head.number + 5, chain.NO_HASH)))
    triggers.remove(None, connection.schema_editor())
    AuditEntry.objects.filter(number=2).update(target="8")
    broken = check("")
    assert "The log was changed" in broken and f"{BASE}/2/" in broken
    monkeypatch.setattr(pages, "MAX_VERIFIED", 1)
    assert "rmb_audit verify" in text(client, "verify/")
    assert client.post(f"{BASE}/verify/").status_code == 409


def test_times_of_filters() -> None:
    assert time_of("since", "") is None
    assert time_of("since", "2026-01-31") == datetime(2026, 1, 31, tzinfo=UTC)
    assert time_of("since", "2026-01-31 14:00") == datetime(2026, 1, 31, 14, tzinfo=UTC)
    ago = time_of("since", "30 min")
    assert ago is not None and abs(timezone.now() - ago - timedelta(minutes=30)).seconds < 5
    for wrong in ("x", "2026-13-01", "2026-01-31 25:00", "99999999 d", "\0"):
        with pytest.raises(Invalid, match="2026-01-31"):
            time_of("since", wrong)
