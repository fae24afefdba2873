"""What `runrelay` does to the stores before any worker starts."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from relay.ops.redis_client import client
from relay.ops.starting import is_starting
from relay.server.prepare import prepare
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
