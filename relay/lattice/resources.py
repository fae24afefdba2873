"""The lattice as resources: hosts, actors, providers, links, calls, findings, policies, processes.

What the lattice runs, its calls and findings are read from Redis, where the bridge and the monitor
write them each second; policies are in the database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final

from proto.lattice.bounds import MAX_NAME_CHARS, MAX_OPERATION_CHARS
from proto.lattice.policy import Direction
from proto.lattice.state import ActorRow, HostRow, LinkRow, ProviderRow, Seen
from relay.access.actor import Actor
from relay.dashboard.states import State, Tone
from relay.lattice import listing, services
from relay.lattice.bridge_resources import FINDINGS, POLICIES, PROCESSES
from relay.lattice.tabs import TAG, VIEW, at, tabs
from relay.resources.declaration import (
    Confirmation,
    Console,
    Resource,
    Shape,
    Values,
    Verb,
)
from relay.resources.fetching import in_memory
from relay.resources.fields import Argument, Field, Filter, Look, Order, Unit, Where
from relay.resources.values import Choice, Moment, Number, Pairs, Real, Text

KEY_CHARS: Final = 56
MAX_DATA_CHARS: Final = 64 * 1024
_HOUR: Final = "in the last hour"
_CONSOLE: Final = Where.CONSOLE | Where.DATA


def _seen_at(row: Any) -> datetime:
    return at(row.seen_at)


def _contains(rows: Iterable[Any], filters: dict[str, str]) -> list[Any]:
    """Rows whose fields contain the texts of the filters."""
    return [
        row
        for row in rows
        if all(text.lower() in getattr(row, name).lower() for name, text in filters.items())
    ]


def _list(kind: Seen, row: type[Any]) -> Callable[..., list[Any]]:
    def items(**filters: str) -> list[Any]:
        return _contains(listing.seen(kind, row), filters)

    return items


_SEEN: Final = Field("seen_at", Moment(), "Time of the last report.", title="Seen", read=_seen_at)


def _key(name: str, description: str, title: str = "") -> Field:
    return Field(name, Text(), description, title=title, look=Look.CODE, quoted=True)


def _text(name: str, description: str, *, shown: bool = True, title: str = "") -> Field:
    return Field(name, Text(), description, title=title, shown=shown, quoted=True)


def _filter(name: str, description: str) -> Filter:
    return Filter(name, Text(MAX_NAME_CHARS), description, hint="or a part of it")


HOSTS: Final = Resource(
    name="lattice_hosts", noun="lattice_host", path="lattice/hosts", word="hosts",
    title="Lattice", tag=TAG, action=VIEW, summary="List hosts of the lattice",
    details="A bridge asks all hosts every ten seconds.",
    schema=Shape("LatticeHostOut", "A host of the lattice."),
    fields=(
        _text("name", "Friendly name of the host."),
        _key("id", "Public key of the host."),
        _key("issuer", "Public key of the cluster that signs the calls of the host."),
        _text("version", "Version of the host's software."),
        Field("uptime_s", Number(), "Seconds since the start of the host.", title="Up",
              unit=Unit.SECONDS),
        Field("actors", Number(), "Kinds of actors that it runs.", unit=Unit.COUNT),
        Field("providers", Number(), "Providers that it runs.", unit=Unit.COUNT),
        _SEEN,
    ),
    filters=(_filter("name", "Friendly name of the host."), _filter("id", "Public key.")),
    orders=(Order("name"), Order("uptime_s")), order="name",
    fetch=in_memory(_list(Seen.HOSTS, HostRow),
                    {"name": lambda row: row.name, "uptime_s": lambda row: row.uptime_s},
                    lambda row: row.id),
    console=Console(live=True, empty="No host answers.", tabs=tabs),
    terminal=("name", "id", "version", "uptime_s", "actors", "providers"),
)  # fmt: skip

ACTORS: Final = Resource(
    name="lattice_actors", noun="lattice_actor", path="lattice/actors", word="actors",
    title="Lattice", tag=TAG, action=VIEW, summary="List actors of the lattice",
    details="One row for each host that runs the actor.",
    schema=Shape("LatticeActorOut", "An actor on a host."),
    fields=(
        _text("name", "Name of the actor, from its claims."),
        _key("id", "Public key of the actor."),
        _key("host_id", "Public key of the host that runs it.", "Host"),
        _text("image", "Reference that the host started it from."),
        Field("instances", Number(), "Maximum number of instances.", unit=Unit.COUNT),
        Field("revision", Number(), "Revision, from the claims of the actor.", unit=Unit.COUNT,
              shown=False),
        _SEEN,
    ),
    filters=(_filter("name", "Name of the actor."), _filter("id", "Public key of the actor."),
             _filter("host_id", "Public key of the host.")),
    orders=(Order("name"), Order("instances")), order="name",
    fetch=in_memory(_list(Seen.ACTORS, ActorRow),
                    {"name": lambda row: row.name, "instances": lambda row: row.instances},
                    lambda row: f"{row.id} {row.host_id}"),
    console=Console(live=True, empty="No host runs an actor.", tabs=tabs),
    terminal=("name", "id", "host_id", "instances"),
)  # fmt: skip

_HEALTH: Final = {
    "passed": State("passed", Tone.GOOD),
    "failed": State("failed", Tone.BAD),
}

PROVIDERS: Final = Resource(
    name="lattice_providers", noun="lattice_provider", path="lattice/providers",
    word="providers", title="Lattice", tag=TAG, action=VIEW,
    summary="List providers of the lattice",
    details="One row for each host that runs the provider, and for each link name. Providers "
    "without a host are listed if a link names them.",
    schema=Shape("LatticeProviderOut", "A provider on a host, or without one."),
    fields=(
        _text("name", "Name of the provider, from its claims."),
        _key("id", "Public key of the provider."),
        _text("link_name", "Link name that it serves.", title="Link"),
        _text("contract_id", "Contract that it serves.", title="Contract"),
        _key("host_id", "Public key of the host that runs it; empty: without a host.", "Host"),
        _text("image", "Reference that the host started it from.", shown=False),
        Field("health", Text(), "Result of the last health check: passed, failed, or empty. A "
              "bridge asks each provider every half minute.", look=Look.STATE,
              show=lambda row: _HEALTH.get(row.health, State("unknown", Tone.IDLE))),
        _text("health_text", "Why it failed: the text of the provider, or of the bridge.",
              title="Why"),
        _SEEN,
    ),
    filters=(_filter("name", "Name of the provider."), _filter("id", "Public key."),
             _filter("contract_id", "Contract.")),
    orders=(Order("name"), Order("contract_id")), order="name",
    fetch=in_memory(_list(Seen.PROVIDERS, ProviderRow),
                    {"name": lambda row: row.name, "contract_id": lambda row: row.contract_id},
                    lambda row: f"{row.id} {row.link_name} {row.host_id}"),
    console=Console(live=True, empty="No provider is known.", tabs=tabs),
    terminal=("name", "id", "link_name", "contract_id", "health"),
)  # fmt: skip


def _link_arguments(*, asked: bool) -> tuple[Argument, ...]:
    return (
        Argument("actor_id", Text(KEY_CHARS, KEY_CHARS), "Public key of the actor (M...).",
                 title="Actor", asked=asked),
        Argument("contract_id", Text(MAX_NAME_CHARS, 1), "Contract of the provider.",
                 title="Contract", asked=asked),
        Argument("link_name", Text(MAX_NAME_CHARS, 1), "Link name.", title="Link",
                 required=False, default="default", asked=asked),
    )  # fmt: skip


def _put_link(
    actor: Actor, actor_id: str, contract_id: str, link_name: str, provider_id: str,
    values: dict[str, str],
) -> Values:  # fmt: skip
    services.put_link(actor_id, provider_id, contract_id, link_name, values, actor=actor)
    return {}


def _delete_link(actor: Actor, actor_id: str, contract_id: str, link_name: str) -> Values:
    services.remove_link(actor_id, contract_id, link_name, actor=actor)
    return {}


PUT_LINK: Final = Verb(
    name="put", noun="link", title="Put a link", action="lattice.link",
    summary="Put a link between an actor and a provider",
    details="The lattice accepts it, and lists it some seconds later. To change the values of a "
    "link, delete it first: providers ignore another put for an actor that is linked already.",
    path="lattice/links", page="lattice/links/put",
    arguments=(
        *_link_arguments(asked=True),
        Argument("provider_id", Text(KEY_CHARS, KEY_CHARS), "Public key of the provider (V...).",
                 title="Provider", asked=True),
        Argument("values", Pairs(), "Values of the link.", required=False, default={}, asked=True),
    ),
    takes=Shape("LatticeLinkIn", "A link."),
    gives=Shape("LatticeLinkPut", "The lattice accepted the link."),
    of_list=lambda given: {},
    run=_put_link,
    confirm=lambda given: Confirmation(
        "Put a link", "The hosts inform the provider, and the actor can then call it. Everyone who "
        "can read the lattice's registry can read the values, also if they are secrets.",
    ),
    done=lambda given, _: f"the lattice accepted the link of {given['actor_id']}",
)  # fmt: skip

DELETE_LINK: Final = Verb(
    name="delete", noun="link", title="Delete", action="lattice.unlink", danger=True,
    summary="Delete a link between an actor and a provider",
    details="The lattice also accepts the request if there is no such link.",
    path="lattice/links/delete",
    arguments=_link_arguments(asked=False),
    takes=Shape("LatticeLinkName", "Name of a link."),
    gives=Shape("LatticeLinkDeleted", "The lattice accepted the request."),
    of_row=lambda row: {name: getattr(row, name)
                        for name in ("actor_id", "contract_id", "link_name")},
    run=_delete_link,
    confirm=lambda given: Confirmation(
        f"Delete the link {given['link_name']}",
        f"The actor {given['actor_id']} can no longer call the provider of the contract "
        f"{given['contract_id']}.",
        ("the values of the link",),
    ),
    done=lambda given, _: f"the lattice accepted to delete the link of {given['actor_id']}",
)  # fmt: skip

LINKS: Final = Resource(
    name="lattice_links", noun="lattice_link", path="lattice/links", word="links",
    title="Lattice", tag=TAG, action=VIEW, summary="List links of the lattice",
    details="Values may hold secrets: only their names are listed.",
    schema=Shape("LatticeLinkOut", "A link between an actor and a provider."),
    fields=(
        _key("actor_id", "Public key of the actor.", "Actor"),
        _key("provider_id", "Public key of the provider.", "Provider"),
        _text("contract_id", "Contract of the provider.", title="Contract"),
        _text("link_name", "Link name of the provider.", title="Link"),
        Field("value_names", Text(), "Names of the link's values, with commas.", title="Values",
              quoted=True, read=lambda row: ", ".join(sorted(row.values))),
        _SEEN,
    ),
    filters=(_filter("actor_id", "Public key of the actor."),
             _filter("provider_id", "Public key of the provider."),
             _filter("contract_id", "Contract.")),
    orders=(Order("contract_id"), Order("actor_id")), order="contract_id",
    fetch=in_memory(_list(Seen.LINKS, LinkRow),
                    {"contract_id": lambda row: row.contract_id,
                     "actor_id": lambda row: row.actor_id},
                    lambda row: f"{row.actor_id} {row.contract_id} {row.link_name}"),
    verbs=(PUT_LINK, DELETE_LINK),
    console=Console(live=True, empty="There is no link.", tabs=tabs),
    terminal=("actor_id", "provider_id", "contract_id", "link_name", "value_names"),
)  # fmt: skip


def _call(
    actor: Actor, target: str, operation: str, data: str, link_name: str, timeout_ms: int
) -> Values:
    return services.call(target, operation, data, link_name, timeout_ms, actor=actor)


CALL: Final = Verb(
    name="call", noun="operation", word="call", title="Call", action="lattice.call",
    summary="Call an operation of an actor or a provider",
    details="The bridge calls with its own key. Policies do not apply to the call.",
    path="lattice/calls", page="lattice/calls/call",
    arguments=(
        Argument("target", Text(MAX_NAME_CHARS, 1), "Public key of an actor or a provider, or the "
                 "call alias of an actor.", asked=True),
        Argument("operation", Text(MAX_OPERATION_CHARS, 1), "Operation, as Interface.Method.",
                 asked=True),
        Argument("data", Text(MAX_DATA_CHARS), "Argument as JSON; empty: none.", title="Argument",
                 required=False, default="", asked=True),
        Argument("link_name", Text(MAX_NAME_CHARS), "Link name, for a provider.", title="Link",
                 required=False, default="", asked=True),
        Argument("timeout_ms", Number(1, services.MAX_CALL_MS), "Milliseconds to wait for the "
                 "answer.", title="Time-out", required=False, default=services.DEFAULT_CALL_MS,
                 asked=True),
    ),
    answer=(
        Field("result", Text(), "Result as JSON; in base64 if it cannot be converted."),
        Field("took_ms", Real(), "Milliseconds that the call took.", unit=Unit.COUNT),
    ),
    takes=Shape("LatticeCallIn", "A call."),
    gives=Shape("LatticeCalled", "The result of a call."),
    of_list=lambda given: {},
    run=_call,
    confirm=lambda given: Confirmation("Call an operation"),
    done=lambda given, answer: f"{given['operation']} returned {answer['result'] or 'nothing'} "
    f"after {answer['took_ms']:.0f} ms",
)  # fmt: skip


def _calls(direction: str = "", entity: str = "", operation: str = "") -> list[listing.Calls]:
    return [
        row
        for row in listing.calls()
        if row.key.direction.startswith(direction)
        and entity.lower() in row.key.entity.lower()
        and operation.lower() in row.key.operation.lower()
    ]


CALLS: Final = Resource(
    name="lattice_calls", noun="lattice_call", path="lattice/calls", word="calls",
    title="Lattice", tag=TAG, action=VIEW, summary="List calls over the bridge by operation",
    details="Counts of the last hour. All refused calls are counted as (others).",
    schema=Shape("LatticeCallsOut", "Calls of an operation over the bridge."),
    fields=(
        Field("direction", Choice(tuple(Direction)), "Direction: an actor calls (to_twin), or a "
              "twin calls (to_lattice).", read=lambda row: row.key.direction),
        Field("entity", Text(), "Public key of the actor or provider.", title="Actor or provider",
              look=Look.CODE, quoted=True, read=lambda row: row.key.entity),
        Field("contract", Text(), "Contract of the provider; empty for calls of actors.",
              quoted=True, read=lambda row: row.key.contract),
        Field("operation", Text(), "Operation of the lattice.", quoted=True,
              read=lambda row: row.key.operation),
        Field("per_s", Real(), f"Calls per second over the last {listing.RATE_MINUTES} minutes.",
              title="Rate", heading="CALLS/S", unit=Unit.PER_SECOND),
        Field("calls", Number(), f"Calls {_HOUR}.", unit=Unit.COUNT),
        Field("errors", Number(), f"Calls that failed or were refused {_HOUR}.", unit=Unit.COUNT),
        Field("mean_ms", Real(), "Mean latency in milliseconds.", title="Mean ms", null=True,
              unit=Unit.COUNT),
        Field("p99_ms", Real(), "Latency in milliseconds that 99 of 100 calls do not exceed, "
              "rounded up to the next bound.", title="p99 ms", null=True, unit=Unit.COUNT,
              read=lambda row: row.quantile_ms(0.99)),
        Field("outcomes", Text(), "Calls by outcome.", shown=False,
              read=lambda row: ", ".join(f"{k} {n}" for k, n in sorted(row.outcomes.items()))),
    ),
    filters=(
        Filter("direction", Choice(tuple(Direction)), "Direction."),
        _filter("entity", "Public key of the actor or provider."),
        Filter("operation", Text(MAX_OPERATION_CHARS), "Operation.", hint="or a part of it"),
    ),
    orders=(Order("calls"), Order("per_s"), Order("errors")), order="-calls",
    fetch=in_memory(_calls, {"calls": lambda row: row.calls, "per_s": lambda row: row.per_s,
                             "errors": lambda row: row.errors},
                    lambda row: " ".join(row.key)),
    verbs=(CALL,),
    console=Console(live=True, empty="No call passed the bridge in the last hour.", tabs=tabs),
    terminal=("direction", "entity", "operation", "per_s", "calls", "errors", "mean_ms", "p99_ms"),
)  # fmt: skip

RESOURCES: Final = (
    HOSTS, ACTORS, PROVIDERS, LINKS, CALLS, FINDINGS, POLICIES, PROCESSES,
)  # fmt: skip
