"""The doctor's checks of the lattice, each with a set-up that is broken in one way."""

from __future__ import annotations

from typing import Any

import pytest

from relay.lattice.models import LatticePolicy
from relay.ops.doctor import Level
from tests.relay.ops.test_doctor import configured, examine, sound
from tests.support.lattice_state import ended, report
from tests.support.redis_servers import RedisServer

__all__ = ["sound"]

pytestmark = pytest.mark.django_db


@pytest.fixture
def bridged(sound: RedisServer, settings: Any) -> RedisServer:
    """Set up a sound relay with a bridge and a monitor."""
    configured(
        settings, "lattice", enabled=True, monitor=True, monitor_subject="mirror", issuers=("C1",)
    )
    report(sound, "bridge", jetstream="")
    report(sound, "monitor")
    LatticePolicy.objects.create(
        name="all", direction="to_twin", twins="*", entities="*", names="*"
    )
    return sound


def test_all_is_well(bridged: RedisServer, settings: Any) -> None:
    assert examine() == {}


def test_the_lattice_is_off(sound: RedisServer, settings: Any) -> None:
    configured(settings, "lattice", monitor=True, monitor_direct=True, processes=3)
    assert examine() == {}


def test_processes_that_are_missing(bridged: RedisServer, settings: Any) -> None:
    configured(settings, "lattice", processes=2)
    found = examine()["lattice.processes"]
    assert found.level is Level.FAULT and found.text == "1 of 2 bridges of the lattice report"
    configured(settings, "lattice", processes=1)
    ended(bridged, "monitor-1")
    assert examine()["lattice.processes"].text == "0 of 1 monitors of the lattice report"
    bridged.run("DEL", "relay:workers")  # the relay is off, so that no process is expected
    assert "lattice.processes" not in examine()


def test_no_nats(bridged: RedisServer) -> None:
    report(bridged, "bridge", nats="away", error="nats: no servers available")
    found = examine()["lattice.nats"]
    assert found.level is Level.FAULT
    assert found.text == ("not connected to NATS: bridge (pid 4711): nats: no servers available")


def test_no_jetstream(bridged: RedisServer) -> None:
    report(bridged, "bridge", jetstream="no response")
    found = examine()["lattice.jetstream"]
    assert found.level is Level.WARNING and "(no response): payloads above 900 KiB" in found.text
    report(bridged, "bridge", jetstream=None)  # not known yet
    assert examine() == {}


@pytest.mark.parametrize(
    ("changes", "check", "level", "text"),
    [
        ({"issuers": ()}, "lattice.issuers", Level.WARNING, "lattice.issuers is empty"),
        (
            {"monitor_direct": True},
            "lattice.monitor",
            Level.WARNING,
            "guests of wasmCloud hosts wait for ever",
        ),
        ({"monitor_subject": ""}, "lattice.monitor", Level.FAULT, "nothing to read"),
    ],
)
def test_settings(
    bridged: RedisServer, settings: Any, changes: Any, check: str, level: Level, text: str
) -> None:
    configured(settings, "lattice", **changes)
    found = examine()[check]
    assert found.level is level and text in found.text and found.remedy
    assert len(examine()) == 1


def test_no_policy(bridged: RedisServer) -> None:
    LatticePolicy.objects.update(enabled=False)
    found = examine()["lattice.policies"]
    assert found.level is Level.WARNING and "no call passes the bridge" in found.text
