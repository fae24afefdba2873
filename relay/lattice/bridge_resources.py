"""The bridge and the monitor as resources: findings, policies and processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from django.db.models import QuerySet
from django.urls import reverse

from proto.lattice.errors import Reason
from proto.lattice.policy import (
    MAX_BYTES,
    MAX_TIMEOUT_MS,
    Direction,
    PolicyError,
    read_patterns,
    read_twins,
)
from proto.lattice.policy import MAX_NAME_CHARS as MAX_POLICY_CHARS
from relay.access.actor import Actor
from relay.access.errors import NotFound
from relay.dashboard.states import State, Tone
from relay.lattice import figures, listing, services
from relay.lattice.models import MAX_LIST_CHARS, MAX_NOTE_CHARS, LatticePolicy
from relay.lattice.naming import Named, field_of, filter_of, key_of, matching, text_of
from relay.lattice.tabs import TAG, VIEW, at, directions, tabs
from relay.resources.declaration import (
    Confirmation,
    Console,
    Identity,
    Resource,
    Shape,
    Values,
    Verb,
)
from relay.resources.fetching import by_field, in_memory, stored
from relay.resources.fields import Argument, Field, Filter, Look, Order, Unit, Where
from relay.resources.values import Choice, Flag, Moment, Number, Real, Text


def _key_in(url: str) -> str:
    """Return the public key at the end of the URL of an actor or a provider."""
    return url.rpartition("/")[2]


def _all_findings(names: Mapping[str, str]) -> list[Named]:
    return [Named(row, names, number) for number, row in listing.findings()]


def _findings(**filters: str) -> list[Named]:
    return matching(_all_findings(listing.names()), _FINDINGS, filters)


def _a_finding(number: str) -> Named:
    for found in _all_findings(listing.names()):
        if found.id == number:
            return found
    raise NotFound(f"there is no finding {number!r}, or no longer")


_FINDINGS: Final = (
    Field("number", Text(), "Number of the finding.", look=Look.CODE, shown=False,
          read=lambda found: found.id),
    field_of("at", Moment(), "Time at which the monitor saw it.", title="Seen",
             read=lambda found: at(found.row.at)),
    field_of("reason", Choice(tuple(Reason)), "Kind of fault.", look=Look.STATE,
             show=lambda found: State(found.row.reason.replace("_", " "), Tone.BAD)),
    text_of("text", "Description of the fault.", title="Why"),
    key_of("caller", "Public key of the caller, as the message claims.", where=Where.CONSOLE,
           read=lambda found: _key_in(found.row.origin)),
    key_of("called", "Public key of the called actor or provider.", where=Where.CONSOLE,
           read=lambda found: _key_in(found.row.target)),
    text_of("operation", "Operation.", look=Look.CODE),
    text_of("origin", "URL of the caller, as the message claims.", shown=False),
    text_of("target", "URL of the called actor or provider.", shown=False),
    key_of("host_id", "Public key of the host, as the message claims.", title="Host", shown=False),
    key_of("issuer", "Public key of the cluster that signed the message; empty if its claims did "
           "not pass the checks.", shown=False),
    text_of("id", "Id of the invocation.", look=Look.CODE, title="Invocation", shown=False),
    text_of("subject", "NATS subject on which it was seen.", shown=False),
    field_of("size", Number(), "Bytes of the message.", unit=Unit.BYTES, shown=False),
    field_of("count", Number(), "Invocations that the row stands for: above 1 for those "
             "which a flood brings beyond 500 within a second.", unit=Unit.COUNT, shown=False),
)  # fmt: skip
_FINDING_ORDERS: Final = by_field(
    *(each for each in _FINDINGS if each.name not in ("number", "caller", "called"))
)

FINDINGS: Final = Resource(
    name="lattice_findings", noun="lattice_finding", path="lattice/findings", word="findings",
    title="Lattice", tag=TAG, action=VIEW,
    summary="List invocations with faults that the monitor found",
    details="The newest 10,000. Long texts of an invocation are cut, and payloads are not stored.",
    schema=Shape("LatticeFindingOut", "An invocation that a receiver must not execute."),
    fields=_FINDINGS,
    filters=(Filter("reason", Choice(tuple(Reason)), "Kind of fault."),
             filter_of("origin", "URL or public key of the caller.", title="Caller"),
             filter_of("target", "URL or public key of the called actor or provider.",
                       title="Called"),
             filter_of("operation", "Operation.")),
    orders=tuple(map(Order, _FINDING_ORDERS)), order="-at",
    fetch=in_memory(_findings, _FINDING_ORDERS, lambda found: found.id),
    identity=Identity("number", Text(40, 1), "Number of a finding.", _a_finding, "Get a finding",
                      "at", read=lambda found: found.id),
    console=Console(
        live=True, tabs=tabs, title=lambda found: f"Finding: {found.row.reason.replace('_', ' ')}",
        empty="No findings: the monitor found nothing wrong. Processes shows whether one runs.",
    ),
    terminal=("at", "reason", "origin", "target", "operation", "text"),
)  # fmt: skip


def _policy(name: str) -> LatticePolicy:
    found = LatticePolicy.objects.filter(pk=name).first()
    if found is None:
        raise NotFound(f"there is no policy {name!r}")
    return found


def _put_policy(actor: Actor, **values: Any) -> Values:
    services.put(LatticePolicy(**values), actor=actor)
    return {}


def _remove_policy(actor: Actor, name: str) -> Values:
    services.remove(name, actor=actor)
    return {}


_POLICY_LISTS: Final = (
    ("twins", "Twins", "Twin ids and ranges with commas, such as 7, 10-19; *: all twins."),
    ("entities", "Actors and providers", "Public keys of actors and providers, or call aliases, "
     "with commas; * stands for any characters."),
    ("names", "Commands or operations", "Commands to twins, or operations of the lattice, with "
     "commas; * stands for any characters."),
)  # fmt: skip


def _form_of(name: str) -> Callable[[str], None]:
    """Return a function that checks a list of a policy."""
    read = read_twins if name == "twins" else read_patterns

    def check(text: str) -> None:
        try:
            read(text, name)
        except PolicyError as error:
            raise ValueError(error.text) from None

    return check


_POLICY_NAME: Final = Argument("name", Text(MAX_POLICY_CHARS, 1), "Name of the policy.")

PUT_POLICY: Final = Verb(
    name="put", noun="policy", title="Add a policy", action="lattice_policy.set",
    summary="Add a policy of the bridge, or replace the one with its name",
    details="The policy takes effect within a second.", method="PUT",
    path="lattice/policies", page="lattice/policies/put",
    arguments=(
        Argument("name", Text(MAX_POLICY_CHARS, 1), "Name of the policy; policies are tried in "
                 "the order of their names.", asked=True),
        Argument("direction", Choice(tuple(Direction)), "Direction: an actor calls "
                 "(to_twin), or a twin calls (to_lattice).", asked=True, labels=directions),
        *(Argument(name, Text(MAX_LIST_CHARS, 1, _form_of(name)), description, title=title,
                   asked=True)
          for name, title, description in _POLICY_LISTS),
        Argument("per_s", Number(0, 1_000_000), "Calls per second for each pair of a twin and "
                 "an actor or provider; 0: no limit.", title="Calls a second", required=False,
                 default=0, asked=True),
        Argument("max_bytes", Number(1, MAX_BYTES), "Maximum bytes of the payload of a call and "
                 "of its answer.", title="Maximum bytes", required=False, default=MAX_BYTES,
                 asked=True),
        Argument("timeout_ms", Number(1, MAX_TIMEOUT_MS), "Maximum milliseconds that the bridge "
                 "waits for an answer.", title="Time-out in ms", required=False, default=30_000,
                 asked=True),
        Argument("enabled", Flag(), "The bridge ignores disabled policies.", required=False,
                 default=True, asked=True),
        Argument("note", Text(MAX_NOTE_CHARS), "Note for operators.", required=False, default="",
                 asked=True),
    ),
    takes=Shape("LatticePolicyIn", "A policy of the bridge."),
    gives=Shape("LatticePolicyPut", "The policy takes effect within a second."),
    of_list=lambda given: {},
    edits=True,
    run=_put_policy,
    confirm=lambda given: Confirmation(
        "Add a policy", "The bridge passes such calls within a second."
    ),
    done=lambda given, _: f"policy {given['name']} takes effect within a second",
)  # fmt: skip

REMOVE_POLICY: Final = Verb(
    name="remove", noun="policy", title="Remove", action="lattice_policy.remove",
    danger=True, missing=True, summary="Remove a policy of the bridge",
    details="The bridge refuses calls that only this policy allowed, within a second.",
    method="DELETE",
    path="lattice/policies/{name}", page="lattice/policies/{name}/remove",
    arguments=(_POLICY_NAME,),
    gives=Shape("LatticePolicyRemoved", "The policy is removed."),
    of_row=lambda row: {"name": row.name},
    run=_remove_policy,
    confirm=lambda given: Confirmation(
        f"Remove policy {given['name']}",
        "Calls that only this policy allows are refused within a second.",
    ),
    done=lambda given, _: f"policy {given['name']} is removed",
)  # fmt: skip


_POLICY_ORDERS: Final = {
    "name": "pk",
    **{each: each for each in ("direction", "per_s", "max_bytes", "timeout_ms", "updated")},
}


def _stored_policies(
    direction: str = "", name: str = "", enabled: bool | None = None
) -> QuerySet[LatticePolicy]:
    rows = LatticePolicy.objects.filter(name__icontains=name)
    exact = {"direction": direction or None, "enabled": enabled}
    return rows.filter(**{key: value for key, value in exact.items() if value is not None})


POLICIES: Final = Resource(
    name="lattice_policies", noun="lattice_policy", path="lattice/policies", word="policies",
    title="Lattice", tag=TAG, action="lattice_policy.view",
    summary="List policies of the bridge",
    details="The bridge refuses every call that no policy allows. The first enabled policy that "
    "matches the direction, the twin, the actor or provider and the command or operation decides.",
    schema=Shape("LatticePolicyOut", "A policy of the bridge."),
    fields=(
        Field("name", Text(), "Name of the policy."),
        Field("direction", Choice(tuple(Direction)), "Direction: an actor calls (to_twin), or a "
              "twin calls (to_lattice).", labels=directions),
        *(Field(name, Text(), description, title=title)
          for name, title, description in _POLICY_LISTS),
        Field("per_s", Real(), "Calls per second for each pair of a twin and an actor or provider; "
              "0: no limit.",
              title="Calls a second", unit=Unit.PER_SECOND, show=lambda row: row.per_s or None),
        Field("max_bytes", Number(), "Maximum bytes of a payload.", title="Payload",
              unit=Unit.BYTES, shown=False),
        Field("timeout_ms", Number(), "Maximum milliseconds that the bridge waits.",
              title="Time-out", unit=Unit.MILLISECONDS, shown=False),
        Field("enabled", Flag(), "Whether the bridge uses it.", look=Look.STATE,
              show=lambda row: State("enabled", Tone.GOOD) if row.enabled
              else State("disabled", Tone.IDLE)),
        Field("note", Text(), "Note for operators.", shown=False),
        Field("updated", Moment(), "Time of the last change.", shown=False),
    ),
    filters=(Filter("direction", Choice(tuple(Direction)), "Direction of the calls.",
                    labels=directions),
             Filter("name", Text(MAX_POLICY_CHARS), "Name.", hint="or a part of it"),
             Filter("enabled", Flag(), "Whether the bridge uses it.")),
    orders=tuple(map(Order, _POLICY_ORDERS)), order="name",
    fetch=stored(_stored_policies, _POLICY_ORDERS),
    identity=Identity("name", Text(MAX_POLICY_CHARS, 1), "Name of a policy.", _policy,
                      "Get a policy", "name", read=lambda row: row.name),
    verbs=(PUT_POLICY, REMOVE_POLICY),
    console=Console(
        tabs=tabs, title=lambda row: f"Policy {row.name}",
        empty="No policies yet: the bridge refuses all calls. Add a policy to allow some.",
    ),
    terminal=("name", "direction", "twins", "entities", "names", "per_s"),
)  # fmt: skip


def _processes(kind: str = "") -> list[figures.Process]:
    return [row for row in listing.processes() if not kind or row.values.get("kind") == kind]


def _said(name: str) -> Callable[[figures.Process], Any]:
    return lambda row: row.values.get(name)


_PROCESSES: Final = (
    Field("id", Text(), "Id of the process.", look=Look.CODE),
    Field("kind", Choice(("bridge", "monitor")), "Kind of process.", read=_said("kind")),
    Field("pid", Number(), "Process id on its machine.", read=_said("pid")),
    Field("started", Moment(), "Time of start.", read=lambda row: at(row.values["started"])),
    Field("nats", Text(), "State of its connection to NATS.", title="NATS", look=Look.STATE,
          read=_said("nats"),
          show=lambda row: State(str(row.values.get("nats")), Tone.GOOD if row.connected
                                 else Tone.BAD)),
    Field("error", Text(), "Last error of its connection to NATS.", title="Last error",
          shown=False, read=lambda row: row.values.get("error") or ""),
    Field("running", Number(), "Calls in progress.", null=True, unit=Unit.COUNT,
          read=_said("running")),
    Field("provider", Text(), "Public key of the bridge, for links with it.", null=True,
          title="Key of the bridge", look=Look.CODE, read=_said("provider")),
    Field("twin", Number(), "Twin of the bridge; null: another bridge holds its session.",
          null=True, read=_said("twin"),
          link=lambda row: reverse("console:twin", args=[row.values["twin"]])
          if row.values.get("twin") else ""),
    Field("seen", Number(), "Invocations that the monitor saw.", null=True, unit=Unit.COUNT,
          read=_said("seen")),
    Field("unjudged", Number(), "Invocations that the monitor dropped because they came too "
          "fast.", null=True, unit=Unit.COUNT, read=_said("unjudged")),
)  # fmt: skip
_PROCESS_ORDERS: Final = by_field(*_PROCESSES)

PROCESSES: Final = Resource(
    name="lattice_processes", noun="lattice_process", path="lattice/processes",
    word="processes", title="Lattice", tag=TAG, action=VIEW,
    summary="List bridges and monitors",
    details="Each reports itself every second.",
    schema=Shape("LatticeProcessOut", "A bridge or a monitor."),
    fields=_PROCESSES,
    filters=(Filter("kind", Choice(("bridge", "monitor")), "Kind of process."),),
    orders=tuple(map(Order, _PROCESS_ORDERS)), order="id",
    fetch=in_memory(_processes, _PROCESS_ORDERS, lambda row: row.id),
    console=Console(
        live=True, tabs=tabs,
        empty="No process of the lattice runs. Start the relay with --lattice for a bridge, and "
        "set lattice.monitor for a monitor.",
    ),
    terminal=("kind", "pid", "started", "nats", "running", "seen", "unjudged", "provider"),
)  # fmt: skip
