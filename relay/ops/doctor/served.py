"""Protocols besides RMB: whether every worker serves them, and their separate listeners."""

from __future__ import annotations

import socket
from collections.abc import Iterator

from django.conf import settings
from redis.exceptions import RedisError

from relay.ops.doctor import running
from relay.ops.doctor.finding import Finding, fault, ok, warning
from relay.ops.redis_client import client
from relay.ops.workers import list_workers
from relay.server.listen import ListenError, parse_listen


def everywhere(section: str, title: str) -> Iterator[Finding]:
    """Check that every worker serves a protocol, and that its separate listeners answer.

    Args:
        section: Section of its settings, which is also the prefix of its metrics.
        title: Name of the protocol.
    """
    config = getattr(settings.RMB, section)
    if not config.enabled:
        return
    try:
        live = [worker for worker in list_workers(client()) if not worker.late()]
    except RedisError:
        return  # reported by the check of Redis
    without = [each for each in live if f"{section}_connections" not in each.metrics]
    if without:
        names = ", ".join(f"{each.host}/{each.slot}" for each in without[: running.SHOWN])
        yield warning(
            f"{section}.workers",
            f"{section}.enabled is on, and these workers do not serve {title}: {names}",
            "restart the relay with these settings (systemctl restart, or kill -HUP)",
        )
    here = any(worker.host == socket.gethostname() for worker in live)
    closed = list(_closed(section, config.listen)) if here else []
    yield from closed
    if live and not without and not closed:
        own = f" and on {', '.join(config.listen)}" if config.listen else ""
        yield ok(f"{section}.listener", f"the public listener serves {title}{own}")


def _closed(section: str, texts: tuple[str, ...]) -> Iterator[Finding]:
    for text in texts:
        try:
            if running.answers(parse_listen(text)):
                continue
            what, remedy = f"nothing answers at {text}", "restart the relay with these settings"
        except ListenError as error:
            what, remedy = str(error), "correct it"
        yield fault(f"{section}.listener", f"{what}, an address of {section}.listen", remedy)
