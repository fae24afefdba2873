"""Pages of messages for partner relays: those that wait in the outbox, and dead letters."""

from __future__ import annotations

import time
from typing import Final

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse

from proto.rmb.reasons import MESSAGES, MessageReason
from relay.access.actor import Actor
from relay.access.errors import NotFound
from relay.dashboard import letters
from relay.dashboard.acts import Question, act
from relay.dashboard.figures import Kind, write
from relay.dashboard.pages import may, page
from relay.dashboard.tables import Action, Ask, Filter, Row, Table, respond
from relay.federation import letter_lists, services
from relay.federation.letters import MAX_SHOWN, Letter
from relay.ops.paging import Page
from relay.ops.wording import counted

RELAY: Final = Filter("relay", "Relay", hint="a whole domain")
REASONS: Final = (
    MessageReason.EXPIRED,
    MessageReason.REMOTE_4XX,
    MessageReason.UNKNOWN_TWIN,
    MessageReason.NO_RELAY,
    MessageReason.NO_USABLE_RELAY,
    MessageReason.UNPARSABLE,
)
"""Reasons for which drainers give up on a message."""
WHY: Final = Filter("why", "Reason", tuple((str(each), str(each)) for each in REASONS))


@page("letter.view")
def outbox(request: HttpRequest) -> HttpResponseBase:
    """List the messages that wait for partner relays, the oldest first."""

    def fetch(ask: Ask) -> Page[Row]:
        found = letter_lists.waiting(
            relay=ask.filters["relay"], limit=min(ask.limit, MAX_SHOWN), cursor=ask.cursor
        )
        return Page([letters.row(each) for each in found.items], found.next)

    table = Table(
        request, "outbox", letters.WAITING, fetch, filters=(RELAY,), live=True,
        empty="No messages wait for partner relays.",
    )  # fmt: skip
    return respond(request, table, "relay_dashboard/table_page.html", "Outbox")


@page("letter.view")
def outbox_message(request: HttpRequest, shard: int, entry: str) -> HttpResponseBase:
    """Show one waiting message with all attempts."""
    return _one(request, letter_lists.get_waiting(shard, entry), "Message in the outbox")


@page("letter.view")
def dead_letters(request: HttpRequest) -> HttpResponseBase:
    """List the messages that failed permanently in the last day, the latest first."""

    def fetch(ask: Ask) -> Page[Row]:
        found = letter_lists.dead(
            relay=ask.filters["relay"], why=ask.filters["why"],
            limit=min(ask.limit, MAX_SHOWN), cursor=ask.cursor,
        )  # fmt: skip
        rows = [letters.row(each, letter_actions(request, each)) for each in found.items]
        return Page(rows, found.next)

    table = Table(
        request, "letters", letters.DEAD, fetch, filters=(RELAY, WHY), live=True,
        empty="No message failed permanently in the last day.",
    )  # fmt: skip
    return respond(request, table, "relay_dashboard/table_page.html", "Dead letters")


@page("letter.view")
def letter(request: HttpRequest, entry: str) -> HttpResponseBase:
    """Show one dead letter with all attempts."""
    found = letter_lists.get_dead(entry)
    return _one(request, found, "Dead letter", letter_actions(request, found))


@page("letter.requeue")
def requeue(request: HttpRequest, entry: str) -> HttpResponseBase:
    """Send a dead letter again."""
    found = letter_lists.get_dead(entry)

    def perform(actor: Actor) -> str:
        services.requeue(entry, actor=actor)
        return f"The message to {found.destination} is in the outbox again"

    question = Question(
        f"Send {_name(found)} again",
        "Send again",
        "The message goes to the end of the outbox, even if the outbox is full, and its "
        "attempts start from zero. A receiver that already has the message gets it again.",
    )
    return act(request, question, perform, reverse("console:letters"))


@page("letter.delete")
def delete(request: HttpRequest, entry: str) -> HttpResponseBase:
    """Delete a dead letter."""
    found = letter_lists.get_dead(entry)

    def perform(actor: Actor) -> str:
        services.delete_letter(entry, actor=actor)
        return f"The message to {found.destination} is deleted"

    size = write(found.size_bytes, Kind.BYTES)
    question = Question(
        f"Delete {_name(found)}",
        "Delete",
        "The message was not delivered and cannot be sent again afterwards.",
        loses=(f"the message ({size}) and the record of its {len(found.tries)} attempts",),
        danger=True,
    )
    return act(request, question, perform, reverse("console:letters"))


@page("letter.requeue")
def requeue_all(request: HttpRequest, domain: str) -> HttpResponseBase:
    """Send the dead letters of one relay again."""
    count, most = letter_lists.count_dead(domain), services.MAX_REQUEUED
    if not count:
        raise NotFound(f"there is no dead letter for {domain}")

    def perform(actor: Actor) -> str:
        again = services.requeue_all(domain, actor=actor)
        return f"in the outbox again: {counted(again, 'message')}"

    some = f"the oldest {most:,} of {count:,}" if count > most else f"all {count:,}"
    question = Question(
        f"Send the dead letters for {domain} again",
        "Send again",
        f"These are {some}. They go to the end of the outbox, the oldest first. A "
        "receiver that already has a message gets it again.",
    )
    return act(request, question, perform, reverse("console:relay", args=[domain]))


def letter_actions(request: HttpRequest, found: Letter) -> list[Action]:
    """Return the buttons of a dead letter that the account may use."""
    actions = []
    if may(request, "letter.requeue"):
        actions.append(Action("Requeue", reverse("console:letter_requeue", args=[found.entry])))
    if may(request, "letter.delete"):
        url = reverse("console:letter_delete", args=[found.entry])
        actions.append(Action("Delete", url, danger=True))
    return actions


def _one(
    request: HttpRequest, found: Letter, title: str, actions: list[Action] | None = None
) -> HttpResponseBase:
    def fetch(ask: Ask) -> Page[Row]:
        return Page(letters.try_rows(found.tries), "")

    table = Table(
        request, "tries", letters.TRIES, fetch, title="Failed attempts",
        empty="No failed attempts are known.",
    )  # fmt: skip
    context = {
        "letter": found,
        "what": letters.what(found),
        "relays": letters.relays_of(found),
        "meaning": MESSAGES.get(found.why, ""),  # type: ignore[call-overload]
        "expired": bool(found.deadline and found.deadline < time.time()),
        "actions": actions or [],
    }
    return respond(request, table, "relay_dashboard/letter.html", title, context)


def _name(found: Letter) -> str:
    return (
        f"the message from {found.source or 'a relay'} to {found.destination or 'no destination'}"
    )
