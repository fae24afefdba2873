"""The page of all queues: their messages, and how long these wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlencode

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import reverse

from relay.access.errors import Away
from relay.dashboard.bars import bars
from relay.dashboard.figures import OVER, Kind
from relay.dashboard.pages import may, page
from relay.dashboard.states import State, Tone
from relay.dashboard.tables import Action, Ask, Cell, Column, Filter, Row, Table, respond
from relay.ops.paging import Page
from relay.ops.wording import duration
from relay.queues import services
from relay.queues.ages import Step
from relay.queues.walking import Queue

COLUMNS = (
    Column("key", "Queue", Cell.CODE, order="twin", hint="twin:session id; link to the messages"),
    Column("state", "Session", Cell.STATE),
    Column("messages", "Messages", Kind.NUMBER, order="messages"),
    Column("rate_in", "In", Kind.RATE, order="rate_in", hint=f"messages stored in it, {OVER}"),
    Column("rate_out", "Out", Kind.RATE, order="rate_out",
           hint=f"messages delivered from the queue, {OVER}"),
    Column("fill", "Full", Kind.SHARE, hint="share of the limit, in messages or bytes"),
    Column("size_bytes", "Memory", Kind.BYTES, order="size", hint="memory in Redis, estimated"),
    Column("oldest_at", "Oldest", Cell.MOMENT, order="oldest", hint="message, stored"),
    Column("newest_at", "Newest", Cell.MOMENT, order="newest", hint="message, stored"),
)  # fmt: skip
FILTERS = (
    Filter("twin", "Twin", hint="a twin id"),
    Filter("connected", "Session", (("yes", "connected"), ("no", "offline"))),
)
CONNECTED: Final = State("connected", Tone.GOOD)
GONE: Final = State("offline", Tone.IDLE, "messages wait until the session reconnects")


@page("queue.view")
def queues(request: HttpRequest) -> HttpResponseBase:
    """List all queues that hold messages, the fullest first."""
    if request.headers.get("HX-Target") == "queue-ages":
        found = _ages()
        status = 503 if "away" in found else 200
        return TemplateResponse(request, "relay_dashboard/queue_ages.html", found, status=status)
    purgeable = may(request, "queue.purge")

    def fetch(ask: Ask) -> Page[Row]:
        found = services.list_queues(
            twin=ask.number("twin"),
            connected=ask.choice("connected", {"yes": True, "no": False}),
            order=ask.order,
            limit=ask.limit,
            cursor=ask.cursor,
        )
        return Page(rows(found.items, purgeable), found.next)

    table = Table(
        request, "queues", COLUMNS, fetch, order="-messages", filters=FILTERS,
        empty="No messages wait.", live=True,
    )  # fmt: skip
    return respond(request, table, "relay_dashboard/queues.html", "Queues", _ages())


def rows(found: Sequence[Queue], purgeable: bool) -> list[Row]:
    """Return the rows of queues."""
    return [_row(queue, purgeable) for queue in found]


def state_of(queue: Queue) -> State:
    """Return whether the session of a queue is connected."""
    return CONNECTED if queue.connected else GONE


def _ages() -> dict[str, Any]:
    try:
        ages = services.ages()
    except Away as error:
        return {"away": error.detail}
    lines = ((_label(step), step.messages) for step in ages.steps)
    return {"ages": ages, "bars": bars(lines, Kind.NUMBER)}


def _label(step: Step) -> str:
    if step.to_s is None:
        return f"longer than {duration(step.from_s)}"
    return f"up to {duration(step.to_s)}"


def _row(queue: Queue, purgeable: bool) -> Row:
    policy = settings.RMB.queue
    values = {
        "key": queue.key,
        "state": state_of(queue),
        "messages": queue.messages,
        "rate_in": queue.rate_in,
        "rate_out": queue.rate_out,
        "fill": max(queue.messages / policy.max_messages, queue.size_bytes / policy.max_bytes),
        "size_bytes": queue.size_bytes,
        "oldest_at": queue.oldest_at,
        "newest_at": queue.newest_at,
    }
    actions = []
    if purgeable and not queue.connected:
        url = reverse("console:queue_purge", args=[queue.key])
        up_to = urlencode({"up_to": queue.newest})
        actions.append(Action("Purge", f"{url}?{up_to}", danger=True))
    return Row(values, {"key": reverse("console:queue", args=[queue.key])}, actions)
