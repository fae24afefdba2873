"""How `runrelay` prepares the stores before any worker starts."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from relay.access.actor import SYSTEM
from relay.ops.redis_client import client
from relay.ops.starting import is_starting
from relay.server.prepare import RefusedError, prepare
from relay.twins import services
from relay.twins.models import Twin
from tests.support.redis_servers import RedisServer


@pytest.mark.django_db
@pytest.mark.parametrize(("source", "demo"), [("registry", True), ("tfchain", False)])
def test_demo_twins_are_of_a_registry(
    site_redis: RedisServer, settings: Any, tmp_path: Path, source: str, demo: bool
) -> None:
    config = settings.RMB
    settings.RMB = dataclasses.replace(
        config,
        data=dataclasses.replace(config.data, dir=str(tmp_path)),
        relay=dataclasses.replace(config.relay, domains=("here.example",)),
        twins=dataclasses.replace(config.twins, source=source),
    )
    assert bool(prepare(embedded=True).twins) is demo
    assert Twin.objects.exists() is demo
    assert is_starting(client())


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("listen", "refused"),
    [
        ("[::]:8080", True),
        (":8080", True),
        ("0.0.0.0:8080", True),
        ("relay.example:8080", True),
        ("127.0.0.1:8080", False),
        ("[::1]:8080", False),
        ("localhost:8080", False),
        ("unix:/run/rmb.sock", False),
    ],
)
def test_demo_twins_are_not_served_to_others(
    site_redis: RedisServer, settings: Any, tmp_path: Path, listen: str, refused: bool
) -> None:
    config = settings.RMB
    settings.RMB = dataclasses.replace(
        config,
        data=dataclasses.replace(config.data, dir=str(tmp_path)),
        relay=dataclasses.replace(config.relay, domains=("here.example",), listen=listen),
    )
    assert prepare(embedded=True).twins == 3
    if refused:
        with pytest.raises(RefusedError, match=r"demo twins 101 102 103, .*rmb_twin remove"):
            prepare(embedded=False)
        services.remove_twins([101, 102, 103], actor=SYSTEM)
    prepare(embedded=False)
