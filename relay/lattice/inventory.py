"""The contents of the lattice's hosts as resources: hosts, actors, providers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from proto.lattice.nkeys import PUBLIC_CHARS
from proto.lattice.state import ActorRow, HostRow, ProviderRow, Seen
from relay.access.errors import NotFound
from relay.dashboard.states import State, Tone
from relay.lattice import listing
from relay.lattice.naming import (
    Named,
    field_of,
    filter_of,
    key_of,
    matching,
    name_of,
    named,
    text_of,
)
from relay.lattice.tabs import TAG, VIEW, at, tabs
from relay.resources.declaration import Console, Identity, Related, Resource, Shape
from relay.resources.fetching import by_field, in_memory
from relay.resources.fields import Field, Filter, Look, Order, Unit
from relay.resources.values import Choice, Moment, Number, Pairs, Text


def rows_of(kind: Seen, row: type[Any], fields: tuple[Field, ...]) -> Callable[..., list[Named]]:
    """Return a function that fetches the rows of a kind by filters."""

    def items(**filters: str) -> list[Named]:
        return matching(named(listing.seen(kind, row)), fields, filters)

    return items


def _one(kind: Seen, row: type[Any], noun: str) -> Callable[[str], Named]:
    def get(key: str) -> Named:
        found = [each for each in listing.seen(kind, row) if each.id == key]
        if not found:
            raise NotFound(f"the lattice has no {noun} {key}")
        return named(found)[0]

    return get


def _by_key(noun: str, kind: Seen, row: type[Any]) -> Identity:
    return Identity(
        "id", Text(PUBLIC_CHARS), f"Public key of the {noun}.", _one(kind, row, noun),
        f"Get {'an' if noun[0] == 'a' else 'a'} {noun} of the lattice", "id",
        read=lambda found: found.row.id,
    )  # fmt: skip


def _title(found: Named) -> str:
    return f"{found.row.name or found.row.id}"


SEEN: Final = field_of("seen_at", Moment(), "Time of the last report.", title="Seen",
                        read=lambda found: at(found.row.seen_at))  # fmt: skip
_HOST_NAME: Final = name_of("host_name", "host", lambda row: row.host_id, title="Host")

_HOSTS: Final = (
    text_of("name", "Friendly name of the host."),
    key_of("id", "Public key of the host.", title="Key", link=None),
    key_of("issuer", "Public key of the cluster that signs the calls of the host.", link=None,
           shown=False),
    text_of("version", "Version of the host's software."),
    field_of("uptime_s", Number(), "Seconds since the start of the host.", title="Up",
             unit=Unit.SECONDS),
    field_of("actors", Number(), "Kinds of actors that it runs.", unit=Unit.COUNT),
    field_of("providers", Number(), "Providers that it runs.", unit=Unit.COUNT),
    field_of("labels", Pairs(), "Labels of the host.", shown=False),
    SEEN,
)  # fmt: skip
_HOST_ORDERS: Final = by_field(*(each for each in _HOSTS if each.name != "labels"))

HOSTS: Final = Resource(
    name="lattice_hosts", noun="lattice_host", path="lattice/hosts", word="hosts",
    title="Lattice", tag=TAG, action=VIEW, summary="List hosts of the lattice",
    details="A bridge asks all hosts every ten seconds.",
    schema=Shape("LatticeHostOut", "A host of the lattice."),
    fields=_HOSTS,
    filters=(filter_of("name", "Friendly name of the host."),
             filter_of("id", "Public key of the host.", title="Key"),
             filter_of("version", "Version of the host's software.")),
    orders=tuple(map(Order, _HOST_ORDERS)), order="name",
    fetch=in_memory(rows_of(Seen.HOSTS, HostRow, _HOSTS), _HOST_ORDERS, lambda found: found.row.id),
    identity=_by_key("host", Seen.HOSTS, HostRow),
    console=Console(
        live=True, tabs=tabs, title=lambda found: f"Host {_title(found)}",
        empty="No hosts yet: none answers at lattice.servers for the lattice of lattice.name. "
        "Processes shows whether a bridge is connected.",
        related=(
            Related("Actors", "lattice_actors", "host_id", ("host_name", "host_id")),
            Related("Providers", "lattice_providers", "host_id", ("host_name", "host_id")),
        ),
    ),
    terminal=("name", "id", "version", "uptime_s", "actors", "providers"),
)  # fmt: skip

_ACTORS: Final = (
    text_of("name", "Name of the actor, from its claims."),
    key_of("id", "Public key of the actor.", title="Key", link=None),
    _HOST_NAME,
    key_of("host_id", "Public key of the host that runs it.", title="Key of host", shown=False),
    text_of("image", "Reference that the host started it from."),
    field_of("instances", Number(), "Maximum number of instances.", unit=Unit.COUNT),
    field_of("revision", Number(), "Revision, from the claims of the actor.", unit=Unit.COUNT,
             shown=False),
    SEEN,
)  # fmt: skip
_ACTOR_ORDERS: Final = by_field(*_ACTORS)
_OF_BOTH: Final = (
    Related("Calls in the last hour", "lattice_calls", "entity", ("name", "entity")),
    Related("Findings", "lattice_findings", "origin", ("caller",)),
)
"""Lists related to an actor, and to a provider."""

ACTORS: Final = Resource(
    name="lattice_actors", noun="lattice_actor", path="lattice/actors", word="actors",
    title="Lattice", tag=TAG, action=VIEW, summary="List actors of the lattice",
    details="One row for each host that runs the actor. Programs without a host are not listed.",
    schema=Shape("LatticeActorOut", "An actor on a host."),
    fields=_ACTORS,
    filters=(filter_of("name", "Name of the actor."),
             filter_of("id", "Public key of the actor.", title="Key"),
             filter_of("host_name", "Name of the host.", title="Host"),
             filter_of("host_id", "Public key of the host.", title="Key of host"),
             filter_of("image", "Reference that the host started it from.")),
    orders=tuple(map(Order, _ACTOR_ORDERS)), order="name",
    fetch=in_memory(rows_of(Seen.ACTORS, ActorRow, _ACTORS), _ACTOR_ORDERS,
                    lambda found: f"{found.row.id} {found.row.host_id}"),
    identity=_by_key("actor", Seen.ACTORS, ActorRow),
    console=Console(
        live=True, tabs=tabs, title=lambda found: f"Actor {_title(found)}",
        empty="No actors yet: no host runs one. Programs without a host are not listed here.",
        related=(
            Related("Hosts that run it", "lattice_actors", "id", ("name", "id")),
            Related("Links", "lattice_links", "actor_id", ("actor_name", "actor_id")),
            *_OF_BOTH,
        ),
    ),
    terminal=("name", "id", "host_name", "instances"),
)  # fmt: skip

_HEALTH: Final = {
    "passed": State("passed", Tone.GOOD),
    "failed": State("failed", Tone.BAD),
}
_PROVIDERS: Final = (
    text_of("name", "Name of the provider, from its claims."),
    key_of("id", "Public key of the provider.", title="Key", link=None),
    text_of("link_name", "Link name that it serves.", title="Link"),
    text_of("contract_id", "Contract that it serves.", title="Contract"),
    _HOST_NAME,
    key_of("host_id", "Public key of the host that runs it; empty: without a host.",
           title="Key of host", shown=False),
    text_of("image", "Reference that the host started it from.", shown=False),
    field_of("revision", Number(), "Revision, from the claims of the provider.", unit=Unit.COUNT,
             shown=False),
    field_of("health", Text(), "Result of the last health check: passed, failed, or empty. A "
             "bridge asks each provider every half minute.", look=Look.STATE,
             show=lambda found: _HEALTH.get(found.row.health, State("unknown", Tone.IDLE))),
    text_of("health_text", "Why it failed: the text of the provider, or of the bridge.",
            title="Why"),
    SEEN,
)  # fmt: skip
_PROVIDER_ORDERS: Final = by_field(*_PROVIDERS)

PROVIDERS: Final = Resource(
    name="lattice_providers", noun="lattice_provider", path="lattice/providers",
    word="providers", title="Lattice", tag=TAG, action=VIEW,
    summary="List providers of the lattice",
    details="One row for each host that runs the provider, and for each link name. Providers "
    "without a host are listed if a link names them.",
    schema=Shape("LatticeProviderOut", "A provider on a host, or without one."),
    fields=_PROVIDERS,
    filters=(filter_of("name", "Name of the provider."),
             filter_of("id", "Public key of the provider.", title="Key"),
             filter_of("contract_id", "Contract.", title="Contract"),
             filter_of("host_id", "Public key of the host.", title="Key of host"),
             Filter("health", Choice(tuple(_HEALTH)), "Result of the last health check.")),
    orders=tuple(map(Order, _PROVIDER_ORDERS)), order="name",
    fetch=in_memory(rows_of(Seen.PROVIDERS, ProviderRow, _PROVIDERS), _PROVIDER_ORDERS,
                    lambda found: f"{found.row.id} {found.row.link_name} {found.row.host_id}"),
    identity=_by_key("provider", Seen.PROVIDERS, ProviderRow),
    console=Console(
        live=True, tabs=tabs, title=lambda found: f"Provider {_title(found)}",
        empty="No providers yet: no host runs one, and no link names one.",
        related=(
            Related("Hosts and link names", "lattice_providers", "id", ("name", "id")),
            Related("Links", "lattice_links", "provider_id", ("provider_name", "provider_id")),
            *_OF_BOTH,
        ),
    ),
    terminal=("name", "id", "link_name", "contract_id", "health"),
)  # fmt: skip
