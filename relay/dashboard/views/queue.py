"""Pages of one queue: headers of the waiting messages, purging and moving it. Never a payload."""

from __future__ import annotations

from typing import Final, cast
from urllib.parse import urlencode

from django import forms
from django.conf import settings
from django.http import HttpRequest, HttpResponseRedirect, QueryDict
from django.http.response import HttpResponseBase
from django.urls import reverse

from relay.access import faces
from relay.access.actor import Actor
from relay.access.errors import Conflict, NotFound
from relay.dashboard.acts import Question, act, posted
from relay.dashboard.addresses import check_twin
from relay.dashboard.figures import Kind
from relay.dashboard.pages import may, page
from relay.dashboard.states import State, Tone
from relay.dashboard.tables import Action, Ask, Cell, Column, Row, Table, respond
from relay.dashboard.views.queues import state_of
from relay.dashboard.views.traces import address_of
from relay.ops.paging import MAX_PAGE, Page
from relay.ops.wording import counted, duration
from relay.queues import services, walking
from relay.queues.headers import Header
from relay.queues.moving import Moved
from relay.queues.walking import Queue
from relay.rest.lines import MEDIA_TYPES, lines
from relay.sessions import listing

COLUMNS: Final = (
    Column("at", "Stored", Cell.MOMENT),
    Column("state", "State", Cell.STATE),
    Column("source", "From", Cell.CODE),
    Column("message", "Message", hint="kind of the message, and the command of a request"),
    Column("uid", "Uid", Cell.CODE, hint="link to the trace of the message"),
    Column("size_bytes", "Size", Kind.BYTES, hint="size of the envelope"),
    Column(
        "payload_bytes",
        "Payload",
        Kind.BYTES,
        optional=True,
        hint="the payload itself is never shown",
    ),
    Column("deadline", "Expires", Cell.MOMENT, hint="according to the message; -: never"),
    Column("tags_bytes", "Tags", Kind.BYTES, optional=True),
    Column("destination", "To", Cell.CODE, optional=True),
    Column("entry", "Entry", Cell.CODE, optional=True, hint="id in the Redis stream"),
)
WAITS: Final = State("waits", Tone.INFO)
EXPIRED: Final = State("expired", Tone.WARNING, "the message expired while it waited")
MAX_CHOICES: Final = 50
"""Maximum number of the twin's sessions offered as targets; any other can be entered."""


@page("queue.view")
def queue(request: HttpRequest, key: str) -> HttpResponseBase:
    """List the messages that wait for one session, the oldest first."""
    twin, _ = walking.parse(key)

    def fetch(ask: Ask) -> Page[Row]:
        found = services.list_headers(key, limit=ask.limit, after=ask.cursor)
        return Page([_row(header) for header in found.items], found.next)

    exports = []
    if may(request, "queue.export"):
        address = reverse("console:queue_export", args=[key])
        exports = [("CSV", f"{address}?form=csv"), ("JSON", f"{address}?form=jsonl")]
    table = Table(
        request, "messages", COLUMNS, fetch, exports=exports, live=True,
        empty=f"No messages wait for {key}.",
    )  # fmt: skip
    found = _found(key)
    context = {
        "queue": found,
        "state": found and state_of(found),
        "policy": settings.RMB.queue,
        "actions": _actions(request, key, found, twin),
    }
    return respond(request, table, "relay_dashboard/queue.html", f"Queue of {key}", context)


@page("queue.export")
def export(request: HttpRequest, key: str) -> HttpResponseBase:
    """Send all headers of the queue as a file. The export is recorded in the audit log."""
    form = request.GET.get("form", "csv")
    found = services.export(key, form, actor=faces.operator(request))
    return lines(found, MEDIA_TYPES[form], f"queue.{form}")


@page("queue.purge")
def purge(request: HttpRequest, key: str) -> HttpResponseBase:
    """Delete the messages that wait now; messages that arrive after the question are kept."""
    found = services.get_queue(key)
    up_to = request.GET.get("up_to", "")
    if not up_to and request.method == "GET":
        query = request.GET.copy()
        query["up_to"] = found.newest
        return HttpResponseRedirect(f"{request.path}?{query.urlencode()}")

    def perform(actor: Actor) -> str:
        count = services.purge(key, actor=actor, up_to=up_to)
        return f"{counted(count, 'message')} for {key} deleted"

    question = Question(
        f"Purge the queue of {key}",
        "Purge",
        "The senders are not notified.",
        loses=(f"{found.messages:,} messages, stored within {duration(_span_s(found))}",),
        danger=True,
    )
    return act(request, question, perform, reverse("console:queues"))


@page("queue.purge")
def purge_twin(request: HttpRequest, twin: int) -> HttpResponseBase:
    """Delete all messages for a twin that cannot fetch them."""
    check_twin(twin)
    if services.in_good_standing(twin):
        raise Conflict(
            f"twin {twin} is neither banned nor removed: its queues are kept; purge them one by one"
        )
    waiting, more = services.list_queues(twin=twin, connected=False, limit=MAX_PAGE)

    def perform(actor: Actor) -> str:
        count = services.purge_twin(twin, actor=actor)
        return f"{counted(count, 'message')} for twin {twin} deleted"

    messages = sum(each.messages for each in waiting)
    meanwhile = "and messages that arrive meanwhile"
    if more:
        meanwhile = f"those in further queues, {meanwhile}"
    question = Question(
        f"Purge all queues of twin {twin}",
        "Purge",
        (
            "The twin is banned or removed and cannot fetch its messages. The senders are "
            "not notified."
        ),
        loses=(f"{messages:,} messages in {len(waiting):,} queues, {meanwhile}",),
        danger=True,
    )
    return act(request, question, perform, reverse("console:twin", args=[twin]))


class MoveForm(forms.Form):
    """The session to move messages to."""

    target = forms.ChoiceField(label="To the session", required=False)
    sid = forms.CharField(
        label="Or to another session id",
        required=False,
        strip=False,
        max_length=walking.MAX_SID_BYTES,
        help_text="The session need not exist yet.",
    )

    def __init__(self, key: str, given: QueryDict | None) -> None:
        super().__init__(given)
        self.twin, _ = walking.parse(key)
        target = cast(forms.ChoiceField, self.fields["target"])
        target.choices = [("", "another one"), *_targets(self.twin, key)]

    def clean(self) -> dict[str, str]:
        cleaned = self.cleaned_data
        if bool(cleaned.get("target")) == bool(cleaned.get("sid")):
            raise forms.ValidationError("Choose a session, or name a session id.")
        return cleaned

    @property
    def key(self) -> str:
        """Key of the chosen session."""
        given = self.cleaned_data
        return given["target"] or f"{self.twin}:{given['sid']}"


@page("queue.move")
def move(request: HttpRequest, key: str) -> HttpResponseBase:
    """Move the waiting messages to another session of the twin."""
    found = services.get_queue(key)
    form = MoveForm(key, posted(request))

    def perform(actor: Actor) -> str:
        return _told(services.move(key, form.key, actor=actor), form.key)

    question = Question(
        f"Move the queue of {key}",
        "Move",
        f"{found.messages:,} messages go to the end of the other queue. A connected session gets "
        "them at once. Expired messages stay.",
    )
    return act(request, question, perform, reverse("console:queue", args=[key]), form)


def _targets(twin: int, key: str) -> list[tuple[str, str]]:
    """Return the twin's other sessions that are connected or have a queue."""
    live = listing.live(twin=twin, limit=MAX_CHOICES).items
    waiting = services.list_queues(twin=twin, connected=False, limit=MAX_CHOICES).items
    targets = {each.key: f"{each.key} (connected)" for each in live}
    targets |= {
        each.key: f"{each.key} (not connected, {each.messages:,} messages)" for each in waiting
    }
    targets.setdefault(str(twin), f"{twin} (without a session id)")
    targets.pop(key, None)
    return sorted(targets.items())


def _told(moved: Moved, target: str) -> str:
    parts = [f"{counted(moved.moved, 'message')} moved to {target}"]
    if moved.expired:
        parts.append(f"{moved.expired} expired messages stayed")
    if moved.malformed:
        parts.append(f"{moved.malformed} malformed messages stayed")
    if moved.stopped:
        parts.append(f"stopped early ({moved.stopped}): {max(0, moved.left)} messages are left")
    return "; ".join(parts)


def _found(key: str) -> Queue | None:
    try:
        return services.get_queue(key)
    except NotFound:
        return None


def _actions(request: HttpRequest, key: str, found: Queue | None, twin: int) -> list[Action]:
    actions = [Action(f"Twin {twin}", reverse("console:twin", args=[twin]), asks=False)]
    if found is None or found.connected:
        return actions
    if may(request, "queue.move"):
        actions.append(Action("Move", reverse("console:queue_move", args=[key])))
    if may(request, "queue.purge"):
        url = reverse("console:queue_purge", args=[key])
        up_to = urlencode({"up_to": found.newest})
        actions.append(Action("Purge", f"{url}?{up_to}", danger=True))
    return actions


def _row(header: Header) -> Row:
    state = EXPIRED if header.expired else WAITS
    if header.problem:
        state = State("malformed", Tone.BAD, header.problem.replace("_", " "))
    values = {
        "at": header.at,
        "state": state,
        "source": header.source,
        "message": f"{header.kind} {header.command}".strip(),
        "uid": header.uid,
        "size_bytes": header.size_bytes,
        "payload_bytes": None if header.problem else header.payload_bytes,
        "deadline": header.judged_deadline,
        "tags_bytes": None if header.problem else header.tags_bytes,
        "destination": header.destination,
        "entry": header.entry,
    }
    links = {}
    if header.uid:
        links["uid"] = address_of(header.uid)
    if header.source_twin:
        links["source"] = reverse("console:twin", args=[header.source_twin])
    return Row(values, links)


def _span_s(queue: Queue) -> float:
    return max(0.0, queue.newest_at - queue.oldest_at)
