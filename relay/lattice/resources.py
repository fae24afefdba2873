"""The lattice as resources: hosts, actors, providers, links, calls, findings, policies, processes.

Contents, calls and findings of the lattice are read from Redis, where the bridge and the monitor
write them each second; policies are in the database.
"""

from __future__ import annotations

import json
from typing import Any, Final

from proto.lattice.bounds import MAX_NAME_CHARS, MAX_OPERATION_CHARS
from proto.lattice.nkeys import PUBLIC_CHARS, KeyKind
from proto.lattice.policy import Direction
from proto.lattice.state import LinkRow, Seen
from relay.access.actor import Actor
from relay.lattice import listing, services
from relay.lattice.bridge_resources import FINDINGS, POLICIES, PROCESSES
from relay.lattice.inventory import ACTORS, HOSTS, PROVIDERS, SEEN, rows_of
from relay.lattice.naming import (
    Named,
    field_of,
    filter_of,
    form_of,
    key_of,
    matching,
    name_of,
    named,
    text_of,
)
from relay.lattice.tabs import TAG, VIEW, directions, tabs
from relay.resources.declaration import (
    Confirmation,
    Console,
    Resource,
    Shape,
    Values,
    Verb,
)
from relay.resources.fetching import by_field, in_memory
from relay.resources.fields import Argument, Field, Filter, Look, Order, Unit
from relay.resources.values import Choice, Number, Pairs, Real, Text

MAX_DATA_CHARS: Final = 64 * 1024
MAX_SHOWN_CHARS: Final = 1000
_HOUR: Final = "in the last hour"


def _key(kind: KeyKind) -> Text:
    return Text(PUBLIC_CHARS, PUBLIC_CHARS, form_of(kind))


def _link_arguments(*, asked: bool) -> tuple[Argument, ...]:
    return (
        Argument("actor_id", _key(KeyKind.ACTOR), "Public key of the actor (M...).",
                 title="Actor", asked=asked),
        Argument("contract_id", Text(MAX_NAME_CHARS, 1), "Contract of the provider; rmb:twin for "
                 "the bridge.",
                 title="Contract", asked=asked),
        Argument("link_name", Text(MAX_NAME_CHARS, 1), "Link name of the provider.",
                 title="Link",
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
        Argument("provider_id", _key(KeyKind.PROVIDER), "Public key of the provider (V...). "
                 "Processes lists the key of the bridge.", title="Provider", asked=True),
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
    done=lambda given, _: f"the lattice accepted the link of {given['actor_id']}, and lists it "
    "some seconds later",
)  # fmt: skip

DELETE_LINK: Final = Verb(
    name="delete", noun="link", title="Delete", action="lattice.unlink", danger=True,
    summary="Delete a link between an actor and a provider",
    details="The lattice also accepts the request if there is no such link.",
    path="lattice/links/delete",
    arguments=_link_arguments(asked=False),
    takes=Shape("LatticeLinkName", "Name of a link."),
    gives=Shape("LatticeLinkDeleted", "The lattice accepted the request."),
    of_row=lambda found: {name: getattr(found.row, name)
                          for name in ("actor_id", "contract_id", "link_name")},
    run=_delete_link,
    confirm=lambda given: Confirmation(
        f"Delete the link {given['link_name']}",
        f"The actor {given['actor_id']} can no longer call the provider of the contract "
        f"{given['contract_id']}.",
        ("the values of the link",),
    ),
    done=lambda given, _: f"the lattice accepted to delete the link of {given['actor_id']}, and "
    "lists it for some more seconds",
)  # fmt: skip

_LINKS: Final = (
    name_of("actor_name", "actor", lambda row: row.actor_id, title="Actor"),
    key_of("actor_id", "Public key of the actor.", title="Key of actor"),
    name_of("provider_name", "provider", lambda row: row.provider_id, title="Provider"),
    key_of("provider_id", "Public key of the provider.", title="Key of provider"),
    text_of("contract_id", "Contract of the provider.", title="Contract"),
    text_of("link_name", "Link name of the provider.", title="Link"),
    text_of("value_names", "Names of the link's values, with commas.", title="Values",
            read=lambda found: ", ".join(sorted(found.row.values))),
    SEEN,
)  # fmt: skip
_LINK_ORDERS: Final = by_field(*_LINKS)

LINKS: Final = Resource(
    name="lattice_links", noun="lattice_link", path="lattice/links", word="links",
    title="Lattice", tag=TAG, action=VIEW, summary="List links of the lattice",
    details="Values may hold secrets: only their names are listed.",
    schema=Shape("LatticeLinkOut", "A link between an actor and a provider."),
    fields=_LINKS,
    filters=(filter_of("actor_name", "Name of the actor.", title="Actor"),
             filter_of("actor_id", "Public key of the actor.", title="Key of actor"),
             filter_of("provider_name", "Name of the provider.", title="Provider"),
             filter_of("provider_id", "Public key of the provider.", title="Key of provider"),
             filter_of("contract_id", "Contract.", title="Contract")),
    orders=tuple(map(Order, _LINK_ORDERS)), order="contract_id",
    fetch=in_memory(rows_of(Seen.LINKS, LinkRow, _LINKS), _LINK_ORDERS,
                    lambda found: " ".join((found.row.actor_id, found.row.contract_id,
                                            found.row.link_name))),
    verbs=(PUT_LINK, DELETE_LINK),
    console=Console(
        live=True, tabs=tabs,
        empty="No links yet. Put a link so that an actor can call a provider, or the bridge with "
        "the contract rmb:twin.",
    ),
    terminal=("actor_id", "provider_id", "contract_id", "link_name", "value_names"),
)  # fmt: skip


def _check_json(text: str) -> None:
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON: {error}") from None


def _short(result: str) -> str:
    """Return the part of a result that a message of the console shows."""
    return result if len(result) <= MAX_SHOWN_CHARS else f"{result[:MAX_SHOWN_CHARS]}..."


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
        Argument("data", Text(MAX_DATA_CHARS, form=_check_json), "Argument as JSON; empty: none.",
                 title="Argument", required=False, default="", asked=True),
        Argument("link_name", Text(MAX_NAME_CHARS), "Link name, for a provider.", title="Link",
                 required=False, default="", asked=True),
        Argument("timeout_ms", Number(1, services.MAX_CALL_MS), "Milliseconds to wait for the "
                 "answer.", title="Time-out in ms", required=False,
                 default=services.DEFAULT_CALL_MS, asked=True),
    ),
    answer=(
        Field("result", Text(), "Result as JSON; in base64 if it cannot be converted."),
        Field("took_ms", Real(), "Milliseconds that the call took.", unit=Unit.MILLISECONDS),
    ),
    takes=Shape("LatticeCallIn", "A call."),
    gives=Shape("LatticeCalled", "The result of a call."),
    of_list=lambda given: {},
    run=_call,
    confirm=lambda given: Confirmation(
        "Call an operation", "The bridge makes this call with its own key; policies do not apply."
    ),
    done=lambda given, answer: f"{given['operation']} returned "
    f"{_short(answer['result']) or 'nothing'} after {answer['took_ms']:.0f} ms",
)  # fmt: skip


def _calls(**filters: str) -> list[Named]:
    return matching(named(listing.calls()), _CALLS, filters)


def _counted(name: str, description: str, **more: Any) -> Field:
    """Return a field that reads a part of the key of counted calls."""
    return text_of(name, description, read=lambda found: getattr(found.row.key, name), **more)


_CALLS: Final = (
    field_of("direction", Choice(tuple(Direction)), "Direction: an actor calls (to_twin), or a "
             "twin calls (to_lattice).", labels=directions,
             read=lambda found: found.row.key.direction),
    name_of("name", "actor or provider", lambda row: row.key.entity, title="Actor or provider"),
    key_of("entity", "Public key of the actor or provider.", title="Key",
           read=lambda found: found.row.key.entity),
    _counted("contract", "Contract of the provider; empty for calls of actors.", shown=False),
    _counted("operation", "Operation of the lattice.", look=Look.CODE),
    field_of("per_s", Real(), f"Calls per second over the last {listing.RATE_MINUTES} minutes.",
             title="Rate", heading="CALLS/S", unit=Unit.PER_SECOND),
    field_of("calls", Number(), f"Calls {_HOUR}.", unit=Unit.COUNT),
    field_of("errors", Number(), f"Calls that failed or were refused {_HOUR}.", unit=Unit.COUNT),
    field_of("mean_ms", Real(), "Mean latency in milliseconds.", title="Mean", null=True,
             unit=Unit.MILLISECONDS),
    field_of("p99_ms", Real(), "Latency in milliseconds that 99 of 100 calls do not exceed, "
             "rounded up to the next bound.", title="p99", null=True, unit=Unit.MILLISECONDS,
             read=lambda found: found.row.quantile_ms(0.99)),
    text_of("outcomes", "Calls by outcome.", shown=False,
            read=lambda found: ", ".join(f"{outcome} {count}" for outcome, count
                                         in sorted(found.row.outcomes.items()))),
)  # fmt: skip
_CALL_ORDERS: Final = by_field(*_CALLS)

CALLS: Final = Resource(
    name="lattice_calls", noun="lattice_call", path="lattice/calls", word="calls",
    title="Lattice", tag=TAG, action=VIEW, summary="List calls over the bridge by operation",
    details="Counts of the last hour. All refused calls are counted as (others).",
    schema=Shape("LatticeCallsOut", "Calls of an operation over the bridge."),
    fields=_CALLS,
    filters=(
        Filter("direction", Choice(tuple(Direction)), "Direction of the calls.", labels=directions),
        filter_of("name", "Name of the actor or provider.", title="Actor or provider"),
        filter_of("entity", "Public key of the actor or provider.", title="Key"),
        Filter("operation", Text(MAX_OPERATION_CHARS), "Operation.", hint="or a part of it"),
    ),
    orders=tuple(map(Order, _CALL_ORDERS)), order="-calls",
    fetch=in_memory(_calls, _CALL_ORDERS, lambda found: " ".join(found.row.key)),
    verbs=(CALL,),
    console=Console(
        live=True, tabs=tabs,
        empty="No calls in the last hour. Policies say which calls pass the bridge; actors that "
        "call also need a link.",
    ),
    terminal=("direction", "name", "entity", "operation", "per_s", "calls", "errors", "mean_ms",
              "p99_ms"),
)  # fmt: skip

RESOURCES: Final = (
    HOSTS, ACTORS, PROVIDERS, LINKS, CALLS, FINDINGS, POLICIES, PROCESSES,
)  # fmt: skip
