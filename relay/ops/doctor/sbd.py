"""SBD, if enabled: its hook server, its listeners, room for its clients, and its limits."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from django.conf import settings
from django.db import Error as DatabaseError

from proto.limits.addresses import read_network
from proto.sbd.rate import KBIT_NANOS
from relay.limits import sbd
from relay.ops.doctor import running, served
from relay.ops.doctor.finding import Finding, fault, ok, warning
from relay.server.summary import SPARE_FILES

_PORTS: Final = {"http": 80, "https": 443}


def hook() -> Iterator[Finding]:
    """Check that the hook server answers: without it no client gets a token and can connect."""
    config = settings.RMB.sbd
    if not config.enabled or not config.hook_url:
        return
    parts = urlsplit(config.hook_url)
    try:
        host, port = parts.hostname, parts.port or _PORTS[parts.scheme]
    except ValueError:
        host, port = None, 0
    if not host:
        yield fault(
            "sbd.hook",
            "sbd.hook_url names no host or an invalid port: no client gets a token",
            "write it as http://HOST:PORT/PATH or https://HOST/PATH",
        )
        return
    try:
        with socket.create_connection((host, port), running.CONNECT_S):
            yield ok("sbd.hook", f"the hook server {host}:{port} takes connections")
    except OSError as error:
        yield fault(
            "sbd.hook",
            f"the hook server {host}:{port} does not answer ({error.strerror or error}): no client "
            "gets a token, PUT /authenticate is answered with 502",
            "start it, or correct sbd.hook_url",
        )


def listeners() -> Iterator[Finding]:
    """Check that every worker serves SBD, and that its separate listeners answer."""
    yield from served.everywhere("sbd", "SBD")


def clients() -> Iterator[Finding]:
    """Check the limit of open files: a worker needs one per SBD connection and RMB session."""
    config, relay = settings.RMB.sbd, settings.RMB.relay
    if not config.enabled:
        return
    sessions = relay.workers * relay.user_per_worker // relay.processes
    wanted = sessions + config.max_clients + SPARE_FILES
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= wanted:
        yield ok("sbd.open-files", f"a worker has room for {config.max_clients:,} SBD connections")
        return
    left = max(0, hard - sessions - SPARE_FILES)
    yield warning(
        "sbd.open-files",
        f"a process may open {hard:,} files: beside {sessions:,} sessions {left:,} SBD connections "
        f"fit, not the {config.max_clients:,} of sbd.max_clients",
        f"raise it (systemd: LimitNOFILE={wanted}; a shell: ulimit -Hn {wanted}), or lower "
        "sbd.max_clients or relay.user_per_worker",
    )


def limits() -> Iterator[Finding]:
    """Check for limits that contradict each other."""
    config = settings.RMB.sbd
    if not config.enabled:
        return
    found = [*_settings_at_odds(), *_limits_without_effect()]
    yield from found or [ok("sbd.limits", "the limits of SBD agree with each other")]


def _settings_at_odds() -> Iterator[Finding]:
    config = settings.RMB.sbd
    if config.limit_kbit_per_s > KBIT_NANOS:
        yield warning(
            "sbd.limits",
            f"sbd.limit_kbit_per_s is {config.limit_kbit_per_s:,}: above {KBIT_NANOS:,} there is "
            "no limit",
            "lower it, or set 0 for no limit",
        )
    elif config.limit_kbit_per_s and config.receiver_bytes < config.limit_burst_bytes:
        yield warning(
            "sbd.limits",
            f"sbd.receiver_bytes is {config.receiver_bytes:,}, less than sbd.limit_burst_bytes, "
            f"{config.limit_burst_bytes:,}: one burst to a client that is busy drops that client",
            "raise sbd.receiver_bytes, or lower sbd.limit_burst_bytes",
        )


def _limits_without_effect() -> Iterator[Finding]:
    prefix = settings.RMB.sbd.ipv6_prefix
    try:
        names = [row.subject for row in sbd.search() if not row.is_key]
    except DatabaseError:
        return  # reported by the check of the database
    lost = [
        name
        for name, network in zip(names, map(read_network, names), strict=True)
        if network.version == 6 and network.prefixlen > prefix
    ]
    if lost:
        yield warning(
            "sbd.limits",
            f"limits of {', '.join(lost[: running.SHOWN])} have no effect: sbd.ipv6_prefix counts "
            f"networks of /{prefix} as one address",
            f"limit the /{prefix} around them, and remove these: manage.py rmb_limit sbd "
            "--network NET --clear",
        )
