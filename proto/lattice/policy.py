"""What the bridge between twins and a lattice allows: policies, and the values of links.

A call needs a policy that allows it: the first enabled policy of its direction that matches the
twin, the lattice's entity, and the command or operation decides, also about rate, size and
time-out. A call from an actor to a twin must be allowed by the values of the actor's link too.

A pattern is a text in which `*` stands for any characters, including dots.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple

from proto.identity.bounds import MAX_TWIN
from proto.limits.bucket import TokenBuckets

MAX_POLICIES: Final = 1000
MAX_PATTERNS: Final = 64
"""Maximum number of patterns in one field of a policy or a link."""
MAX_PATTERN_CHARS: Final = 256
MAX_STARS: Final = 4
"""Maximum number of stars in one pattern: each one costs another pass over the text."""
MAX_NAME_CHARS: Final = 64
MAX_RATE_PER_S: Final = 1_000_000
MAX_BYTES: Final = 16 * 1024 * 1024
MAX_TIMEOUT_MS: Final = 600_000
DEFAULT_TIMEOUT_MS: Final = 30_000
MAX_RATED: Final = 65_536
"""Maximum number of pairs of twin and entity whose rates are tracked, for each policy."""

LINK_TWINS: Final = "twins"
LINK_COMMANDS: Final = "commands"
LINK_SERVES: Final = "serves"
"""Keys of a link's values, each a comma-separated list: `twins`, the twins that the actor may call
and that may call it; `commands`, the commands that it may call; `serves`, the commands of the
bridge's twin that it answers."""


class Direction(StrEnum):
    """Direction of a call over the bridge."""

    TO_TWIN = "to_twin"
    TO_LATTICE = "to_lattice"


class Refusal(StrEnum):
    """Reasons for which the bridge refuses a call."""

    NO_POLICY = "no_policy"
    LINK = "link"
    RATE = "rate"
    SIZE = "size"


class PolicyError(ValueError):
    """A field is invalid: `field` is its name, and the text states what is allowed."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(f"{field}: {text}")
        self.field = field
        self.text = text


class RefusedError(Exception):
    """The bridge refuses a call."""

    def __init__(self, reason: Refusal, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Twins:
    """Ranges of twin ids, both ends included."""

    ranges: tuple[tuple[int, int], ...]

    def __contains__(self, twin: int) -> bool:
        return any(low <= twin <= high for low, high in self.ranges)


@dataclass(frozen=True, slots=True)
class Policy:
    """Rules for calls in one direction.

    Attributes:
        name: name of the policy.
        direction: direction of the calls.
        twins: twins that call or are called.
        entities: patterns of public keys, or of call aliases if twins call.
        names: patterns of commands to a twin, or of operations of the lattice.
        per_s: calls per second of each pair of a twin and an entity; 0: no limit.
        max_bytes: maximum size of the payload of a call, and of its answer.
        timeout_ms: maximum time to wait for an answer.
    """

    name: str
    direction: Direction
    twins: Twins
    entities: tuple[str, ...]
    names: tuple[str, ...]
    per_s: float = 0.0
    max_bytes: int = MAX_BYTES
    timeout_ms: int = DEFAULT_TIMEOUT_MS


class LinkRules(NamedTuple):
    """The rules in the values of a link."""

    twins: Twins
    commands: tuple[str, ...]
    serves: tuple[str, ...]

    def check(self, twin: int, command: str) -> None:
        """Check whether the linked actor may make a call.

        Raises:
            RefusedError: the link does not allow the twin or the command.
        """
        if twin not in self.twins:
            raise RefusedError(Refusal.LINK, f"the link does not allow twin {twin}")
        if not matches(self.commands, command):
            raise RefusedError(Refusal.LINK, f"the link does not allow the command {command:.80}")


class Policies:
    """All policies, and how much of each rate limit is used."""

    def __init__(self, policies: Iterable[Policy]) -> None:
        self._by_direction: dict[Direction, list[Policy]] = {each: [] for each in Direction}
        self._rates: dict[str, TokenBuckets[tuple[int, str]]] = {}
        for policy in policies:
            self._by_direction[policy.direction].append(policy)
            if policy.per_s:
                burst = max(1.0, policy.per_s)
                self._rates[policy.name] = TokenBuckets(policy.per_s, burst, MAX_RATED)

    def __len__(self) -> int:
        return sum(map(len, self._by_direction.values()))

    def decide(
        self,
        direction: Direction,
        twin: int,
        entity: str,
        name: str,
        size: int,
        now: float,
        alias: str = "",
    ) -> Policy:
        """Return the policy that allows a call, and count the call against its rate.

        Args:
            direction: direction of the call.
            twin: twin that calls or is called.
            entity: public key of the actor or provider.
            name: command to the twin, or operation of the lattice.
            size: size of the payload, in bytes.
            now: seconds of a monotonic clock.
            alias: alias by which a twin calls an actor.

        Raises:
            RefusedError: no policy allows the call, the payload is too large, or the rate is
                exceeded.
        """
        for policy in self._by_direction[direction]:
            if (
                twin in policy.twins
                and matches(policy.names, name)
                and (
                    matches(policy.entities, entity) or (alias and matches(policy.entities, alias))
                )
            ):
                break
        else:
            raise RefusedError(
                Refusal.NO_POLICY,
                f"no policy allows twin {twin} {_SIDES[direction]} {(alias or entity):.80} with "
                f"{name:.80}",
            )
        if size > policy.max_bytes:
            raise RefusedError(
                Refusal.SIZE,
                f"the payload has {size} bytes; policy {policy.name} allows {policy.max_bytes}",
            )
        rate = self._rates.get(policy.name)
        if rate is not None and not rate.take((twin, entity), now):
            raise RefusedError(
                Refusal.RATE, f"policy {policy.name} allows {policy.per_s:g} calls a second"
            )
        return policy

    def keep_rates_of(self, former: Policies) -> None:
        """Take over the used part of each rate limit that has not changed."""
        for name, rate in former._rates.items():
            mine = self._rates.get(name)
            if mine is not None and mine.rate_per_s == rate.rate_per_s:
                self._rates[name] = rate


_SIDES: Final = {Direction.TO_TWIN: "to be called by", Direction.TO_LATTICE: "to call"}


def matches(patterns: Iterable[str], text: str) -> bool:
    """Return whether at least one of the patterns matches a text."""
    return any(pattern == "*" or _compiled(pattern).fullmatch(text) for pattern in patterns)


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)


def read_twins(text: str, field: str = LINK_TWINS) -> Twins:
    """Read a list of twins: `*`, or ids and ranges such as `7, 10-19`.

    Raises:
        PolicyError: the text is not such a list.
    """
    parts = _split(text, field)
    ranges = []
    for part in parts:
        low, dash, high = part.partition("-")
        ends = (
            ("1", str(MAX_TWIN)) if part == "*" else (low.strip(), (high if dash else low).strip())
        )
        if not all(end.isascii() and end.isdigit() and len(end) <= 10 for end in ends):
            raise PolicyError(field, f"{part:.40} is not a twin id, a range such as 10-19, or *")
        first, last = map(int, ends)
        if not 1 <= first <= last <= MAX_TWIN:
            raise PolicyError(field, f"{part:.40}: ids are from 1 to {MAX_TWIN}, lowest first")
        ranges.append((first, last))
    return Twins(tuple(ranges))


def read_patterns(text: str, field: str) -> tuple[str, ...]:
    """Read a comma-separated list of patterns.

    Raises:
        PolicyError: there are too many patterns, or one is too long or otherwise invalid.
    """
    patterns = _split(text, field)
    for pattern in patterns:
        if len(pattern) > MAX_PATTERN_CHARS:
            raise PolicyError(field, f"a pattern has at most {MAX_PATTERN_CHARS} characters")
        if pattern.count("*") > MAX_STARS:
            raise PolicyError(field, f"{pattern:.40}: a pattern has at most {MAX_STARS} stars")
        if not pattern.isprintable():
            raise PolicyError(field, "a pattern has printable characters only")
    return tuple(patterns)


def read_link(values: Mapping[str, str]) -> LinkRules:
    """Read the values of a link with the bridge; what they do not name is not allowed.

    Raises:
        PolicyError: a value is invalid.
    """
    return LinkRules(
        read_twins(values.get(LINK_TWINS, "")),
        read_patterns(values.get(LINK_COMMANDS, ""), LINK_COMMANDS),
        read_patterns(values.get(LINK_SERVES, ""), LINK_SERVES),
    )


def read_policy(value: Mapping[str, Any]) -> Policy:
    """Read a policy from a JSON object with the fields of `Policy`; lists are texts with commas.

    Raises:
        PolicyError: a field is missing or invalid.
    """
    name = _text(value, "name")
    if not 1 <= len(name) <= MAX_NAME_CHARS or not name.isprintable():
        raise PolicyError("name", f"must have 1 to {MAX_NAME_CHARS} printable characters")
    try:
        direction = Direction(_text(value, "direction"))
    except ValueError:
        raise PolicyError("direction", f"must be one of {', '.join(Direction)}") from None
    twins = read_twins(_text(value, "twins"), "twins")
    entities = read_patterns(_text(value, "entities"), "entities")
    names = read_patterns(_text(value, "names"), "names")
    for field, found in (("twins", twins.ranges), ("entities", entities), ("names", names)):
        if not found:
            raise PolicyError(field, "must not be empty; * stands for all")
    return Policy(
        name,
        direction,
        twins,
        entities,
        names,
        _number(value, "per_s", 0.0, 0, MAX_RATE_PER_S),
        int(_number(value, "max_bytes", MAX_BYTES, 1, MAX_BYTES)),
        int(_number(value, "timeout_ms", DEFAULT_TIMEOUT_MS, 1, MAX_TIMEOUT_MS)),
    )


def _split(text: str, field: str) -> list[str]:
    parts = [part.strip() for part in text.split(",", MAX_PATTERNS)]
    if len(parts) > MAX_PATTERNS:
        raise PolicyError(field, f"must have at most {MAX_PATTERNS} entries")
    if parts == [""]:
        return []
    if "" in parts:
        raise PolicyError(field, "has an empty entry between its commas")
    return parts


def _text(value: Mapping[str, Any], field: str) -> str:
    found = value.get(field, "")
    if not isinstance(found, str):
        raise PolicyError(field, "must be a text")
    return found


def _number(
    value: Mapping[str, Any], field: str, default: float, least: float, most: float
) -> float:
    found = value.get(field, default)
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    if not is_number or not least <= found <= most:
        raise PolicyError(field, f"must be a number from {least:g} to {most:g}")
    return float(found)
