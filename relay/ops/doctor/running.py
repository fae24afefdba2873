"""The relay itself: its names, its listener, its workers and its background work."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Iterator
from typing import Final

from django.conf import settings
from django.db import Error as DatabaseError
from redis.exceptions import RedisError

from relay.access.errors import Away
from relay.alarms import figures
from relay.alarms.models import Alarm, State
from relay.limits import hits
from relay.ops import background, health
from relay.ops.doctor.certificates import host_of
from relay.ops.doctor.finding import Finding, fault, ok, warning
from relay.ops.redis_client import client
from relay.ops.wording import counted
from relay.ops.workers import WorkerState, list_workers
from relay.server.listen import ListenAddress, ListenError, parse_listen

LAG_MS: Final = 100.0
CONNECT_S: Final = 2.0
SHOWN: Final = 5
"""Maximum number of addresses named in one finding."""
_PRIVATE_NAMES: Final = ("localhost",)


def domains() -> Iterator[Finding]:
    """Check that the relay's names are set and resolve: twins find it by name."""
    names = settings.RMB.relay.domains
    if not names:
        if _runs():
            return  # it got them on its command line
        yield warning(
            "relay.domains",
            "relay.domains is empty: a start needs --domain or --embedded",
            "set relay.domains in rmb.toml, or RMB_RELAY__DOMAINS",
        )
        return
    lost = []
    for name in names:
        host = host_of(name)
        if host in _PRIVATE_NAMES:
            continue
        try:
            socket.getaddrinfo(host, None)
        except OSError:
            lost.append(name)
    if lost:
        yield warning(
            "relay.domains",
            (
                f"{', '.join(lost)} does not resolve here: twins and partner relays cannot "
                "find the relay"
            ),
            "add the name to the DNS",
        )
    else:
        yield ok("relay.domains", f"this relay is {', '.join(names)}")


def tokens() -> Iterator[Finding]:
    """Check the lifetime of session tokens: a stolen token can be used until it expires."""
    longest = settings.RMB.relay.max_token_lifetime_s
    if longest:
        yield ok("relay.tokens", f"session tokens end within {longest} s")
        return
    yield warning(
        "relay.tokens",
        "clients choose the lifetime of session tokens without a limit: anyone who sees "
        "a token can sign in with it until it expires",
        "set relay.max_token_lifetime_s, such as 3600: known clients' tokens live 60 to 1,000 s",
    )


def listener() -> Iterator[Finding]:
    """Check that the relay can listen at its address, if it does not run yet."""
    text = settings.RMB.relay.listen
    try:
        address = parse_listen(text)
    except ListenError as error:
        yield fault("relay.listener", str(error), "correct relay.listen")
        return
    if _runs():
        return  # heartbeats show more, and workers may be on other machines
    if answers(address):
        yield fault(
            "relay.listener",
            f"{address} is in use, and not by a relay of this Redis",
            "stop what listens there (ss -ltnp), or choose another address with relay.listen",
        )
        return
    problem = _cannot_listen(address)
    if problem:
        yield fault("relay.listener", f"cannot listen on {address}: {problem}", _help(problem))


def workers() -> Iterator[Finding]:
    """Check that the workers send heartbeats and report no problem."""
    try:
        found = list_workers(client())
    except RedisError:
        return  # reported by the check of Redis
    live = [worker for worker in found if not worker.late()]
    if not live:
        yield warning(
            "relay.workers",
            "no relay worker sends heartbeats: the relay does not run",
            "manage.py runrelay, or systemctl status of its unit",
        )
        return
    sessions = sum(worker.all_sessions for worker in live)
    yield ok("relay.workers", f"{counted(sessions, 'session')} at {counted(len(live), 'worker')}")
    yield from _complaints(found)
    yield from _clock(live)


def _clock(live: list[WorkerState]) -> Iterator[Finding]:
    seen = sum(worker.metrics.get("relay_twin_clocks_seen", 0) for worker in live)
    wrong = [
        (worker.metrics["relay_twin_clocks_wrong"], worker.metrics["relay_twin_clocks_off_seconds"])
        for worker in live
        if worker.metrics.get("relay_twin_clocks_wrong")
    ]
    if not wrong:
        return
    _, off_s = max(wrong)
    side = "ahead of" if off_s > 0 else "behind"
    count = sum(each for each, _ in wrong)
    text = (
        f"the clocks of {count:.0f} of the last {seen:.0f} twins that signed in are wrong, by"
        f" {abs(off_s):.0f} s {side} this machine's"
    )
    if 2 * count > seen:
        yield warning(
            "relay.clock",
            f"{text}: this machine's may be",
            "compare date -u with another machine, and keep the time of both by NTP",
        )
    else:
        yield ok("relay.clock", f"{text}: theirs are")


def _complaints(found: list[WorkerState]) -> Iterator[Finding]:
    now = time.time()
    relay = settings.RMB.relay
    room = max(1, relay.workers * relay.user_per_worker // relay.processes)
    for worker in found:
        name = f"worker {worker.host}/{worker.slot} (pid {worker.pid})"
        if worker.late(now):
            yield warning(
                "relay.heartbeat",
                f"{name} was last heard {worker.silent_s(now):.0f} s ago",
                "it ended a moment ago, or hangs: look at its log",
            )
            continue
        if worker.state in health.STATE_REASONS:
            yield fault(
                "relay.state",
                f"{name}: {health.STATE_REASONS[worker.state]}",
                "see the findings on Redis",
            )
        if worker.loop_lag_ms > LAG_MS:
            yield warning(
                "relay.lag",
                f"{name}: its event loop is {worker.loop_lag_ms:.0f} ms late",
                "the machine is short of processor time, or one worker holds too many sessions: "
                "raise relay.processes",
            )
        if worker.sessions >= room:
            yield warning(
                "relay.capacity",
                f"{name} is full: it holds {counted(worker.sessions, 'session')} and refuses "
                "others",
                "raise relay.user_per_worker or relay.processes",
            )


def addresses() -> Iterator[Finding]:
    """Check for addresses whose handshakes are refused, possibly because many twins share them."""
    try:
        found = hits.with_bans(hits.addresses())
    except (Away, DatabaseError):
        return  # reported by the checks of Redis and the database
    refused = [each for each in found if each.handshakes and not each.banned]
    if not refused:
        return
    refused.sort(key=lambda each: -each.handshakes)
    worst = ", ".join(f"{each.address} ({each.handshakes:,})" for each in refused[:SHOWN])
    chain = settings.RMB.twins.source == "tfchain"
    yield warning(
        "relay.addresses",
        f"handshakes of {counted(len(refused), 'address', 'addresses')} were refused in the last "
        f"hour: {worst}",
        "a proxy: name it in relay.trusted_proxies; a host of many twins: raise "
        "relay.handshakes_per_ip_per_s"
        + (" and substrate.look_ups_per_ip_per_s" if chain else "")
        + "; an attacker: manage.py rmb_ban set ADDRESS",
    )


def celery() -> Iterator[Finding]:
    """Check that workers take the tasks: without them nothing is delivered to partner relays."""
    try:
        idle = background.queues_without_worker(client())
        running = any(not worker.late() for worker in list_workers(client()))
    except RedisError:
        return
    if not idle:
        yield ok("celery.workers", "every queue of tasks has a Celery worker")
    elif running:
        yield fault(
            "celery.workers",
            f"no Celery worker serves {', '.join(idle)}: messages for partner relays wait",
            f"celery -A rmbsite worker -Q {','.join(idle)}, or leave celery.embedded on",
        )


def _runs() -> bool:
    try:
        return bool(list_workers(client()))
    except RedisError:
        return False


def alarms() -> Iterator[Finding]:
    """Check that alarms are evaluated, and report those that fire."""
    if not _runs():
        return
    try:
        complaint = figures.complaint()
        firing = list(Alarm.objects.filter(state=State.FIRING).values_list("pk", "rule", "subject"))
    except DatabaseError:
        return  # reported by the check of the database
    if complaint:
        yield fault("alarms.evaluation", complaint, "see the findings on Celery and Redis")
    for number, rule, subject in firing:
        yield warning(
            "alarms.firing",
            f"alarm {rule}{f' of {subject}' if subject else ''} fires",
            f"manage.py rmb_alarms show {number} says what to do",
        )
    if not complaint and not firing:
        yield ok("alarms.firing", "no alarm fires")


def answers(address: ListenAddress) -> bool:
    """Check whether a program accepts connections at an address."""
    try:
        if address.path:
            with socket.socket(socket.AF_UNIX) as unix:
                unix.settimeout(CONNECT_S)
                unix.connect(address.path)
            return True
        host = {"": "127.0.0.1", "::": "::1", "0.0.0.0": "127.0.0.1"}.get(
            address.host, address.host
        )
        with socket.create_connection((host, address.port), CONNECT_S):
            return True
    except OSError:
        return False


def _cannot_listen(address: ListenAddress) -> str:
    """Return why it is impossible to listen at an address; empty if it is possible."""
    if address.path:
        return ""
    try:
        with socket.create_server(
            (address.host or "0.0.0.0", address.port), family=_family(address)
        ):
            return ""
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, "") + f" {error.strerror or error}"


def _family(address: ListenAddress) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address.host else socket.AF_INET


def _help(problem: str) -> str:
    if problem.startswith("EACCES"):
        return (
            "ports below 1024 need a privilege (systemd: AmbientCapabilities=CAP_NET_BIND_SERVICE)"
        )
    if problem.startswith("EADDRNOTAVAIL"):
        return "this machine has no such address: correct relay.listen"
    return "stop what uses it (ss -ltnp), or choose another address with relay.listen"
