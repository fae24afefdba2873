"""What a running relay reports about its processes and its disk."""

from __future__ import annotations

import json
from typing import Any

from relay.queues import keys
from tests.support.waiting import eventually


def _told(server: Any) -> list[Any]:
    return [json.loads(each) for each in server.run("HVALS", keys.NODES)]


async def test_a_supervisor_tells_of_all_its_processes(start_server, start_relay) -> None:
    server = start_server()
    relay = start_relay(server, processes=2)
    names = {"supervisor", "worker 0", "worker 1"}
    await eventually(
        lambda: any(
            names <= {each["name"] for each in node["processes"]} for node in _told(server)
        ),
    )
    (node,) = _told(server)
    for process in node["processes"]:
        assert process["rss_bytes"] > 1 << 20 and process["files"] > 3, process
    uses = {each["use"]: each for each in node["disks"]}
    assert (
        uses["data folder"]["path"] == str(relay.folder / "data")
        and uses["database"]["used_bytes"] > 0
    )
    assert "Redis" not in uses, "it is not one of this relay's processes"
    relay.stop()
    assert _told(server) == []
