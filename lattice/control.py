"""Client of hosts' control interface: reads hosts, inventories, links, claims; changes links."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lattice.connection import LatticeConnection
from lattice.errors import LatticeError, RemoteError
from proto.lattice.control import (
    Control,
    ControlRequest,
    Host,
    Inventory,
    decode_ack,
    decode_claims_list,
    decode_host,
    decode_inventory,
    decode_links,
)
from proto.lattice.messages import LinkDefinition

TIMEOUT_S: Final = 2.0


class ControlClient:
    """Sends requests to hosts.

    Methods raise `CallError` when no answer arrives, and `FormatError` for a malformed answer.
    """

    def __init__(self, connection: LatticeConnection, timeout_s: float = TIMEOUT_S) -> None:
        options = connection.options
        self._connection = connection
        self._timeout_s = timeout_s
        self._control = Control(options.lattice, options.control_prefix)

    async def hosts(self) -> list[Host]:
        """Return the hosts that answer in time; malformed answers are ignored."""
        request = self._control.ping_hosts()
        found = []
        for data in await self._connection.gather(request.subject, request.body, self._timeout_s):
            try:
                found.append(decode_host(data))
            except LatticeError:
                continue  # not from a host
        return found

    async def inventory(self, host_id: str) -> Inventory:
        """Return the actors and providers that a host runs."""
        return decode_inventory(await self._ask(self._control.get_inventory(host_id)), host_id)

    async def links(self) -> tuple[LinkDefinition, ...]:
        """Return all links."""
        return decode_links(await self._ask(self._control.get_links()))

    async def claims(self) -> tuple[Mapping[str, str], ...]:
        """Return the claims in the registry."""
        return decode_claims_list(await self._ask(self._control.get_claims()))

    async def put_link(self, link: LinkDefinition) -> None:
        """Link an actor to a provider. The host accepts the request before it is carried out.

        Raises:
            RemoteError: the host refuses the request.
        """
        await self._order(self._control.put_link(link))

    async def delete_link(self, actor_id: str, contract_id: str, link_name: str) -> None:
        """Delete a link.

        Raises:
            RemoteError: the host refuses the request.
        """
        await self._order(self._control.del_link(actor_id, contract_id, link_name))

    async def _order(self, request: ControlRequest) -> None:
        ack = decode_ack(await self._ask(request))
        if not ack.accepted:
            raise RemoteError(ack.error)

    async def _ask(self, request: ControlRequest) -> bytes:
        return await self._connection.request(request.subject, request.body, self._timeout_s)
