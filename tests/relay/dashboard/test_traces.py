"""The trace pages: starting and stopping a trace, its messages, and one message."""

from __future__ import annotations

import json
import time

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from relay.access.actor import SYSTEM
from relay.access.matrix import Role
from relay.audit.models import AuditEntry
from relay.dashboard.views import traces
from relay.dashboard.views.traces import address_of
from relay.queues import keys
from relay.trace import services
from relay.trace.events import Event, Stage
from relay.trace.models import TraceOrder
from relay.trace.services import State
from tests.relay.dashboard.conftest import SignIn
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db

FORM = {
    "kind": "twin",
    "subject": "7",
    "sample": "1",
    "events_per_s": "500",
    "lifetime_s": "60",
}
UID = "a/b c?"
"""A uid that needs quoting in addresses: clients choose uids freely."""


def note(server: RedisServer, order: str, stage: Stage, **fields: object) -> Event:
    """Record an event as a process of the relay does."""
    values = {
        "at": time.time(), "by": "worker 0/x", "here": "a.example", "uid": UID, "source": "7",
        "destination": "9", "size_bytes": 10, "kind": "request", **fields,
    }  # fmt: skip
    event = Event(stage=stage, **values)  # type: ignore[arg-type]
    server.run("XADD", keys.trace(order), "*", "e", event.encode())
    server.run("HINCRBY", keys.trace_figures(order), "events", 1)
    return event


@pytest.fixture
def order(site_redis: RedisServer) -> str:
    """Return the id of a running trace."""
    return services.start("twin", "7", actor=SYSTEM).id


def test_starting_and_stopping(sign_in: SignIn, site_redis: RedisServer) -> None:
    client = sign_in(Role.OPERATOR)
    given = client.get("/console/traces/start/?kind=session&subject=7:phone").content.decode()
    assert 'value="7:phone"' in given and '<option value="session" selected>' in given
    wrong = client.post("/console/traces/start/", {**FORM, "subject": "x", "sample": "7"})
    assert "Ensure this value is less than or equal to 1" in wrong.content.decode()
    wrong = client.post("/console/traces/start/", {**FORM, "subject": "x"})
    assert set(wrong.context["form"].errors) == {"subject"} and not TraceOrder.objects.exists()
    wrong = client.post("/console/traces/start/", FORM)
    assert "does not know twin 7" in wrong.content.decode() and not TraceOrder.objects.exists()
    given = {**FORM, "unknown": "on"}
    begun = client.post("/console/traces/start/", given, follow=True)
    (row,) = TraceOrder.objects.all()
    assert begun.redirect_chain[0][0] == reverse("console:trace", args=[row.id])
    assert "The trace of 7 starts within a second" in begun.content.decode()
    listed = client.get("/console/traces/").content.decode()
    assert f"/console/traces/{row.id}/stop/" in listed and "running" in listed
    client.post(f"/console/traces/{row.id}/stop/")
    assert services.look([services.find(row.id)])[0].state is State.STOPPED
    assert [each.action for each in AuditEntry.objects.all()][:2] == ["trace.stop", "trace.start"]


def test_messages_of_a_trace(sign_in: SignIn, site_redis: RedisServer, order: str) -> None:
    client = sign_in(Role.VIEWER)
    assert "No messages yet" in client.get(f"/console/traces/{order}/").content.decode()
    note(site_redis, order, Stage.ACCEPTED)
    note(site_redis, order, Stage.COMMITTED)
    note(site_redis, order, Stage.REFUSED, uid="other", reason="limit_count")
    page = client.get(f"/console/traces/{order}/").content.decode()
    assert "in its queue" in page and "refused: limit_count" in page
    assert f'href="{address_of(UID)}"' in page
    assert "/stop/" not in page, "viewers look"
    answer = client.get(
        f"/console/traces/{order}/?uid=oth", headers={"HX-Target": "table-messages"}
    )
    fragment = answer.content.decode()
    assert "in its queue" not in fragment and "limit_count" in fragment and "<html" not in fragment
    facts = client.get(f"/console/traces/{order}/", headers={"HX-Target": "trace-facts"})
    assert 'id="trace-facts" data-refresh=' in facts.content.decode()
    services.stop(order, actor=SYSTEM)
    assert "data-refresh" not in client.get(f"/console/traces/{order}/").content.decode()


def test_pages_of_a_long_trace(
    sign_in: SignIn, site_redis: RedisServer, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pages reach everything that is kept, each message once."""
    monkeypatch.setattr(traces, "WINDOW", 40)
    for number in range(100):
        note(site_redis, order, Stage.ACCEPTED, uid=f"m{number}", at=1.7e9 + number)
    client, address, seen = sign_in(Role.VIEWER), f"/console/traces/{order}/?limit=25", []
    while address:
        answer = client.get(address)
        table = answer.context["table"]
        place = "on this page, more on the next" if table.next_href else "on the last page"
        assert f"<span>{len(table.rows)} rows {place}</span>" in answer.content.decode()
        seen += [row.values["uid"] for row in table.rows]
        address = table.next_href
    assert seen == [f"m{number}" for number in reversed(range(100))]
    assert client.get(f"/console/traces/{order}/?cursor=x.y").status_code == 422


@pytest.mark.parametrize("uid", [UID, "..", "плюс+", "a/", "%2e"])
def test_every_uid_has_an_address(
    sign_in: SignIn, site_redis: RedisServer, order: str, uid: str
) -> None:
    note(site_redis, order, Stage.ACCEPTED, uid=uid)
    client = sign_in(Role.VIEWER)
    answer = client.get("/console/traces/message/", {"uid": uid}, follow=True)
    assert answer.status_code == 200
    assert answer.context["waterfall"].uid == uid
    assert client.get(address_of(uid)).status_code == 200


def test_a_message_over_two_relays(sign_in: SignIn, site_redis: RedisServer, order: str) -> None:
    """The partner relay's events are added from the file that its page offers."""
    client, now = sign_in(Role.VIEWER), time.time()
    note(site_redis, order, Stage.ACCEPTED, at=now)
    note(site_redis, order, Stage.OUTBOX, at=now + 0.001)
    tried = {"by": "celery/1", "ms": 10.0}
    note(
        site_redis, order, Stage.TRIED, at=now + 0.002, relay="c.example", answer="refused", **tried
    )
    taken = {"relay": "b.example", "answer": "answered 202"}
    note(site_redis, order, Stage.TRIED, at=now + 0.02, **taken, **tried)
    address = address_of(UID)
    page = client.get(address).content.decode()
    assert "accepted by b.example" in page and "b.example accepted the message" in page
    assert page.count('<th scope="row"') == 4 and "c-step-bad" in page
    exported = client.get(f"{address}?export=json")
    assert exported.headers["Content-Disposition"].startswith("attachment")
    document = json.loads(exported.content)
    (leg,) = document["legs"]
    for step in leg["steps"]:
        step["event"] |= {"here": "b.example", "by": "worker 3/y", "relay": "a.example"}
    leg["steps"] = leg["steps"][:1]
    leg["steps"][0]["event"]["at"] += 0.025
    given = SimpleUploadedFile("there.json", json.dumps(document).encode())
    both = client.post(address, {"noted": given})
    assert both.context["several"] and not both.context["tried_elsewhere"]
    assert "worker 3" in both.content.decode()
    wrong = client.post(address, {"noted": SimpleUploadedFile("x", b"{nothing")})
    assert wrong.status_code == 200 and "is not what" in wrong.content.decode()


def test_nothing_was_kept(sign_in: SignIn, site_redis: RedisServer) -> None:
    for role, may in ((Role.VIEWER, False), (Role.OPERATOR, True)):
        answer = sign_in(role).get("/console/traces/message/none/")
        page = answer.content.decode()
        assert answer.status_code == 200 and "No events of this message" in page
        assert ("/console/traces/start/?kind=uid&amp;subject=none" in page) is may


def test_a_client_can_harm_no_page(sign_in: SignIn, site_redis: RedisServer, order: str) -> None:
    note(site_redis, order, Stage.ACCEPTED, uid="<script>", reason="<b>")
    client = sign_in(Role.VIEWER)
    for address in (f"/console/traces/{order}/", address_of("<script>")):
        assert "<script>" not in client.get(address).content.decode()


@pytest.mark.usefixtures("no_redis")
def test_without_redis(sign_in: SignIn) -> None:
    client: Client = sign_in(Role.OPERATOR)
    answer = client.post("/console/traces/start/", {**FORM, "unknown": "on"})
    assert answer.status_code == 200 and "Redis does not answer" in answer.content.decode()
    assert not TraceOrder.objects.exists()
