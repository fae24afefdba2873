"""What the processes of a lattice and the operator site tell each other in Redis: names and JSON.

The site writes the policies and requests; the bridge and the monitor write all else. Each value
below is one JSON object, by `encode` and `decode`: unknown fields are ignored and missing ones have
their defaults, so that processes of two versions understand each other.

    relay:lattice:policies         string: all policies; changes are published
    relay:lattice:process:<id>     hash of JSON values; gone `PROCESS_TTL_S` after its process ended
    relay:lattice:processes        sorted set: ids of processes by their last report
    relay:lattice:totals           hash: counts of all processes since the first, by `total_field`
    relay:lattice:hosts, :actors, :providers, :links
                                   hashes: JSON rows by their key, of what the lattice runs
    relay:lattice:calls:<minute>   hash: counts of one minute, kept for `CALLS_TTL_S`
    relay:lattice:findings         stream: field `finding`, the newest `MAX_FINDINGS`
    relay:lattice:requests         list: what operators ask the bridge to do
    relay:lattice:answers:<id>     list of one answer, gone after `ANSWER_TTL_S`
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
"""Channel: each message is the new version."""
PROCESSES: Final = "relay:lattice:processes"
TOTALS: Final = "relay:lattice:totals"
FINDINGS: Final = "relay:lattice:findings"
FINDING_FIELD: Final = "finding"
REQUESTS: Final = "relay:lattice:requests"

PROCESS_TTL_S: Final = 15
PROCESS_LISTED_S: Final = 3_600
"""How long the id of a process stays in the set; longer than clocks of machines differ."""
REPORT_EVERY_S: Final = 1.0
SEEN_TTL_S: Final = 120
CALLS_TTL_S: Final = 3_900
"""An hour of minutes, and the one that is being counted."""
ANSWER_TTL_S: Final = 60
REQUEST_TIMEOUT_S: Final = 10.0
MAX_REQUESTS: Final = 1_000
"""Waiting at once; further ones are refused."""
MAX_FINDINGS: Final = 10_000
MAX_JSON_CHARS: Final = 1024 * 1024


class Seen(StrEnum):
    """What a lattice runs; the value is the key of its hash."""

    HOSTS = "relay:lattice:hosts"
    ACTORS = "relay:lattice:actors"
    PROVIDERS = "relay:lattice:providers"
    LINKS = "relay:lattice:links"


class ProcessKind(StrEnum):
    """What a process is."""

    BRIDGE = "bridge"
    MONITOR = "monitor"
    NATS = "nats"


class Total(StrEnum):
    """What is counted since the first process, and the labels of its fields."""

    CALLS = "calls"
    """Over the bridge; direction and outcome: `ok`, `refused`, or why it failed."""
    REFUSED = "refused"
    """By the bridge; direction and reason."""
    JUDGED = "judged"
    """Invocations that a monitor checked."""
    UNJUDGED = "unjudged"
    """Invocations that came faster than a monitor could check them."""
    FOUND = "found"
    """Findings of monitors; reason."""
    UNRECORDED = "unrecorded"
    """Invocations that are missing in the lake, which did not keep up."""


class Verb(StrEnum):
    """What operators ask of the bridge."""

    PUT_LINK = "put_link"
    DEL_LINK = "del_link"
    CALL = "call"


@dataclass(frozen=True, slots=True)
class HostRow:
    """A host, by its id.

    Attributes:
        id: `N...`
        name: friendly name.
        issuer: `C...` that signs its calls.
        version: of its software.
        uptime_s: since its start.
        labels: of the host.
        actors: how many kinds of actors it runs.
        providers: how many it runs.
        seen_at: when it answered last, in seconds.
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
        id: `M...`
        name: from its claims.
        host_id: where it runs.
        image: reference it was started from.
        instances: at most at once.
        revision: from its claims.
        seen_at: when the host reported it last, in seconds.
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
    """A provider on a host, by `row_key(id, link_name, host_id)`.

    Attributes:
        id: `V...`
        name: from its claims.
        host_id: where it runs; empty: without a host.
        link_name: it serves.
        contract_id: it serves.
        image: reference it was started from.
        revision: from its claims.
        health: `passed`, `failed`, or empty: unknown.
        health_text: what is wrong; empty: nothing, or not known.
        seen_at: when it was reported last, in seconds.
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
    """A link, by `row_key(actor_id, contract_id, link_name)`; its values may hold secrets.

    Attributes:
        actor_id: `M...`
        provider_id: `V...`
        link_name: of the provider.
        contract_id: of the provider.
        values: settings.
        seen_at: when it was reported last, in seconds.
    """

    actor_id: str = ""
    provider_id: str = ""
    link_name: str = ""
    contract_id: str = ""
    values: dict[str, str] = field(default_factory=dict)
    seen_at: float = 0.0


@dataclass(frozen=True, slots=True)
class FindingRow:
    """What the monitor found wrong with one invocation; texts are cut, and no payload is in it.

    In a flood, one row stands for all further findings of a reason within a second: it has a
    count, and nothing of the messages.

    Attributes:
        reason: a `Reason`.
        text: what is wrong.
        at: when it was seen, in seconds.
        subject: where it was seen.
        size: of the message, in bytes.
        origin: URL, as claimed.
        target: URL.
        operation: of the call.
        host_id: as claimed.
        issuer: whose signature it has; empty: none that fits.
        id: of the invocation.
        count: invocations that the row stands for.
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
    """What an operator asks for.

    Attributes:
        id: names the answer.
        verb: a `Verb`.
        arguments: of the verb.
        deadline: after which nothing is done any more, in seconds.
    """

    id: str = ""
    verb: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    deadline: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a request.

    Attributes:
        error: why it failed; empty: it did not.
        result: of the verb.
    """

    error: str = ""
    result: dict[str, Any] = field(default_factory=dict)


class CallField(NamedTuple):
    """A field of the counts of a minute.

    Attributes:
        direction: who calls whom.
        entity: public key of the actor or provider.
        contract: of the provider; empty for calls of actors.
        operation: of the call.
        what: an outcome, `ms` for the sum of latencies, or `<n` for calls of at most n ms.
    """

    direction: str
    entity: str
    contract: str
    operation: str
    what: str

    def encode(self) -> str:
        """Return the field's name."""
        return json.dumps(list(self))


Row = TypeVar("Row", HostRow, ActorRow, ProviderRow, LinkRow, FindingRow, Request, Answer)


def process_key(process_id: str) -> str:
    """Return the key of a process."""
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
        FormatError: malformed, too long, or a field of another type.
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
    """Read a field of the counts of a minute.

    Raises:
        FormatError: malformed.
    """
    parts = read_json(data, "CallField", MAX_JSON_CHARS)
    if type(parts) is not list or len(parts) != len(CallField._fields):
        raise FormatError(f"CallField: expected {len(CallField._fields)} texts")
    if not {str}.issuperset(map(type, parts)):
        raise FormatError("CallField: expected texts only")
    return CallField(*parts)
