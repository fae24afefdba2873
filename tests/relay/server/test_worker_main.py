"""A server process: signals from the supervisor while it starts."""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn

from relay.server.worker_main import DrainingServer

ENDED_WITHIN_S = 60.0


async def _nothing(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("nobody connects")


async def test_a_stop_while_readiness_is_told_is_not_lost() -> None:
    def ready() -> bool:
        server.should_exit = True  # as uvicorn's handler of SIGTERM does
        return True

    config = uvicorn.Config(_nothing, lifespan="off", log_config=None)
    server = DrainingServer(config, ready)
    await asyncio.wait_for(server.serve(sockets=[]), ENDED_WITHIN_S)


async def test_a_stop_before_is_not_lost() -> None:
    config = uvicorn.Config(_nothing, lifespan="off", log_config=None)
    server = DrainingServer(config, lambda: False)
    await asyncio.wait_for(server.serve(sockets=[]), ENDED_WITHIN_S)
