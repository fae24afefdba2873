"""Tests of a provider after a lost connection: it learns of changes, and calls reach it again."""

from __future__ import annotations

from pathlib import Path

import pytest

from lattice.caller import LatticeCaller
from lattice.connection import LatticeConnection
from lattice.errors import RemoteError
from lattice.options import LatticeOptions
from lattice.provider import LatticeProvider
from proto.lattice.messages import LinkDefinition
from tests.lattice.test_judge import ACTOR, CLUSTER, PROVIDER
from tests.support.lattice_host import ControlHost
from tests.support.nats_server import nats_server
from tests.support.waiting import eventually


async def test_links_that_changed_while_the_provider_was_away(tmp_path: Path) -> None:
    other = "M" + ACTOR.public[1:]
    with nats_server(tmp_path / "nats") as server:
        options = LatticeOptions(servers=(server.url,), cluster_seed=CLUSTER.seed)
        async with LatticeConnection(options) as hosts, LatticeConnection(options) as connection:
            host = ControlHost(hosts)
            await host.start()
            link = LinkDefinition(other, PROVIDER.public, "default", "a:b", {"x": "1"})
            host.links[other, "a:b", "default"] = link
            provider = LatticeProvider(connection, PROVIDER.public, "a:b")
            await provider.start()
            assert provider.links == {other: link}
            server.kill()
            await eventually(lambda: connection.losses)
            del host.links[other, "a:b", "default"]
            foreign = LinkDefinition(other, "V" + "A" * 55, "default", "c:d", {})
            host.links[other, "c:d", "default"] = foreign
            server.start()
            await eventually(lambda: not provider.links)
            caller = LatticeCaller(hosts, other)  # a call reaches it again
            with pytest.raises(RemoteError, match="is not linked to this provider"):
                await caller.call(provider.origin, "Echo.Echo")
            await provider.stop()
