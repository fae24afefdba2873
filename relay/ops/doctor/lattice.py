"""The lattice, if enabled: its processes, the keys they trust, and what the monitor reads."""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings
from django.db import Error as DatabaseError
from redis.exceptions import RedisError

from proto.lattice.state import ProcessKind
from relay.lattice import figures
from relay.lattice.figures import Process
from relay.lattice.models import LatticePolicy
from relay.ops.doctor.finding import Finding, fault, ok, warning
from relay.ops.redis_client import client
from relay.ops.wording import counted
from relay.ops.workers import list_workers


def processes() -> Iterator[Finding]:
    """Check that the processes report, are connected to NATS, and that NATS has JetStream."""
    config = settings.RMB.lattice
    if not config.enabled:
        return
    try:
        alive = figures.processes(client())
        runs = bool(list_workers(client()))
    except RedisError:
        return  # reported by the check of Redis
    bridges = [each for each in alive if each.kind == ProcessKind.BRIDGE]
    monitors = [each for each in alive if each.kind == ProcessKind.MONITOR]
    if runs and len(bridges) < config.processes:
        yield _missing("bridges", len(bridges), config.processes)
    if runs and config.monitor and not monitors:
        yield _missing("monitors", 0, 1)
    yield from _cut_off(alive)
    yield from _jetstream(bridges)
    if alive and all(each.connected for each in alive):
        yield ok(
            "lattice.processes",
            f"{counted(len(bridges), 'bridge')} and {counted(len(monitors), 'monitor')} are "
            "connected to NATS",
        )


def _missing(what: str, there: int, wanted: int) -> Finding:
    return fault(
        "lattice.processes",
        f"{there} of {wanted} {what} of the lattice report",
        "read the relay's log: it says why they end; then manage.py rmb_lattice processes",
    )


def _cut_off(alive: list[Process]) -> Iterator[Finding]:
    lost = [each for each in alive if not each.connected]
    if not lost:
        return
    why = next((str(each.values["error"]) for each in lost if each.values.get("error")), "")
    names = ", ".join(f"{each.kind} (pid {each.values.get('pid')})" for each in lost)
    yield fault(
        "lattice.nats",
        f"not connected to NATS: {names}{f': {why}' if why else ''}",
        "check lattice.servers and lattice.credentials_file, and that the server runs",
    )


def _jetstream(bridges: list[Process]) -> Iterator[Finding]:
    said = [each.values.get("jetstream") for each in bridges if each.connected]
    if why := next((each for each in said if each), ""):
        yield warning(
            "lattice.jetstream",
            f"JetStream cannot be used ({why}): payloads above 900 KiB fail, and hosts refuse "
            "calls of the bridge to actors, because it cannot register its claims",
            "enable JetStream on the NATS server (nats-server -js), and allow $JS.API.> to the "
            "bridge's user",
        )
    elif "" in said:
        yield ok("lattice.jetstream", "JetStream can be used")


def trust() -> Iterator[Finding]:
    """Check that keys other than the bridge's own are trusted."""
    config = settings.RMB.lattice
    if not config.enabled:
        return
    if config.issuers:
        yield ok("lattice.issuers", f"{counted(len(config.issuers), 'cluster key')} trusted")
        return
    yield warning(
        "lattice.issuers",
        "lattice.issuers is empty: the bridge refuses calls that the cluster keys of hosts sign, "
        "and the monitor reports each of them",
        "list the public cluster keys (C...) of the hosts in lattice.issuers",
    )


def monitor() -> Iterator[Finding]:
    """Check that the monitor has something to read, and does not disturb the lattice."""
    config = settings.RMB.lattice
    if not config.enabled or not config.monitor:
        return
    if config.monitor_direct:
        yield warning(
            "lattice.monitor",
            "lattice.monitor_direct is on: NATS takes the monitor for a receiver of each call. "
            "Calls of actors and providers that do not run are no longer refused at once: their "
            "callers wait for their time-outs, and guests of wasmCloud hosts wait for ever",
            "let an account export wasmbus.rpc.> to the monitor, name its prefix in "
            "lattice.monitor_subject, and turn lattice.monitor_direct off",
        )
    elif config.monitor_subject:
        yield ok("lattice.monitor", f"the monitor reads {config.monitor_subject}.wasmbus.rpc.>")
    else:
        yield fault(
            "lattice.monitor",
            "the monitor has nothing to read: it ends at its start",
            "set lattice.monitor_subject to the prefix under which an account exports "
            "wasmbus.rpc.>",
        )


def policies() -> Iterator[Finding]:
    """Check that a policy lets calls pass."""
    if not settings.RMB.lattice.enabled:
        return
    try:
        count = LatticePolicy.objects.filter(enabled=True).count()
    except DatabaseError:
        return  # reported by the check of the database
    if count:
        yield ok("lattice.policies", f"{counted(count, 'policy', 'policies')} in force")
        return
    yield warning(
        "lattice.policies",
        "there is no enabled policy: no call passes the bridge",
        "manage.py rmb_lattice put-policy, or the page Policies below Lattice",
    )
