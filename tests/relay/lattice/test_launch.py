"""Settings of the site that processes of the lattice get."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

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


def test_a_key_is_generated_once(tmp_path: Path) -> None:
    file = tmp_path / "cluster.seed"

    def run(kind: str) -> str:
        out = StringIO()
        call_command("rmb_lattice", "key", kind, str(file), stdout=out)
        return out.getvalue().strip()

    public = run("cluster")
    assert KeyPair.of_seed(file.read_text().strip(), KeyKind.CLUSTER).public == public
    assert file.stat().st_mode & 0o777 == 0o600
    assert run("cluster") == public, "it exists"
    with pytest.raises(CommandError, match=r"cluster\.seed: invalid seed: cluster key \(C\)"):
        run("actor")
    file = tmp_path / "none" / "seed"
    with pytest.raises(CommandError, match="seed: No such file"):
        run("actor")
