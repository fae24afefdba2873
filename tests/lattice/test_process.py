"""Tests of a lattice process that cannot start, or whose parent ends."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
from typing import Any

import pytest

from lattice import process
from lattice.errors import ConnectError
from peer.errors import TwinsAwayError


def begin(monkeypatch: pytest.MonkeyPatch, run: Any, **settings: Any) -> int:
    given = {"kind": "bridge", "logging": {"version": 1, "incremental": True}, **settings}
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(given)))
    monkeypatch.setattr(process, "_kind", lambda _: run)
    return process.main()


@pytest.mark.parametrize("error", [ConnectError("no server"), TwinsAwayError("no twins")])
def test_what_keeps_it_from_beginning_is_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    async def fail() -> None:
        raise error

    async def run(settings: Any, stop: asyncio.Event, ready: Any) -> None:
        await process.together(stop, fail(), asyncio.Event().wait())  # type: ignore[arg-type]

    assert begin(monkeypatch, run) == process.FAILED
    assert [
        record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR
    ] == [f"bridge: {error}"]


def test_it_ends_with_its_parent_and_says_when_it_is_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lifeline, parent = os.pipe()
    told, telling = os.pipe()

    async def run(settings: Any, stop: asyncio.Event, ready: Any) -> None:
        ready()
        os.close(parent)
        await stop.wait()

    assert begin(monkeypatch, run, lifeline_fd=lifeline, ready_fd=telling) == 0
    assert os.read(told, 100) == process.READY
    assert os.read(told, 100) == b""
    for each in (lifeline, told):
        os.close(each)
