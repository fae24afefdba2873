"""A resource for tests: lamps in a dictionary, with every part that a declaration can have."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from relay.access.actor import Actor
from relay.access.errors import Conflict, NotFound
from relay.dashboard.states import State, Tone
from relay.resources import rest
from relay.resources.command import ResourceCommand
from relay.resources.declaration import (
    Confirmation,
    Console,
    Identity,
    Resource,
    Shape,
    Values,
    Verb,
)
from relay.resources.fetching import in_memory
from relay.resources.fields import Argument, Field, Filter, Look, Order, Unit, Where
from relay.resources.values import Choice, Flag, Moment, Number, Pairs, Real, Text, Texts


class Room(StrEnum):
    HALL = "hall"
    CELLAR = "cellar"


ROOMS: Final = tuple(Room)


@dataclass(frozen=True)
class Lamp:
    id: str
    room: str
    lit: bool = False
    power: float = 0.0
    since: datetime = datetime(2026, 1, 31, 12, tzinfo=UTC)
    labels: dict[str, str] = field(default_factory=dict)
    note: str | None = None


LAMPS: dict[str, Lamp] = {}
DONE: list[tuple[str, str]] = []
"""Actions that were carried out: name of the actor, and what it did."""


def lamps(room: str = "", lit: bool | None = None, since: datetime | None = None) -> list[Lamp]:
    return [
        each
        for each in LAMPS.values()
        if room in ("", each.room)
        and lit in (None, each.lit)
        and (since is None or each.since >= since)
    ]


def get(name: str) -> Lamp:
    if name not in LAMPS:
        raise NotFound(f"there is no lamp {name}")
    return LAMPS[name]


def add(
    actor: Actor, id: str, room: str, labels: dict[str, str], tags: list[str], lit: bool
) -> Values:
    if id in LAMPS:
        raise Conflict(f"there is a lamp {id}")
    LAMPS[id] = Lamp(id, room, lit, labels={**labels, **dict.fromkeys(tags, "tag")})
    DONE.append((actor.name, f"add {id}"))
    return {"count": len(LAMPS)}


def check_code(text: str) -> None:
    if not text.isdecimal():
        raise ValueError("must have digits only")


def switch(actor: Actor, id: str, power: int, code: str) -> Values:
    LAMPS[id] = replace(get(id), lit=power > 0, power=power)
    DONE.append((actor.name, f"switch {id} {power}"))
    return {"count": len(LAMPS)}


def remove(actor: Actor, id: str, reason: str | None) -> Values:
    get(id)
    del LAMPS[id]
    DONE.append((actor.name, f"remove {id} {reason}"))
    return {}


_ID: Final = Argument("id", Text(20, 1), "Name of the lamp.")
COUNT: Final = (Field("count", Number(), "Lamps that there are now.", unit=Unit.COUNT),)

RESOURCE: Final = Resource(
    name="lamps", noun="lamp", title="Lamps", tag="lamps", action="session.view",
    summary="List lamps", details="All lamps of the house.",
    schema=Shape("LampOut", "A lamp of the house."),
    fields=(
        Field("id", Text(), "Name of the lamp.", look=Look.CODE, quoted=True),
        Field("room", Choice(ROOMS), "Room that has the lamp.",
              labels=lambda: {"hall": "The hall"}),
        Field("lit", Flag(), "Whether it is lit.", look=Look.STATE,
              show=lambda lamp: State("lit", Tone.GOOD) if lamp.lit else State("dark", Tone.IDLE)),
        Field("power", Real(), "Share of the highest power.", unit=Unit.SHARE, title="Brightness",
              read=lambda lamp: lamp.power / 100),
        Field("since", Moment(), "When it was last changed.", shown=False),
        Field("labels", Pairs(), "Labels of the lamp."),
        Field("note", Text(), "Note of its owner.", null=True, where=Where.DATA),
    ),
    filters=(
        Filter("room", Choice(ROOMS), "Only lamps of this room.", labels=lambda: {"hall": "Hall"}),
        Filter("lit", Flag(), "Only lamps that are lit, or dark."),
        Filter("since", Moment(), "Only lamps that were changed since this time.",
               where=Where.DATA | Where.TERMINAL),
    ),
    orders=(Order("id"), Order("power")), order="id",
    fetch=in_memory(lamps, {"id": lambda lamp: lamp.id, "power": lambda lamp: lamp.power},
                    lambda lamp: lamp.id),
    identity=Identity("id", Text(20), "Name of the lamp.", get, "Get a lamp", "id"),
    console=Console(empty="It is dark."),
    verbs=(
        Verb(
            name="add", noun="lamp", title="Add a lamp", summary="Add a lamp",
            action="session.kick", word="add",
            method="PUT", path="lamps/{id}", run=add, answer=COUNT, edits=True,
            arguments=(
                Argument("id", Text(20, 1), "Name of the lamp.", asked=True),
                Argument("room", Choice(ROOMS), "Room that has the lamp.", asked=True,
                         labels=lambda: {"hall": "Hall", "cellar": "Cellar"}),
                Argument("labels", Pairs(3), "Labels of the lamp.", required=False, default={},
                         asked=True),
                Argument("tags", Texts(2, 5), "Tags of the lamp.", required=False, default=[],
                         asked=True),
                Argument("lit", Flag(), "Whether it is lit.", required=False, default=True,
                         asked=True),
            ),
            of_list=lambda given: {"room": given["room"]} if "room" in given else {},
            confirm=lambda given: Confirmation("Add a lamp"),
            done=lambda given, answer: f"lamp {given['id']} is one of {answer['count']}",
        ),
        Verb(
            name="switch", noun="lamp", title="Switch", summary="Switch a lamp",
            action="session.kick", run=switch, answer=COUNT,
            arguments=(_ID, Argument("power", Number(0, 100), "Percent of the power.", asked=True),
                       Argument("code", Text(4, 4, check_code), "Code of the lamp.",
                                required=False, default="0000", asked=True)),
            of_row=lambda lamp: {"id": lamp.id},
            confirm=lambda given: Confirmation(f"Switch lamp {given['id']}"),
            done=lambda given, answer: f"lamp {given['id']} has {given['power']} %",
        ),
        Verb(
            name="remove", noun="lamp", title="Remove", summary="Remove a lamp",
            action="session.kick", method="DELETE", path="lamps/{id}", run=remove, danger=True,
            arguments=(_ID, Argument("reason", Choice(("broken", "sold")), "Why it is removed.",
                                     required=False, asked=True)),
            of_row=lambda lamp: {"id": lamp.id} if lamp.power < 50 else None,
            confirm=lambda given: Confirmation(f"Remove lamp {given['id']}", "It goes out.",
                                               (f"lamp {given['id']}",)),
            done=lambda given, answer: f"lamp {given['id']} is removed",
        ),
    ),
)  # fmt: skip

router = rest.router_of([RESOURCE])


class Command(ResourceCommand):
    """The command for lamps."""

    help = "List lamps, and switch them."
    resources = (RESOURCE,)
