"""Clients of test twins at real relays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from peer.client import Client
from tests.e2e.conftest import (  # noqa: F401 - fixtures
    _show_logs,
    data_template,
    relay,
    start_relay,
    start_server,
)
from tests.support.identities import Twin
from tests.support.relay_process import RelayProcess
from tests.support.world import all_twins_csv

MakeClient = Callable[..., Client]


@pytest.fixture(scope="package")
def twins_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the twins that the relays know, in the form that a relay exports."""
    path = tmp_path_factory.mktemp("twins") / "twins.csv"
    path.write_text(all_twins_csv())
    return path


def secret_of(twin: Twin) -> str:
    """TEST KEY: Return the secret text of a test twin."""
    return f"0x{twin.mini_secret.hex()}"


@pytest.fixture
def make_client(relay: RelayProcess, twins_file: Path) -> MakeClient:  # noqa: F811
    """Make a client of a twin at the shared relay; arguments as for `Client`."""

    def make(twin: Twin, **options: object) -> Client:
        options = {"relays": [relay.url], "twins": twins_file, "timeout": 10.0, **options}
        return Client(secret_of(twin), **options)  # type: ignore[arg-type]

    return make
