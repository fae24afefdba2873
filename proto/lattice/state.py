"""Data that the processes of a lattice and the operator site exchange in Redis: names and JSON.

The site writes policies and requests; the bridge and the monitor write everything else. Each value
below is one JSON object, written by `encode` and read by `decode`. Unknown fields are ignored, and
missing ones get their defaults, so that processes of two versions understand each other.

    relay:lattice:policies         string: all policies; changes are published
    relay:lattice:process:<id>     hash of JSON values; expires `PROCESS_TTL_S` after a report
    relay:lattice:processes        sorted set: ids of processes by their last report
    relay:lattice:totals           hash: counts of all processes since the first, by `total_field`
    relay:lattice:hosts, :actors, :providers, :links
                                   hashes: JSON rows by key, of the contents of the lattice
    relay:lattice:calls:<minute>   hash: counts of one minute, kept for `CALLS_TTL_S`
    relay:lattice:findings         stream: field `finding`, the newest `MAX_FINDINGS`
    relay:lattice:requests         list: requests of operators to the bridge
    relay:lattice:answers:<id>     list of one answer; expires after `ANSWER_TTL_S`
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeVar

from proto.lattice.errors import FormatError
from proto.lattice.json_text import read_json, read_object

POLICIES: Final = "relay:lattice:policies"
POLICIES_CHANGED: Final = "relay:lattice:policies:changed"
"""Channel on which the new version is published at each change."""
PROCESSES: Final = "relay:lattice:processes"
TOTALS: Final = "relay:lattice:totals"
FINDINGS: Final = "relay:lattice:findings"
FINDING_FIELD: Final = "finding"
REQUESTS: Final = "relay:lattice:requests"

PROCESS_TTL_S: Final = 15
PROCESS_LISTED_S: Final = 3_600
"""Seconds that a process's id stays in the set; longer than the clocks of machines differ."""
REPORT_EVERY_S: Final = 1.0
SEEN_TTL_S: Final = 120
CALLS_TTL_S: Final = 3_900
"""Seconds that counts are kept: an hour of minutes, and the minute that is being counted."""
ANSWER_TTL_S: Final = 60
REQUEST_TIMEOUT_S: Final = 10.0
MAX_REQUESTS: Final = 1_000
"""Maximum number of waiting requests; further ones are refused."""
MAX_FINDINGS: Final = 10_000
MAX_JSON_CHARS: Final = 1024 * 1024


class Seen(StrEnum):
    """Contents of a lattice; the value is the key of their hash."""

    HOSTS = "relay:lattice:hosts"
    ACTORS = "relay:lattice:actors"
    PROVIDERS = "relay:lattice:providers"
    LINKS = "relay:lattice:links"


class ProcessKind(StrEnum):
    """Kind of a process."""

    BRIDGE = "bridge"
    MONITOR = "monitor"
    NATS = "nats"


class Total(StrEnum):
    """Counts since the first process; each docstring names the labels of the count's fields."""

    CALLS = "calls"
    """Calls over the bridge, by direction and outcome: `ok`, `refused`, or why the call failed."""
    REFUSED = "refused"
    """Calls that the bridge refused, by direction and reason."""
    JUDGED = "judged"
    """Invocations that a monitor checked."""
    UNJUDGED = "unjudged"
    """Invocations that arrived faster than a monitor could check them."""
    FOUND = "found"
    """Findings of monitors, by reason."""
    UNRECORDED = "unrecorded"
    """Invocations that are missing in the lake, because it did not keep up."""


class Verb(StrEnum):
    """Kinds of requests that operators send to the bridge."""

    PUT_LINK = "put_link"
    DEL_LINK = "del_link"
    CALL = "call"


@dataclass(frozen=True, slots=True)
class HostRow:
    """A host, by its id.

    Attributes:
        id: public key of the host (`N...`).
        name: friendly name.
        issuer: cluster key (`C...`) that signs its calls.
        version: version of its software.
        uptime_s: seconds since its start.
        labels: labels of the host.
        actors: number of different actors that it runs.
        providers: number of providers that it runs.
        seen_at: time of its last answer, in seconds since 1970.
    """

    id: str = ""
    name: str = ""
    issuer: str = ""
    version: str = ""
    uptime_s: int = 0
    labels: dict[str, str] = field(default_factory=dict)
    actors: int = 0
    providers: int = 0
    seen_at: float = 0.0


@dataclass(frozen=True, slots=True)
class ActorRow:
    """An actor on a host, by `row_key(id, host_id)`.

    Attributes:
        id: public key of the actor (`M...`).
        name: name from its claims.
        host_id: id of the host that runs it.
        image: image from which it was started.
        instances: maximum number of instances at once.
        revision: revision from its claims.
        seen_at: time of the host's last report, in seconds since 1970.
    """

    id: str = ""
    name: str = ""
    host_id: str = ""
    image: str = ""
    instances: int = 0
    revision: int = 0
    seen_at: float = 0.0


@dataclass(frozen=True, slots=True)
class ProviderRow:
    """A provider, by `row_key(id, link_name, host_id)`.

    Attributes:
        id: public key of the provider (`V...`).
        name: name from its claims.
        host_id: id of the host that runs it; empty: it runs without a host.
        link_name: link name that it serves.
        contract_id: contract that it serves.
        image: image from which it was started.
        revision: revision from its claims.
        health: `passed`, `failed`, or empty if unknown.
        health_text: what is wrong; empty: nothing, or unknown.
        seen_at: time of the last report, in seconds since 1970.
    """

    id: str = ""
    name: str = ""
    host_id: str = ""
    link_name: str = ""
    contract_id: str = ""
    image: str = ""
    revision: int = 0
    health: str = ""
    health_text: str = ""
    seen_at: float = 0.0


@dataclass(frozen=True, slots=True)
class LinkRow:
    """A link, by `row_key(actor_id, contract_id, link_name)`; its values may contain secrets.

    Attributes:
        actor_id: public key of the actor (`M...`).
        provider_id: public key of the provider (`V...`).
        link_name: link name of the provider.
        contract_id: contract of the provider.
        values: settings by name.
        seen_at: time of the last report, in seconds since 1970.
    """

    actor_id: str = ""
    provider_id: str = ""
    link_name: str = ""
    contract_id: str = ""
    values: dict[str, str] = field(default_factory=dict)
    seen_at: float = 0.0


@dataclass(frozen=True, slots=True)
class FindingRow:
    """What the monitor found wrong with one invocation. Texts are cut, and contain no payload.

    In a flood, one row stands for all further findings of a reason within a second: it has a
    count, but no details of the messages.

    Attributes:
        reason: a `Reason`.
        text: what is wrong.
        at: time at which the message was seen, in seconds since 1970.
        subject: subject on which it was seen.
        size: size of the message, in bytes.
        origin: URL of the origin, as claimed.
        target: URL of the target.
        operation: operation that is called.
        host_id: host id, as claimed.
        issuer: cluster key that signed it; empty: it has no valid signature.
        id: id of the invocation.
        count: number of invocations that the row stands for.
    """

    reason: str = ""
    text: str = ""
    at: float = 0.0
    subject: str = ""
    size: int = 0
    origin: str = ""
    target: str = ""
    operation: str = ""
    host_id: str = ""
    issuer: str = ""
    id: str = ""
    count: int = 1


@dataclass(frozen=True, slots=True)
class Request:
    """A request of an operator.

    Attributes:
        id: id of the request, which names the answer.
        verb: a `Verb`.
        arguments: arguments of the verb.
        deadline: time after which the request is ignored, in seconds since 1970.
    """

    id: str = ""
    verb: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    deadline: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request.

    Attributes:
        error: why it failed; empty: it succeeded.
        result: result of the verb.
    """

    error: str = ""
    result: dict[str, Any] = field(default_factory=dict)


class CallField(NamedTuple):
    """A field in the counts of a minute.

    Attributes:
        direction: direction of the call.
        entity: public key of the actor or provider.
        contract: contract of the provider; empty for calls of actors.
        operation: operation that is called.
        what: an outcome, `ms` for the sum of latencies, or `<n` for a class of calls that took at
            most n ms.
    """

    direction: str
    entity: str
    contract: str
    operation: str
    what: str

    def encode(self) -> str:
        """Return the name of the field."""
        return json.dumps(list(self))


Row = TypeVar("Row", HostRow, ActorRow, ProviderRow, LinkRow, FindingRow, Request, Answer)


def process_key(process_id: str) -> str:
    """Return the key of a process's report."""
    return f"relay:lattice:process:{process_id}"


def total_field(total: Total, *labels: str) -> str:
    """Return the field of a count; labels are single words."""
    return " ".join((total, *labels))


def calls_key(minute: int) -> str:
    """Return the key of the counts of a minute since 1970."""
    return f"relay:lattice:calls:{minute}"


def answer_key(request_id: str) -> str:
    """Return the key of the answer to a request."""
    return f"relay:lattice:answers:{request_id}"


def row_key(*parts: str) -> str:
    """Return the key of a row in its hash."""
    return json.dumps(parts)


def encode(row: Row) -> str:
    """Return the JSON of a value."""
    return json.dumps(asdict(row))


def decode(kind: type[Row], data: str | bytes) -> Row:
    """Read the JSON of a value.

    Raises:
        FormatError: the value is malformed or too long, or a field is of another type.
    """
    what = kind.__name__
    record = read_object(data, what, MAX_JSON_CHARS)
    defaults = kind()
    known = {each.name: getattr(defaults, each.name) for each in fields(kind)}
    given = {name: value for name, value in record.items() if name in known}
    for name, value in given.items():
        expected = type(known[name])
        if type(value) is not expected and not (expected is float and type(value) is int):
            raise FormatError(
                f"{what}: field {name!r} is {type(value).__name__}, expected {expected.__name__}",
                name,
            )
    return kind(**given)


def decode_call_field(data: str | bytes) -> CallField:
    """Read the name of a field in the counts of a minute.

    Raises:
        FormatError: the name is malformed.
    """
    parts = read_json(data, "CallField", MAX_JSON_CHARS)
    if type(parts) is not list or len(parts) != len(CallField._fields):
        raise FormatError(f"CallField: expected {len(CallField._fields)} texts")
    if not {str}.issuperset(map(type, parts)):
        raise FormatError("CallField: expected texts only")
    return CallField(*parts)
