"""Analytics from a relay's traffic to an operator's reports, by the operator's commands."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from tests.support import frugal_spark
from tests.support.relay_process import RelayProcess, run_command
from tests.support.rmb_client import session
from tests.support.world import fresh_twins

SETTINGS = {
    "analytics.record": "1",
    "analytics.segment_s": "0.5",
    "analytics.master": "local[2]",
    "analytics.driver_memory": "512m",
    "analytics.spark": frugal_spark.SETTING,
    "analytics.daily_at": "",  # no other process computes meanwhile
}
MESSAGES = 40
COMMAND_TIMEOUT_S = 300


def command(relay: RelayProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `rmb_analytics` with the relay's settings."""
    return run_command(
        relay.folder,
        "rmb_analytics",
        *arguments,
        settings=SETTINGS,
        timeout_s=COMMAND_TIMEOUT_S,
    )


def told(relay: RelayProcess, *arguments: str) -> Any:
    """Return the command's output with `--json`, decoded."""
    done = command(relay, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def test_traffic_is_recorded_computed_and_audited(start_relay: Any) -> None:
    relay = start_relay(settings=SETTINGS)
    one, two, three = fresh_twins(3)
    async with session(relay.url, one) as here:
        async with session(relay.url, two, "desk") as there:
            for _ in range(MESSAGES):
                await here.request((two.id, "desk"))
            await there.receive_many(MESSAGES)
        await here.request((three.id, "phone"))  # waits, and is delivered
        await here.request((4_000_000_000, None))  # refused: no such twin
        await here.receive()
        async with session(relay.url, three, "phone") as late:
            await late.receive()
    assert relay.stop() == 0
    told(relay, "compact")  # what the relay closed last
    days = ("--from", "1d", "--to", "today", "--quiet")

    outcomes = told(relay, "run", "audit", *days)
    assert outcomes[0]["computed"] >= 1
    (audit,) = told(
        relay,
        "sql",
        "SELECT sum(uids) uids, sum(delivered_once) delivered, sum(dropped) dropped, "
        "sum(unaccounted) unaccounted, sum(in_flight) in_flight, sum(in_gap) in_gap FROM audit",
    )
    assert {name: int(value) for name, value in audit.items()} == {
        "uids": MESSAGES + 2,
        "delivered": MESSAGES + 1,
        "dropped": 1,
        "unaccounted": 0,
        "in_flight": 0,
        "in_gap": 0,
    }

    done = command(relay, "run", "audit", *days)
    assert "up to date" in done.stdout and "computed" not in done.stdout
    state = told(relay, "status")
    assert [run["state"] for run in state["runs"]] == ["done"]
    (standing,) = (job for job in state["jobs"] if job["job"] == "audit")
    assert standing["missing"] == standing["outdated"] == 0
