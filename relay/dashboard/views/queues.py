"""Queues: what waits for whom, the headers of it, and deleting it."""

from __future__ import annotations

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse

from relay.access.actor import Actor
from relay.dashboard.acts import Question, act
from relay.dashboard.figures import Kind, duration
from relay.dashboard.pages import may, page
from relay.dashboard.states import State, Tone
from relay.dashboard.tables import Action, Ask, Cell, Column, Filter, Row, Table, respond
from relay.ops.paging import Page
from relay.queues import services
from relay.queues.walking import Queue

COLUMNS = (
    Column("key", "Queue", Cell.CODE, order="twin", hint="twin:session id"),
    Column("state", "Session", Cell.STATE),
    Column("messages", "Messages", Kind.NUMBER, order="messages"),
    Column("size_bytes", "Memory", Kind.BYTES, order="size", hint="of Redis, estimated"),
    Column("oldest_at", "Oldest", Cell.MOMENT, order="oldest"),
    Column("newest_at", "Newest", Cell.MOMENT, order="newest"),
)
FILTERS = (
    Filter("twin", "Twin", hint="a twin id"),
    Filter("connected", "Session", (("yes", "connected"), ("no", "away"))),
)


@page("queue.view")
def queues(request: HttpRequest) -> HttpResponseBase:
    """All queues that hold messages, the fullest first."""
    purgeable = may(request, "queue.purge")

    def fetch(ask: Ask) -> Page[Row]:
        found = services.list_queues(
            twin=int(ask.filters["twin"]) if ask.filters["twin"].isdecimal() else None,
            connected={"yes": True, "no": False}.get(ask.filters["connected"]),
            order=ask.order,
            limit=ask.limit,
            cursor=ask.cursor,
        )
        return Page([_row(queue, purgeable) for queue in found.items], found.next)

    table = Table(
        request, "queues", COLUMNS, fetch, order="-messages", filters=FILTERS,
        empty="No mail waits: every message found its session.", live=True,
    )  # fmt: skip
    return respond(request, table, "relay_dashboard/queues.html", "Queues")


@page("queue.purge")
def purge(request: HttpRequest, key: str) -> HttpResponseBase:
    """Delete what waits now; what comes after the question is asked stays."""
    queue = services.get_queue(key)
    up_to = request.POST.get("up_to") or request.GET.get("up_to") or queue.newest

    def perform(actor: Actor) -> str:
        count = services.purge(key, actor=actor, up_to=up_to)
        return f"{count} messages for {key} are deleted"

    question = Question(
        f"Purge the queue of {key}",
        "Purge",
        "Its senders are not told.",
        loses=(f"{queue.messages:,} messages, the oldest of {duration(_age_s(queue))} ago",),
        danger=True,
    )
    return act(request, question, perform, reverse("console:queues"))


def _row(queue: Queue, purgeable: bool) -> Row:
    state = State("connected", Tone.GOOD) if queue.connected else State("away", Tone.IDLE)
    values = {
        "key": queue.key,
        "state": state,
        "messages": queue.messages,
        "size_bytes": queue.size_bytes,
        "oldest_at": queue.oldest_at,
        "newest_at": queue.newest_at,
    }
    actions = []
    if purgeable and not queue.connected:
        url = reverse("console:queue_purge", args=[queue.key])
        actions.append(Action("Purge", f"{url}?up_to={queue.newest}", danger=True))
    return Row(values, actions=actions)


def _age_s(queue: Queue) -> float:
    return max(0.0, queue.newest_at - queue.oldest_at)
