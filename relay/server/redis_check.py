"""Checks of the Redis server before a relay starts to use it.

A server that is too old, a cluster, or one that refuses the password cannot work and ends the
start. A server that does not answer may come back: the relay starts nevertheless, is not ready, and
keeps trying.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from redis import Redis
from redis.exceptions import AuthenticationError, RedisError, ResponseError

from redispipe.address import RedisAddress
from relay.queues import keys
from relay.server import redis_rights

OLDEST: Final = (6, 2)
SAFE_POLICY: Final = "noeviction"
SHOWN_RIGHTS: Final = 6
"""Number of missing permissions listed in the message."""


class RedisRefusedError(Exception):
    """A relay cannot use this server; the text says why."""


@dataclass(frozen=True, slots=True)
class RedisFindings:
    """Results of the checks, in words for the start-up summary."""

    text: str
    away: str = ""
    """Reason why the server does not answer; empty if it does."""
    warnings: tuple[str, ...] = ()

    @property
    def reachable(self) -> bool:
        """Whether the server answers."""
        return not self.away


def inspect(client: Redis, url: str) -> RedisFindings:
    """Query a server's identity, and how it keeps its data.

    Raises:
        RedisRefusedError: It is too old, a cluster, refuses the password, gives too few
            permissions, or holds newer data.
    """
    where = RedisAddress.parse(url).shown_url
    try:
        facts = _facts(client)
    except AuthenticationError as error:
        raise RedisRefusedError(f"Redis at {where} refuses the credentials: {error}") from None
    except ResponseError as error:
        raise RedisRefusedError(f"Redis at {where} refuses INFO: {error}") from None
    except (RedisError, OSError) as error:
        return RedisFindings(f"{where}, NOT REACHABLE", str(error).strip().partition("\n")[0])
    name, version = _name(facts), str(facts.get("redis_version", "0"))
    if _numbers(version) < OLDEST:
        raise RedisRefusedError(
            f"Redis at {where} is version {version}; the relay needs 6.2 or newer"
        )
    if str(facts.get("cluster_enabled", "0")) == "1":
        raise RedisRefusedError(
            f"Redis at {where} is a cluster, where a transaction cannot span keys; "
            "the relay needs a single server (with replicas, if you like)"
        )
    _check_rights(client, where)
    _check_layout(client, where)
    settings = _settings(client)
    warnings = []
    policy = settings.get("maxmemory-policy") or str(facts.get("maxmemory_policy", ""))
    if policy and policy != SAFE_POLICY:
        warnings.append(
            f"maxmemory-policy is {policy}: Redis may delete queues, so the relay is not ready "
            f"until it is {SAFE_POLICY}"
        )
    text = f"{where}, {name}, {_persistence(facts, settings)}"
    return RedisFindings(text, warnings=tuple(warnings))


def _facts(client: Redis) -> Mapping[str, Any]:
    facts: dict[str, Any] = {}
    for section in ("server", "cluster", "persistence", "memory"):
        facts.update(client.info(section))
    return facts


def _settings(client: Redis) -> Mapping[str, str]:
    """Return the settings that may be read: hosted servers often forbid CONFIG."""
    found: dict[str, str] = {}
    for name in ("appendfsync", "save", "maxmemory-policy"):
        try:
            reply: Any = client.config_get(name)
        except RedisError:
            continue
        found.update({_text(key): _text(value) for key, value in reply.items()})
    return found


def _check_rights(client: Redis, where: str) -> None:
    try:
        missing = redis_rights.missing(client)
    except (RedisError, OSError):
        return
    if missing:
        shown = ", ".join(missing[:SHOWN_RIGHTS])
        more = f" and {len(missing) - SHOWN_RIGHTS} more" if len(missing) > SHOWN_RIGHTS else ""
        raise RedisRefusedError(
            f"Redis at {where} does not allow its user what a relay needs: {shown}{more} "
            "(docs/operate/redis.md has the ACL rule)"
        )


def _check_layout(client: Redis, where: str) -> None:
    try:
        stored = client.get(keys.SCHEMA)
    except RedisError:
        return
    version = _text(stored) if stored is not None else ""
    if version.isdigit() and int(version) > keys.SCHEMA_VERSION:
        raise RedisRefusedError(
            f"the data in Redis at {where} was written by a newer release (layout {version}, this "
            f"one knows {keys.SCHEMA_VERSION})"
        )


def _persistence(facts: Mapping[str, Any], settings: Mapping[str, str]) -> str:
    if str(facts.get("aof_enabled", "0")) == "1":
        return f"append-only, fsync {settings.get('appendfsync', 'unknown')}"
    if settings.get("save") == "":
        return "no persistence: queues are lost when Redis ends"
    return "snapshots only: what came after the last one is lost when Redis ends"


def _name(facts: Mapping[str, Any]) -> str:
    if "valkey_version" in facts:
        return f"Valkey {facts['valkey_version']}"
    return f"Redis {facts.get('redis_version', '?')}"


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.split(".")[:2]
    return tuple(int(part) if part.isdigit() else 0 for part in parts)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
