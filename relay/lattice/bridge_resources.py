"""The bridge and the monitor as resources: findings, policies and processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from proto.lattice.bounds import MAX_NAME_CHARS
from proto.lattice.errors import Reason
from proto.lattice.policy import MAX_BYTES, MAX_TIMEOUT_MS, Direction
from proto.lattice.policy import MAX_NAME_CHARS as MAX_POLICY_CHARS
from proto.lattice.state import FindingRow
from relay.access.actor import Actor
from relay.access.errors import NotFound
from relay.dashboard.states import State, Tone
from relay.lattice import figures, listing, services
from relay.lattice.models import MAX_LIST_CHARS, MAX_NOTE_CHARS, LatticePolicy
from relay.lattice.tabs import TAG, VIEW, at, tabs
from relay.resources.declaration import (
    Confirmation,
    Console,
    Identity,
    Resource,
    Shape,
    Values,
    Verb,
)
from relay.resources.fetching import in_memory, stored
from relay.resources.fields import Argument, Field, Filter, Look, Order, Unit
from relay.resources.values import Choice, Flag, Moment, Number, Real, Text, Type


def _findings(reason: str = "", origin: str = "") -> list[tuple[str, FindingRow]]:
    return [
        (number, row)
        for number, row in listing.findings()
        if (not reason or row.reason == reason) and origin.lower() in row.origin.lower()
    ]


def _finding(name: str, type_: Type, description: str, **more: Any) -> Field:
    return Field(name, type_, description, read=lambda row: getattr(row[1], name), **more)


FINDINGS: Final = Resource(
    name="lattice_findings", noun="lattice_finding", path="lattice/findings", word="findings",
    title="Lattice", tag=TAG, action=VIEW,
    summary="List invocations with faults that the monitor found",
    details="The newest 10,000. Long texts of an invocation are cut, and payloads are not stored.",
    schema=Shape("LatticeFindingOut", "An invocation that a receiver must not execute."),
    fields=(
        Field("at", Moment(), "Time at which the monitor saw it.", title="Seen",
              read=lambda row: at(row[1].at)),
        _finding("reason", Choice(tuple(Reason)), "Kind of fault.", look=Look.STATE,
                 show=lambda row: State(row[1].reason.replace("_", " "), Tone.BAD)),
        _finding("text", Text(), "Description of the fault.", title="Why", quoted=True),
        _finding("origin", Text(), "URL of the caller, as the message claims.", quoted=True),
        _finding("target", Text(), "URL of the called actor or provider.", quoted=True),
        _finding("operation", Text(), "Operation.", quoted=True),
        _finding("host_id", Text(), "Public key of the host, as the message claims.",
                 title="Host", look=Look.CODE, quoted=True, shown=False),
        _finding("issuer", Text(), "Public key of the cluster that signed the message; empty if "
                 "its claims did not pass the checks.", look=Look.CODE, quoted=True, shown=False),
        _finding("id", Text(), "Id of the invocation.", look=Look.CODE, quoted=True, shown=False),
        _finding("subject", Text(), "NATS subject on which it was seen.", quoted=True,
                 shown=False),
        _finding("size", Number(), "Bytes of the message.", unit=Unit.BYTES, shown=False),
        _finding("count", Number(), "Number of invocations; above 1 in rows that count "
                 "those beyond 500 in a second.", unit=Unit.COUNT, shown=False),
    ),
    filters=(Filter("reason", Choice(tuple(Reason)), "Kind of fault."),
             Filter("origin", Text(MAX_NAME_CHARS), "URL of the caller.", hint="or a part of it")),
    orders=(Order("at"),), order="-at",
    fetch=in_memory(_findings, {"at": lambda row: row[1].at}, lambda row: row[0]),
    console=Console(live=True, empty="The monitor found nothing wrong.", tabs=tabs),
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
    ("twins", "Twin ids and ranges with commas, such as 7, 10-19; *: all twins."),
    ("entities", "Public keys of actors and providers, or call aliases, with commas; * stands for "
     "any characters."),
    ("names", "Commands to twins, or operations of the lattice, with commas; * stands for any "
     "characters."),
)  # fmt: skip
_POLICY_NAME: Final = Argument("name", Text(MAX_POLICY_CHARS, 1), "Name of the policy.")

PUT_POLICY: Final = Verb(
    name="put", noun="policy", title="Put a policy", action="lattice_policy.set",
    summary="Add a policy of the bridge, or replace the one with its name",
    details="The policy takes effect within a second.", method="PUT",
    path="lattice/policies", page="lattice/policies/put",
    arguments=(
        Argument("name", Text(MAX_POLICY_CHARS, 1), "Name of the policy; policies are tried in "
                 "the order of their names.", asked=True),
        Argument("direction", Choice(tuple(Direction)), "Direction: an actor calls "
                 "(to_twin), or a twin calls (to_lattice).", asked=True),
        *(Argument(name, Text(MAX_LIST_CHARS, 1), description, asked=True)
          for name, description in _POLICY_LISTS),
        Argument("per_s", Number(0, 1_000_000), "Calls per second for each pair of a twin and "
                 "an actor or provider; 0: no limit.", title="Calls a second", required=False,
                 default=0, asked=True),
        Argument("max_bytes", Number(1, MAX_BYTES), "Maximum bytes of the payload of a call and "
                 "of its answer.", title="Bytes", required=False, default=MAX_BYTES, asked=True),
        Argument("timeout_ms", Number(1, MAX_TIMEOUT_MS), "Maximum milliseconds that the bridge "
                 "waits for an answer.", title="Time-out", required=False, default=30_000,
                 asked=True),
        Argument("enabled", Flag(), "The bridge ignores disabled policies.", required=False,
                 default=True, asked=True),
        Argument("note", Text(MAX_NOTE_CHARS), "Note for operators.", required=False, default="",
                 asked=True),
    ),
    takes=Shape("LatticePolicyIn", "A policy of the bridge."),
    gives=Shape("LatticePolicyPut", "The policy takes effect within a second."),
    of_list=lambda given: {},
    of_row=None,
    run=_put_policy,
    confirm=lambda given: Confirmation(
        "Put a policy", "The bridge passes such calls within a second."
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


def _stored_policies(direction: str = "", name: str = "") -> Any:
    rows = LatticePolicy.objects.filter(name__icontains=name)
    return rows.filter(direction=direction) if direction else rows


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
              "twin calls (to_lattice)."),
        *(Field(name, Text(), description) for name, description in _POLICY_LISTS),
        Field("per_s", Real(), "Calls per second for each pair of a twin and an actor or provider; "
              "0: no limit.",
              title="Calls a second", unit=Unit.PER_SECOND),
        Field("max_bytes", Number(), "Maximum bytes of a payload.", title="Bytes",
              unit=Unit.BYTES),
        Field("timeout_ms", Number(), "Maximum milliseconds that the bridge waits.",
              title="Time-out ms", unit=Unit.COUNT),
        Field("enabled", Flag(), "Whether the bridge uses it.", look=Look.STATE,
              show=lambda row: State("enabled", Tone.GOOD) if row.enabled
              else State("disabled", Tone.IDLE)),
        Field("note", Text(), "Note for operators.", shown=False),
        Field("updated", Moment(), "Time of the last change.", shown=False),
    ),
    filters=(Filter("direction", Choice(tuple(Direction)), "Direction."),
             Filter("name", Text(MAX_POLICY_CHARS), "Name.", hint="or a part of it")),
    orders=(Order("name"), Order("updated")), order="name",
    fetch=stored(_stored_policies, {"name": "pk", "updated": "updated"}),
    identity=Identity("name", Text(MAX_POLICY_CHARS, 1), "Name of a policy.", _policy,
                      "Get a policy", "name", read=lambda row: row.name),
    verbs=(PUT_POLICY, REMOVE_POLICY),
    console=Console(empty="There is no policy: the bridge refuses all calls.", tabs=tabs),
    terminal=("name", "direction", "twins", "entities", "names", "per_s"),
)  # fmt: skip


def _processes(kind: str = "") -> list[figures.Process]:
    return [row for row in listing.processes() if not kind or row.values.get("kind") == kind]


def _said(name: str) -> Callable[[figures.Process], Any]:
    return lambda row: row.values.get(name)


PROCESSES: Final = Resource(
    name="lattice_processes", noun="lattice_process", path="lattice/processes",
    word="processes", title="Lattice", tag=TAG, action=VIEW,
    summary="List bridges and monitors",
    details="Each reports itself every second.",
    schema=Shape("LatticeProcessOut", "A bridge or a monitor."),
    fields=(
        Field("id", Text(), "Id of the process.", look=Look.CODE),
        Field("kind", Choice(("bridge", "monitor")), "Kind of process.", read=_said("kind")),
        Field("pid", Number(), "Process id on its machine.", read=_said("pid")),
        Field("started", Moment(), "Time of start.", read=lambda row: at(row.values["started"])),
        Field("nats", Text(), "State of its connection to NATS.", title="NATS", look=Look.STATE,
              read=_said("nats"),
              show=lambda row: State(str(row.values.get("nats")), Tone.GOOD
                                     if row.values.get("nats") == "connected" else Tone.BAD)),
        Field("running", Number(), "Calls in progress.", null=True, unit=Unit.COUNT,
              read=_said("running")),
        Field("twin", Number(), "Twin of the bridge; null: another bridge holds its session.",
              null=True, read=_said("twin")),
        Field("seen", Number(), "Invocations that the monitor saw.", null=True, unit=Unit.COUNT,
              read=_said("seen")),
        Field("unjudged", Number(), "Invocations that the monitor dropped because they came too "
              "fast.", null=True, unit=Unit.COUNT, read=_said("unjudged")),
    ),
    filters=(Filter("kind", Choice(("bridge", "monitor")), "Kind of process."),),
    orders=(Order("id"),), order="id",
    fetch=in_memory(_processes, {"id": lambda row: row.id}, lambda row: row.id),
    console=Console(live=True, empty="No process of the lattice runs.", tabs=tabs),
    terminal=("kind", "pid", "started", "nats", "running", "seen", "unjudged"),
)  # fmt: skip
