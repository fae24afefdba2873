"""Preparation that must succeed before the first worker starts: once per start, in its own process.

It checks Redis and the database, creates the tables of a SQLite file of its own, announces twins
and limits (they may have changed while Redis was down) and, in embedded mode, adds the demo twins
and the first operator. It passes the result to the supervisor as one JSON object on standard
output; standard error is for the operator.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from redis.exceptions import RedisError

from relay.ops import starting
from relay.ops.redis_client import client
from relay.server.django_setup import set_up_django
from relay.server.listen import parse_listen
from relay.server.redis_check import RedisRefusedError, inspect

REFUSED = 2


@dataclass(slots=True)
class Prepared:
    """Facts for the start-up summary."""

    redis: str = ""
    redis_away: str = ""
    """Reason why Redis does not answer; empty if it does."""
    database: str = ""
    twins: int = 0
    warnings: list[str] = field(default_factory=list)
    operator: str = ""
    password: str = ""
    """One-time password of `operator`, only on the start that created it."""


class RefusedError(Exception):
    """The relay cannot run with this setup; the text is for the operator."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Prepare, and return the exit code: 0, or 2 with a message if the relay cannot run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--embedded", action="store_true")
    options = parser.parse_args(arguments)
    gc.disable()  # imports are never freed, and the process is short-lived
    try:
        set_up_django()
        prepared = prepare(embedded=options.embedded)
    except (RefusedError, RedisRefusedError, ImproperlyConfigured) as error:
        print(error, file=sys.stderr)
        return REFUSED
    json.dump(asdict(prepared), sys.stdout)
    gc.freeze()  # the final collection would take a quarter of the run time
    return 0


def prepare(*, embedded: bool) -> Prepared:
    """Prepare Redis and the database.

    Raises:
        RefusedError: The database cannot be used, or demo twins would be reachable from other
            machines.
        RedisRefusedError: Redis cannot be used.
    """
    # Models exist only once Django is set up.
    from relay.ops import pending
    from relay.twins import services
    from relay.twins.models import Twin

    prepared = Prepared(database=_shown_database())
    findings = inspect(client(), settings.RMB.redis.url)
    prepared.redis, prepared.redis_away = findings.text, findings.away
    prepared.warnings += findings.warnings
    try:
        _migrate(prepared.database)
        if embedded:
            if services.in_registry():
                _add_demo_twins()
                if settings.RMB.lattice.enabled:
                    _add_bridge()
            _add_operator(prepared)
        elif services.in_registry():
            _refuse_demo_twins()
        pending.mark_all()  # a worker publishes what Redis cannot take now
        if findings.reachable:
            pending.settle()
            with contextlib.suppress(RedisError):  # if this fails, alarms may come early
                starting.begin(client())
        prepared.twins = Twin.objects.count()
    except DatabaseError as error:
        raise RefusedError(f"database {prepared.database}: {error}") from None
    return prepared


def _migrate(shown: str) -> None:
    executor = MigrationExecutor(connection)
    missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if not missing:
        return
    if connection.vendor != "sqlite":
        # Other programs may use it, so the operator decides when its tables change.
        raise RefusedError(
            f"database {shown} lacks {len(missing)} migrations: run manage.py migrate with the "
            "same settings, then start again"
        )
    print(f"database: applying {len(missing)} migrations", file=sys.stderr, flush=True)
    call_command("migrate", verbosity=0, interactive=False)


def _add_demo_twins() -> None:
    from relay.demo import identities, registration

    twins = identities.load_or_make(settings.RMB.data_dir)
    registration.register(twins, settings.RMB.relay.domains[0])


def _add_bridge() -> None:
    from relay.lattice import own_keys

    own_keys.register(settings.RMB.data_dir, settings.RMB.relay.domains[0])


def _refuse_demo_twins() -> None:
    """Refuse demo twins on a public listener: their secrets are readable in the data folder.

    Raises:
        RefusedError: The registry has demo twins, and other machines can reach the listener.
    """
    from relay.demo import identities, registration

    address = settings.RMB.relay.listen
    try:
        twins = identities.load(settings.RMB.data_dir)
    except FileNotFoundError:
        return
    served = registration.registered(twins)
    if served and parse_listen(address).public:
        ids = " ".join(str(twin.id) for twin in served)
        raise RefusedError(
            f"the registry has the demo twins {ids}, whose secrets are in {settings.RMB.data_dir}, "
            f"and {address} is open to other machines: remove them (manage.py rmb_twin remove "
            f"{ids}), listen on 127.0.0.1, or start with --embedded"
        )


def _add_operator(prepared: Prepared) -> None:
    from relay.ops import accounts

    made = accounts.make_first_operator()
    if made is not None:
        prepared.operator, prepared.password = made


def _shown_database() -> str:
    values = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"SQLite {values['NAME']}"
    return f"PostgreSQL {values['HOST'] or 'local socket'}/{values['NAME']}"


if __name__ == "__main__":
    sys.exit(main())
