"""Fixtures for a site that reads its twins from a test node of the chain."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from relay.ops import background
from tests.support.devchain import Devchain, running_devchain
from tests.support.identities import twin
from tests.support.redis_servers import RedisServer

UseChain = Callable[..., None]


@pytest.fixture
def use_chain(settings: Any) -> UseChain:
    """Return a function that makes the site read its twins from the given chain nodes.

    Call it as `use_chain("ws://...", threshold=5)`.
    """

    def use(*urls: str, threshold: int = 600) -> None:
        settings.RMB = dataclasses.replace(
            settings.RMB,
            twins=dataclasses.replace(settings.RMB.twins, source="tfchain"),
            substrate=dataclasses.replace(
                settings.RMB.substrate, urls=urls, catchup_threshold=threshold
            ),
        )

    return use


@pytest.fixture
def chain(tmp_path: Path, site_redis: RedisServer, use_chain: UseChain) -> Iterator[Devchain]:
    """Run a node that has the twins 7 and 8, and configure the site to use it."""
    with running_devchain(tmp_path / "chain", (twin(7), twin(8))) as node:
        node.new_blocks(3)
        use_chain(node.url)
        yield node


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the names of started tasks in place of a Celery worker that would run them."""
    tasks: list[str] = []
    monkeypatch.setattr(background, "start", lambda task, *_, **__: tasks.append(task))
    return tasks
