"""Systems outside this relay: partner relays and the chain."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from django.conf import settings
from redis.exceptions import RedisError

from relay.federation import figures
from relay.ops.doctor.finding import Finding, fault, ok, warning
from relay.ops.redis_client import client
from relay.ops.wording import counted
from relay.twins import chain_state

OLD_S: Final = 300.0
"""Seconds after which a message waiting for a partner relay indicates a problem."""

LAG_BLOCKS: Final = 10
PLAIN: Final = "ws"


def federation() -> Iterator[Finding]:
    """Check that messages for partner relays are delivered."""
    try:
        found = figures.read(client())
    except RedisError:
        return  # reported by the check of Redis
    waiting = sum(
        int(value) for name, value in found.items() if name.startswith("federation_outbox_messages")
    )
    oldest = max(
        (v for name, v in found.items() if name.startswith("federation_outbox_oldest_seconds")),
        default=0.0,
    )
    if oldest > OLD_S:
        yield warning(
            "federation.outbox",
            f"{counted(waiting, 'message')} waiting for partner relays, the oldest for "
            f"{oldest:,.0f} s",
            "manage.py rmb_relays list shows which relay does not accept messages",
        )
    else:
        yield ok("federation.outbox", f"{counted(waiting, 'message')} waiting for partner relays")
    dead = int(found.get("federation_dead_letters", 0))
    if dead:
        yield warning(
            "federation.dead-letters",
            f"{counted(dead, 'message')} for partner relays failed permanently in the last day",
            "the page Dead letters shows why, and can send them again",
        )
    if settings.RMB.federation.scheme == "http":
        yield warning(
            "federation.scheme",
            "federation.scheme is http: messages to partner relays are sent without TLS",
            "only for test networks; remove the setting elsewhere",
        )


def chain() -> Iterator[Finding]:
    """Check that the relay follows the chain, if its twins come from there."""
    if settings.RMB.twins.source != "tfchain":
        return
    try:
        following, imported = chain_state.read(client())
    except RedisError:
        return
    complaint = following.complaint(time.time())
    if complaint:
        yield fault(
            "chain.follower",
            f"{complaint}: the relay does not see changes of twins",
            f"look at the nodes ({', '.join(settings.RMB.substrate.urls)}) and whether Celery runs",
        )
    elif following.lag_blocks > LAG_BLOCKS:
        yield warning(
            "chain.lag",
            f"{counted(following.lag_blocks, 'block')} behind the chain",
            "the relay catches up by itself; if not, use nearer nodes in substrate.urls",
        )
    else:
        yield ok("chain.follower", f"follows {following.url} at block {following.head_height:,}")
    if imported.needed and not imported.leased:
        yield warning(
            "chain.import",
            "the relay may have missed changes of twins, and has not imported all twins since",
            "manage.py rmb_chain import",
        )
    plain = [url for url in settings.RMB.substrate.urls if urlsplit(url).scheme == PLAIN]
    if plain:
        yield warning(
            "chain.scheme",
            f"{', '.join(plain)} is used without TLS: anyone on the network can forge twins",
            "use wss:// for nodes on other machines",
        )
