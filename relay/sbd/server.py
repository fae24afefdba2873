"""The SBD server of a worker: its switch, and its way to the other workers."""

from __future__ import annotations

import asyncio
from typing import Any

from proto.sbd.rate import byte_nanos_of
from redispipe.address import RedisAddress
from relay.sbd.crossing import Crossing
from relay.sbd.options import SbdOptions
from relay.sbd.switch import Switch


class SbdServer:
    """What a worker starts and stops.

    Attributes:
        switch: between the connections.
    """

    def __init__(self, config: Any, boot_id: str) -> None:
        address = RedisAddress.parse(config.redis.url)
        self._crossing = Crossing(boot_id, address.connect, address.opening(f"sbd-{boot_id}"))
        self.switch = Switch(sbd_options(config.sbd), asyncio.get_running_loop(), self._crossing)

    def start(self) -> None:
        """Connect to the other workers; clients are served before that as well."""
        self._crossing.start(self.switch)

    async def stop(self) -> None:
        """End all connections."""
        self.switch.stop()
        await self._crossing.stop()

    def figures(self) -> dict[str, float]:
        """What the worker counted, for `/metrics`."""
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
        }


def sbd_options(config: Any) -> SbdOptions:
    """The bounds that the settings ask for.

    Args:
        config: `rmbsite.sections.SbdConfig`.
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
