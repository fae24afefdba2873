"""Traces through the services, REST and the command, with a real Redis."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from relay.access.actor import SYSTEM, Actor, Face
from relay.access.errors import Away, Conflict, Denied, Invalid, NotFound
from relay.audit.models import AuditEntry
from relay.ops.redis_client import client
from relay.queues import keys, purging
from relay.trace import services
from relay.trace.bounds import MAX_ORDERS
from relay.trace.events import Event, Stage
from relay.trace.models import TraceOrder
from relay.trace.orders import Kind, decode
from relay.trace.services import State
from relay.twins.models import Twin
from tests.relay.queues.mail import fill
from tests.relay.rest.conftest import operator as operator
from tests.relay.rest.conftest import viewer as rest_viewer
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db
NOBODY = Actor("nobody", Face.REST, "", frozenset())

__all__ = ["operator", "rest_viewer"]


def control(server: RedisServer) -> dict[str, str]:
    found = server.run("HGETALL", keys.CONTROL)
    return {name.decode(): value.decode() for name, value in found.items()}


def note(server: RedisServer, order: str, *stages: Stage, uid: str = "u", **more: Any) -> None:
    """Record events as a worker does."""
    for number, stage in enumerate(stages):
        at = time.time() + number / 1000
        event = Event(at, "worker 0/x", "a.example", stage, uid, "7", "8", 99, "request", **more)
        server.run("XADD", keys.trace(order), "*", "e", event.encode())
    server.run("HINCRBY", keys.trace_figures(order), "events", len(stages))


def test_start_and_stop(site_redis: RedisServer) -> None:
    row = services.start("session", "7:phone", actor=SYSTEM, lifetime_s=60, sample=0.5)
    fields = control(site_redis)
    order = decode(row.id, fields[f"trace:{row.id}"])
    assert (order.kind, order.subject, order.sample) == (Kind.SESSION, "7:phone", 0.5)
    assert abs(order.until - time.time() - 60) < 5
    assert fields["version"] == "1"
    (trace,) = services.look([row])
    assert (trace.state, trace.events) == (State.RUNNING, 0)
    services.stop(row.id, actor=SYSTEM)
    services.stop(row.id, actor=SYSTEM)
    assert control(site_redis) == {"version": "2"}
    assert services.look([services.find(row.id)])[0].state is State.STOPPED
    entries = AuditEntry.objects.order_by("number").values_list("action", "target")
    assert list(entries) == [
        ("trace.start", "session 7:phone"),
        ("trace.stop", "session 7:phone"),
    ]


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"kind": "other"}, "kind"),
        ({"subject": ""}, "subject"),
        ({"subject": "x"}, "subject"),
        ({"subject": "0"}, "subject"),
        ({"subject": "7:phone"}, "subject"),
        ({"subject": "9" * 30}, "subject"),
        ({"kind": "uid", "subject": "a\nb"}, "subject"),
        ({"kind": "uid", "subject": "a" * 257}, "subject"),
        ({"sample": 0.0}, "sample"),
        ({"sample": float("nan")}, "sample"),
        ({"events_per_s": 5000}, "events_per_s"),
        ({"lifetime_s": 3601}, "lifetime_s"),
        ({"lifetime_s": 1}, "lifetime_s"),
    ],
)
def test_values_out_of_bounds(site_redis: RedisServer, values: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as told:
        services.start(**{"kind": "twin", "subject": "7", "actor": SYSTEM, **values})
    assert field in told.value.fields
    assert not TraceOrder.objects.exists() and not AuditEntry.objects.exists()
    assert control(site_redis) == {}


def test_who_may(site_redis: RedisServer) -> None:
    with pytest.raises(Denied):
        services.start("twin", "7", actor=NOBODY)
    row = services.start("twin", "7", actor=SYSTEM)
    with pytest.raises(Denied):
        services.stop(row.id, actor=NOBODY)
    with pytest.raises(NotFound):
        services.stop("nothing", actor=SYSTEM)


def test_only_so_many_at_a_time(site_redis: RedisServer) -> None:
    for number in range(MAX_ORDERS):
        row = services.start("twin", str(number + 1), actor=SYSTEM)
    with pytest.raises(Conflict):
        services.start("twin", "99", actor=SYSTEM)
    services.stop(row.id, actor=SYSTEM)
    services.start("twin", "99", actor=SYSTEM)


def test_without_redis_there_is_no_trace(no_redis: None) -> None:
    with pytest.raises(Away):
        services.start("twin", "7", actor=SYSTEM)
    assert not TraceOrder.objects.exists() and not AuditEntry.objects.exists()


def test_an_order_that_was_taken_back_and_one_that_ended(site_redis: RedisServer) -> None:
    gone = services.start("twin", "7", actor=SYSTEM)
    site_redis.run("HDEL", keys.CONTROL, f"trace:{gone.id}")
    over = services.start("twin", "8", actor=SYSTEM)
    TraceOrder.objects.filter(pk=over.pk).update(until=timezone.now())
    states = [trace.state for trace in services.look(TraceOrder.objects.order_by("started"))]
    assert states == [State.OFF, State.ENDED]
    assert f"trace:{over.id}" in control(site_redis)
    services.tidy()
    assert not any(name.startswith("trace:") for name in control(site_redis))


def test_events_and_timelines(site_redis: RedisServer) -> None:
    one = services.start("twin", "7", actor=SYSTEM)
    two = services.start("uid", "u", actor=SYSTEM)
    note(site_redis, one.id, Stage.ACCEPTED, Stage.COMMITTED)
    note(site_redis, one.id, Stage.ACCEPTED, uid="another")
    note(site_redis, two.id, Stage.DELIVERED, Stage.ACKNOWLEDGED, Stage.REMOVED)
    site_redis.run("XADD", keys.trace(one.id), "*", "e", "of a newer release")
    first = services.events(one.id, limit=2)
    assert [noted.event.stage for noted in first] == [Stage.ACCEPTED, Stage.COMMITTED]
    (rest,) = services.events(one.id, first[-1].cursor)
    assert (rest.event.uid, rest.event.order) == ("another", one.id)
    assert services.newer(one.id, rest.cursor, 0.01) == []
    (leg,) = services.timeline("u").legs
    assert len(leg.steps) == 5 and leg.outcome == "delivered"
    (leg,) = services.timeline("u", one.id).legs
    assert leg.outcome == "in its queue"
    with pytest.raises(NotFound):
        services.timeline("unknown")
    with pytest.raises(Invalid):
        services.events(one.id, "x")


def test_following_ends_with_the_trace(site_redis: RedisServer) -> None:
    row = services.start("twin", "7", actor=SYSTEM)
    note(site_redis, row.id, Stage.ACCEPTED)
    following = services.follow(row.id)
    assert [noted.event.stage for noted in next(following)] == [Stage.ACCEPTED]
    services.stop(row.id, actor=SYSTEM)
    note(site_redis, row.id, Stage.REMOVED)
    assert [noted.event.stage for page in following for noted in page] == [Stage.REMOVED]


# --- REST ---------------------------------------------------------------------------------------


def test_rest(site_redis: RedisServer, operator: Client, rest_viewer: Client) -> None:
    body = {"kind": "twin", "subject": "7", "lifetime_s": 60}

    def post(client: Client, path: str, content: Any = None) -> Any:
        return client.post(f"/api/v1/{path}", content, content_type="application/json")

    assert post(rest_viewer, "traces", body).status_code == 403
    answer = post(operator, "traces", body)
    assert answer.status_code == 201
    trace = answer.json()
    assert (trace["state"], trace["subject"], trace["started_by"][:9]) == (
        *("running", "7"),
        "operator/",
    )
    refused = post(operator, "traces", {**body, "subject": "x"})
    assert refused.status_code == 422
    assert [each["field"] for each in refused.json()["errors"]] == ["subject"]
    note(site_redis, trace["id"], Stage.ACCEPTED, Stage.COMMITTED)
    listed = rest_viewer.get("/api/v1/traces").json()
    assert [each["events"] for each in listed["items"]] == [2]
    page = rest_viewer.get(f"/api/v1/traces/{trace['id']}/events?limit=1").json()
    assert page["items"][0]["stage"] == "accepted" and page["next"]
    rest = rest_viewer.get(f"/api/v1/traces/{trace['id']}/events?cursor={page['next']}").json()
    assert [each["stage"] for each in rest["items"]] == ["committed"] and rest["next"] is None
    made = rest_viewer.get("/api/v1/timelines?uid=u").json()
    assert made["legs"][0]["outcome"] == "in its queue"
    assert rest_viewer.get("/api/v1/timelines?uid=x").status_code == 404
    assert rest_viewer.get("/api/v1/traces/nothing/events").status_code == 404
    assert post(rest_viewer, f"traces/{trace['id']}/stop").status_code == 403
    assert post(operator, f"traces/{trace['id']}/stop").json()["state"] == "stopped"
    assert rest_viewer.get(f"/api/v1/traces/{trace['id']}").json()["stopped_by"]


# --- the command --------------------------------------------------------------------------------


OTHERS = ("--unknown", "--json")


def command(*words: str) -> str:
    out = io.StringIO()
    call_command("rmb_trace", *words, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def test_the_command(site_redis: RedisServer, tmp_path: Path) -> None:
    started = json.loads(command("start", "twin", "7", "--for", "1m", "--sample", "0.5", *OTHERS))
    assert (started["kind"], started["sample"], started["state"]) == ("twin", 0.5, "running")
    note(site_redis, started["id"], Stage.ACCEPTED, Stage.OUTBOX)
    note(site_redis, started["id"], Stage.TRIED, relay="b", answer="answered 202", ms=900.0)
    shown = command("show", "u")
    assert "accepted by b" in shown and "a.example" not in shown
    exported = json.loads(command("show", "u", "--json"))
    for step in exported["legs"][0]["steps"]:
        step["event"]["here"] = "z.example"
    other = tmp_path / "other.json"
    other.write_text(json.dumps(exported))
    assert "z.example" in command("show", "u", "--with", str(other))
    lines = tmp_path / "lines.json"
    lines.write_text("\n".join(json.dumps(s["event"]) for s in exported["legs"][0]["steps"]))
    assert "z.example" in command("show", "u", "--with", str(lines))
    assert "running  until" in command("list")
    assert json.loads(command("list", "--json"))[0]["events"] == 3
    other_trace = json.loads(command("start", "twin", "8", *OTHERS))["id"]
    assert "has ended" in command("stop", other_trace)
    assert json.loads(command("stop", started["id"], "--json"))["state"] == "stopped"
    followed = [
        json.loads(line) for line in command("follow", started["id"], "--json").split("\n")[:-1]
    ]
    assert [line["stage"] for line in followed] == ["accepted", "outbox", "tried"]


@pytest.mark.parametrize(
    ("kind", "subject", "right"),
    [
        ("uid", "nonsense", "9f86d081-884c-4d65-a2fe-aa0c55ad015a"),
        ("uid", "9f86d081-884c-4d65-a2fe-aa0c55ad015", "9F86D081884C4D65A2FEAA0C55AD015A"),
        ("twin", "77", "7"),
        ("session", "77:phone", "7:phone"),
    ],
)
def test_a_misspelt_subject_is_refused(
    site_redis: RedisServer, kind: str, subject: str, right: str
) -> None:
    Twin.objects.create(id=7, account=bytes(32))
    with pytest.raises(CommandError, match="--unknown"):
        command("start", kind, subject)
    assert not TraceOrder.objects.exists() and control(site_redis) == {}
    assert right in command("start", kind, right)
    assert subject in command("start", kind, subject, "--unknown")


@pytest.mark.parametrize(
    "words",
    [
        ("start", "twin", "x"),
        ("start", "twin", "7", "--for", "2h"),
        ("start", "twin", "7", "--for", "soon"),
        ("start", "other", "7"),
        ("stop", "nothing"),
        ("follow", "nothing"),
        ("show", "nothing"),
        ("show", "u", "--with", "/nowhere"),
        ("show", "u", "--with", __file__),
    ],
)
def test_a_refused_command_says_why_in_a_line(site_redis: RedisServer, words: Any) -> None:
    with pytest.raises(CommandError) as told:
        command(*words)
    assert "\n" not in str(told.value)


def test_text_of_a_client_does_no_harm(site_redis: RedisServer) -> None:
    row = services.start("twin", "7", actor=SYSTEM)
    note(site_redis, row.id, Stage.ACCEPTED, uid="\x1b[2J")
    services.stop(row.id, actor=SYSTEM)
    assert "\x1b" not in command("follow", row.id) + command("show", "\x1b[2J")


@pytest.mark.django_db(transaction=True)
def test_a_trace_hears_of_what_an_operator_deletes(site_redis: RedisServer) -> None:
    fill(site_redis, "8:x", 3)
    fill(site_redis, "8:y", 2)
    of_uid = services.start("uid", "m1", actor=SYSTEM)
    of_sender = services.start("session", "3:a", actor=SYSTEM)
    of_another = services.start("twin", "33", actor=SYSTEM)
    sampled = services.start("twin", "3", sample=0.0001, actor=SYSTEM)
    entries = site_redis.run("XRANGE", "stream:8:x", "-", "+")
    assert purging.purge(client(), "8:x", entries[1][0].decode()) == 2
    (event,) = [noted.event for noted in services.events(of_uid.id)]
    assert (event.stage, event.uid, event.reason) == (Stage.PURGED, "m1", "purged")
    assert (event.source, event.destination, event.kind) == ("3:a", "7", "request")
    assert (event.entry, event.size_bytes > 0) == (entries[1][0].decode(), True)
    assert len(services.events(of_sender.id)) == 2
    assert services.events(of_another.id) == services.events(sampled.id) == []
    assert services.look([of_sender])[0].events == 2
    services.stop(of_uid.id, actor=SYSTEM)
    assert purging.purge_queues(client(), purging.waiting(client(), 8)) == 3
    assert len(services.events(of_uid.id)) == 1 and len(services.events(of_sender.id)) == 5
    assert "deleted by an operator" in services.timeline("m1").legs[0].outcome
