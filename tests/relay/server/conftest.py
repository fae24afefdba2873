"""Tests of the server take each loop the relay runs on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Run a coroutine in a fresh loop of that kind."""
    factory = asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop

    def runner(coroutine: object) -> None:
        with asyncio.Runner(loop_factory=factory) as loop_runner:
            loop_runner.run(asyncio.wait_for(coroutine, 30))  # type: ignore[arg-type]

    return runner
