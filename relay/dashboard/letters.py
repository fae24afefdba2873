"""Messages for partner relays as pages show them: headers and attempts, never payloads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from django.urls import reverse

from relay.dashboard.figures import Kind, write
from relay.dashboard.tables import Action, Cell, Column, Row
from relay.federation.letters import MAX_TEXT_CHARS, Letter, Try
from relay.federation.outbox import ACCOUNT_SEPARATOR

_MESSAGE: Final = (
    Column("source", "From", Cell.CODE, hint="twin, with its session"),
    Column("destination", "To", Cell.CODE, hint="twin, with its session"),
    Column("message", "Message", Cell.CODE, hint="kind, command and [tags]"),
    Column("uid", "Uid", Cell.CODE),
    Column("size_bytes", "Size", Kind.BYTES),
)
_END: Final = (
    Column("relays", "Relays", Cell.CODE, hint="relays that the destination lists"),
    Column("tries", "Tries", Kind.NUMBER, hint="failed attempts; the relay keeps at most 32"),
    Column("last", "Last attempt"),
    Column("shard", "Shard", Cell.TEXT, optional=True, hint="of the outbox"),
    Column("entry", "Entry", Cell.CODE, optional=True, hint="id in its stream"),
)

WAITING: Final = (
    Column("at", "Waits since", Cell.MOMENT),
    *_MESSAGE,
    Column("deadline", "Expires", Cell.MOMENT),
    *_END,
)
DEAD: Final = (
    Column("at", "Died", Cell.MOMENT),
    Column("why", "Reason", Cell.LINE, hint="see Reasons in the documentation"),
    *_MESSAGE,
    *_END,
)
TRIES: Final = (
    Column("at", "When", Cell.MOMENT),
    Column("relay", "Relay", Cell.CODE),
    Column("answer", "Answer", Cell.TEXT),
    Column("took_s", "Took", Kind.DURATION),
)

TRIES_OF_MANY: Final = (
    Column("at", "When", Cell.MOMENT),
    Column("destination", "Message to", Cell.CODE),
    Column("uid", "Uid", Cell.CODE),
    Column("answer", "Answer", Cell.TEXT),
    Column("took_s", "Took", Kind.DURATION),
)


def what(letter: Letter) -> str:
    """Return kind, command and tags of a message."""
    named = (letter.kind, letter.command, letter.tags and f"[{letter.tags}]")
    return " ".join(filter(None, named)) or "unreadable"


def row(letter: Letter, actions: Sequence[Action] = ()) -> Row:
    """Return the row of a message, for the outbox or for dead letters."""
    values: dict[str, Any] = {
        "at": letter.at,
        "why": letter.why,
        "source": letter.source,
        "destination": letter.destination,
        "message": what(letter),
        "uid": letter.uid,
        "size_bytes": letter.size_bytes,
        "deadline": letter.deadline or None,
        "relays": letter.account,
        "tries": len(letter.tries),
        "last": told(letter.tries[-1]) if letter.tries else "",
        "shard": letter.shard,
        "entry": letter.entry,
    }
    links = {"message": url(letter)}
    for end in ("source", "destination"):
        twin = values[end].partition(":")[0]
        if twin.isascii() and twin.isdecimal() and twin != "0":
            links[end] = reverse("console:twin", args=[twin])
    if letter.uid.isprintable() and len(letter.uid) in range(1, MAX_TEXT_CHARS):
        links["uid"] = reverse("console:trace_message", args=[letter.uid])
    if letter.account and ACCOUNT_SEPARATOR not in letter.account:
        links["relays"] = reverse("console:relay", args=[letter.account])
    return Row(values, links, actions)


def url(letter: Letter) -> str:
    """Return the address of the page of one message."""
    if letter.why:
        return reverse("console:letter", args=[letter.entry])
    return reverse("console:outbox_message", args=[letter.shard, letter.entry])


def relays_of(letter: Letter) -> list[str]:
    """Return the relays that a message may be sent to."""
    return [each for each in letter.account.split(ACCOUNT_SEPARATOR) if each]


def told(one: Try) -> str:
    """Describe one attempt in a line."""
    return f"{one.relay}: {one.answer}, after {write(one.ms / 1000, Kind.DURATION)}"


def try_rows(tries: Iterable[Try]) -> list[Row]:
    """Return the rows of attempts, the latest first."""
    return [Row(_try(one)) for one in sorted(tries, key=lambda one: one.at, reverse=True)]


def tries_at(relay: str, found: Iterable[Letter]) -> list[Row]:
    """Return the rows of attempts at a relay, each with its message, the latest first."""
    tries = [(one, letter) for letter in found for one in letter.tries if one.relay == relay]
    tries.sort(key=lambda each: each[0].at, reverse=True)
    return [
        Row(
            {**_try(one), "destination": letter.destination, "uid": letter.uid},
            {"uid": url(letter)},
        )
        for one, letter in tries
    ]


def _try(one: Try) -> dict[str, Any]:
    return {"at": one.at, "relay": one.relay, "answer": one.answer, "took_s": one.ms / 1000}
