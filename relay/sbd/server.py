"""The SBD server of a worker: its switch, its tokens, and its connection to other workers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from proto.limits.addresses import BannedNetworks
from proto.sbd.rate import byte_nanos_of
from redispipe.address import RedisAddress
from redispipe.errors import LinkLost
from relay.sbd import decisions
from relay.sbd.crossing import Crossing
from relay.sbd.options import SbdOptions
from relay.sbd.sessions import SbdSessions
from relay.sbd.switch import Switch
from relay.sbd.tokens import Tokens

if TYPE_CHECKING:
    from relay.sessions.history import SessionHistory
    from relay.sessions.worker import Worker


class SbdServer:
    """The SBD server, which a worker starts and stops.

    Attributes:
        switch: switch between the connections.
        sessions: the connections as sessions, for operators.
        tokens: tokens of clients.
    """

    def __init__(self, config: Any, boot_id: str, history: SessionHistory, worker: Worker) -> None:
        address = RedisAddress.parse(config.redis.url)
        self._crossing = Crossing(boot_id, address.connect, address.opening(f"sbd-{boot_id}"))
        self.switch = Switch(sbd_options(config.sbd), asyncio.get_running_loop(), self._crossing)
        self.sessions = SbdSessions(self.switch, history, worker)
        self.tokens = Tokens(self._crossing.ask, config.sbd.hook_url, config.sbd.idle_ms)
        self._decided: dict[str, str] = {}
        self._keep_s = config.sbd.idle_ms / 3_000
        self._keeping: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Connect to the other workers; clients are served even before that."""
        self._crossing.start(self.switch)
        self._keeping = asyncio.get_running_loop().create_task(self._keep_tokens())

    async def stop(self) -> None:
        """End all connections."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        self.tokens.close()
        self.switch.stop()
        await self._crossing.stop()

    def decide(self, fields: Mapping[str, str], networks: BannedNetworks) -> None:
        """Apply the decisions of operators, if they have changed.

        Args:
            fields: all fields of `relay:control`.
            networks: banned networks.
        """
        self.sessions.kick(fields)
        decided = {
            name: value
            for name, value in fields.items()
            if name.partition(":")[0] in decisions.KINDS
        }
        if decided != self._decided:
            self._decided = decided
            prefix = self.switch.options.ipv6_prefix
            self.switch.decide(decisions.read(decided, prefix), networks)

    def figures(self) -> dict[str, float]:
        """Return the counts of the worker, for `/metrics`."""
        counts = self.switch.counts
        return {
            "sbd_connections": len(self.switch.connections),
            "sbd_keys": len(self.switch.keys),
            "sbd_opened_total": counts.opened,
            "sbd_authenticated_total": counts.authenticated,
            "sbd_received_total": counts.received,
            "sbd_delivered_total": counts.delivered,
            "sbd_delivered_bytes_total": counts.delivered_bytes,
            "sbd_crossed_total": counts.crossed,
            **{f"sbd_ended_{reason}_total": count for reason, count in counts.ended.items()},
            **{f"sbd_lost_{reason}_total": count for reason, count in counts.lost.items()},
            **{
                f"sbd_auth_failures_{reason}_total": count
                for reason, count in self.tokens.counts.items()
            },
        }

    async def _keep_tokens(self) -> None:
        """Keep tokens alive for as long as a connection that was opened with them."""
        while True:
            await asyncio.sleep(self._keep_s)
            with contextlib.suppress(LinkLost):
                await self.tokens.keep(
                    connection.token
                    for connection in self.switch.connections
                    if connection.token is not None
                )


def sbd_options(config: Any) -> SbdOptions:
    """Return the limits that the settings define.

    Args:
        config: an `rmbsite.sections.SbdConfig`.
    """
    limit = config.limit_kbit_per_s
    return SbdOptions(
        max_clients=config.max_clients,
        byte_nanos=byte_nanos_of(limit) if limit else 0,
        burst_bytes=config.limit_burst_bytes,
        idle_ms=config.idle_ms,
        receiver_bytes=config.receiver_bytes,
        ipv6_prefix=config.ipv6_prefix,
    )
