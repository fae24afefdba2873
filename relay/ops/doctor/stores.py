"""Redis, which holds the queues, and the database, which holds the decisions of operators."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import Error as DatabaseError
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from redis.exceptions import RedisError

from proto.federation.domains import fold, reachable
from proto.identity.accounts import WEAK_ACCOUNTS
from redispipe.address import RedisAddress
from relay.ops import pending
from relay.ops.doctor.finding import Finding, fault, ok, warning
from relay.ops.redis_client import client, give_up
from relay.ops.wording import counted
from relay.server.redis_check import SAFE_POLICY, RedisRefusedError, inspect
from relay.twins.models import Twin
from relay.twins.source import relay_names

FULL: Final = 0.8
"""Share of its memory limit above which Redis will soon refuse messages."""

SLOW_S: Final = 0.005
SKEW_S: Final = 2.0
_PINGS: Final = 20
SHOWN: Final = 10
"""Maximum number of twins named in one finding."""
MAX_TEXTS: Final = 500
"""Maximum number of lists of relays whose twins are counted: as many as one query takes."""


def redis_server() -> Iterator[Finding]:
    """Check that Redis answers, is of the right kind, persists its data and has room."""
    url = settings.RMB.redis.url
    try:
        found = inspect(client(), url)
    except RedisRefusedError as error:
        fix = "fix that, or name another server: RMB_REDIS__URL or redis.url"
        yield fault("redis.server", str(error), fix)
        return
    if not found.reachable:
        give_up(found.away)
        yield fault(
            "redis.server",
            f"Redis at {RedisAddress.parse(url).shown_url} does not answer: no message is taken",
            "start it, or name another with RMB_REDIS__URL; of an embedded relay: start the relay, "
            "or name its folder with RMB_DATA__DIR",
        )
        return
    yield ok("redis.server", found.text)
    try:
        facts: dict[str, Any] = client().info("everything")
        yield from _keeping(facts, found.text)
        yield from _room(facts)
        yield from _speed()
    except RedisError as error:
        yield fault("redis.server", f"Redis stopped answering: {error}", "look at its log")


def _keeping(facts: dict[str, Any], text: str) -> Iterator[Finding]:
    policy = facts.get("maxmemory_policy", SAFE_POLICY)
    if policy != SAFE_POLICY:
        yield fault(
            "redis.policy",
            f"maxmemory-policy is {policy}: Redis may delete queues, the relay is not ready",
            f"redis-cli CONFIG SET maxmemory-policy {SAFE_POLICY}, and in its configuration file",
        )
    if facts.get("role") != "master":
        yield fault(
            "redis.role",
            "this Redis is a replica: it refuses writes",
            "name the primary in redis.url, or promote this one (REPLICAOF NO ONE)",
        )
    if str(facts.get("aof_enabled")) != "1":
        yield warning(
            "redis.persistence",
            f"{text}: messages that were accepted are lost when Redis ends",
            "redis-cli CONFIG SET appendonly yes, and in its configuration file",
        )
    elif facts.get("aof_last_write_status", "ok") != "ok":
        yield fault(
            "redis.persistence",
            "the last write of the append-only file failed: Redis refuses messages",
            "look at its log and its disk",
        )


def _room(facts: dict[str, Any]) -> Iterator[Finding]:
    used, most = int(facts.get("used_memory", 0)), int(facts.get("maxmemory", 0))
    shown = f"Redis uses {used / 2**20:,.0f} MiB"
    if not most:
        yield ok("redis.memory", f"{shown}, without a limit")
    elif used >= FULL * most:
        yield warning(
            "redis.memory",
            f"{shown} of {most / 2**20:,.0f} MiB it may: beyond that every message is refused",
            "raise maxmemory, or look for twins whose messages pile up (manage.py rmb_queue list)",
        )
    else:
        yield ok("redis.memory", f"{shown} of {most / 2**20:,.0f} MiB")


def _speed() -> Iterator[Finding]:
    redis = client()
    taken = []
    for _ in range(_PINGS):
        began = time.perf_counter()
        redis.time()  # PING is refused while the disk is full
        taken.append(time.perf_counter() - began)
    median = sorted(taken)[_PINGS // 2]
    seconds, microseconds = redis.time()
    skew = seconds + microseconds / 1e6 - time.time()
    if median > SLOW_S:
        yield warning(
            "redis.latency",
            f"Redis answers in {median * 1000:.1f} ms: every message waits for it",
            "put it on the machine of the relay, or next to it",
        )
    if abs(skew) > SKEW_S:
        yield warning(
            "redis.clock",
            f"the clock of Redis' machine is {abs(skew):.0f} s {'ahead' if skew > 0 else 'behind'}",
            "keep the time of both machines by NTP",
        )


def database() -> Iterator[Finding]:
    """Check that the database answers, has its tables, and that an operator can sign in."""
    file = Path(connection.settings_dict["NAME"])
    own = connection.vendor == "sqlite"
    if own and file.is_absolute() and not file.exists():
        # Opening the file would create it.
        yield ok("database.server", f"SQLite {file} is made at the first start")
        return
    try:
        connection.ensure_connection()
        executor = MigrationExecutor(connection)
        missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError as error:
        text = str(error).strip().partition("\n")[0]
        yield fault(
            "database.server",
            f"the database does not answer: {text}",
            "start it, or correct database.url",
        )
        return
    yield ok("database.server", _version())
    if missing:
        yield fault(
            "database.tables",
            f"{len(missing)} migrations are missing, the first is {missing[0][0]}",
            "manage.py migrate" + (", or start the relay, which does it" if own else ""),
        )
        return
    if not get_user_model().objects.filter(is_superuser=True, is_active=True).exists():
        yield warning(
            "database.operators",
            "no account can sign in to the operator site",
            "manage.py createsuperuser",
        )
    kinds = pending.waiting()
    if kinds:
        yield warning(
            "database.pending",
            f"decisions about {', '.join(kinds)} are saved and not in force",
            "start Redis and the relay: it applies them when both run",
        )
    count = Twin.objects.count()
    if not count and settings.RMB.twins.source == "registry":
        yield warning(
            "database.twins",
            "the registry has no twins: no client can connect",
            "manage.py rmb_twin add or import",
        )
    else:
        yield ok("database.twins", f"{counted(count, 'twin')} known")
    weak = list(Twin.objects.filter(account__in=WEAK_ACCOUNTS).values_list("pk", flat=True)[:SHOWN])
    if weak:
        yield warning(
            "database.accounts",
            f"anybody can sign for the accounts of twins {', '.join(map(str, weak))}: "
            "the relay refuses their signatures",
            "manage.py rmb_twin remove, or give them accounts of their own",
        )
    yield from _twin_relays()


def _twin_relays() -> Iterator[Finding]:
    """Check whether twins list relays that messages can be sent to."""
    own = set(map(fold, settings.RMB.relay.domains))
    texts = Twin.objects.exclude(relays="").order_by().values_list("relays", flat=True).distinct()
    unusable = [text for text in texts.iterator() if _is_unusable(text, own)]
    listed = Twin.objects.filter(relays__in=unusable[:MAX_TEXTS]).order_by("pk")
    first = listed.first()
    if first is not None:
        yield warning(
            "twins.relays",
            f"{listed.count():,} twins list no usable relay, such as twin {first.pk} with "
            f"{first.relays!r}: messages to them are refused",
            "list host names: manage.py rmb_twin add; a twin of the chain is changed there",
        )
    without = Twin.objects.filter(source=Twin.Source.REGISTRY, relays="").count()
    if without:
        yield warning(
            "twins.no_relay",
            f"{without:,} twins of the registry list no relay: messages to them are refused",
            "manage.py rmb_twin add with --relays, or in the console",
        )


def _is_unusable(text: str, own: set[str]) -> bool:
    names = relay_names(text)
    return not reachable(names) and own.isdisjoint(names)


def _version() -> str:
    if connection.vendor == "sqlite":
        return f"SQLite {connection.settings_dict['NAME']}"
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version")
        return f"PostgreSQL {cursor.fetchone()[0]}"
