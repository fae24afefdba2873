"""What a process of the lattice is told of the site's settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proto.lattice.nkeys import KeyKind, KeyPair
from relay.lattice import launch
from tests.relay.alarms.conftest import configure

CLUSTER = KeyPair.of_random(KeyKind.CLUSTER, b"c" * 32)  # TEST KEY


def test_the_monitor_trusts_the_bridge(settings: Any, tmp_path: Path) -> None:
    configure(settings, "lattice", servers=("nats://localhost:1",), issuers=("C1",))
    assert launch.describe("monitor")["options"]["issuers"] == ["C1"]
    seed = tmp_path / "seed"
    seed.write_text(f"{CLUSTER.seed}\n")
    configure(settings, "lattice", cluster_seed_file=str(seed))
    told = launch.describe("monitor")
    assert told["options"]["issuers"] == ["C1", CLUSTER.public]
    assert CLUSTER.seed not in str(told), "the monitor needs no seed"
    seed.write_text("SC")
    with pytest.raises(launch.SettingsError, match=r"^lattice\.cluster_seed_file: "):
        launch.describe("monitor")
