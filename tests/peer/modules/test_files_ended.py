"""Ended uploads that are forgotten while their command is called."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from peer.modules.api import Request
from peer.modules.files_ended import KEEP_S, Ended
from peer.modules.files_folder import UploadFolder
from proto.files.messages import Offer
from proto.files.records import Record, Stage
from proto.rmb.address import Address
from tests.peer.modules.memory import LOG

KEY = "0" * 32


async def test_a_sweep_that_waits_for_a_command_can_be_cancelled(tmp_path: Path) -> None:
    called, cancelled = asyncio.Event(), asyncio.Event()

    async def deliver(request: Request) -> None:
        called.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
            await asyncio.Event().wait()  # the call takes long

    folder = UploadFolder(tmp_path)
    ended = Ended(folder, deliver, LOG, lambda: KEEP_S + 1)
    offer = Offer(1, "a", cmd="arrived")
    ended.add(KEY, Record("id", Address(7), offer, Stage.MOVED, at=0))
    await called.wait()
    sweep = asyncio.create_task(ended.sweep())
    await cancelled.wait()
    sweep.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(sweep, 10)
    await ended.stop()
    folder.close()


async def test_two_that_forget_the_same_upload(tmp_path: Path) -> None:
    async def deliver(request: Request) -> None:
        """Do nothing: no program serves the command."""

    folder = UploadFolder(tmp_path)
    ended = Ended(folder, deliver, LOG, lambda: KEEP_S + 1)
    offer = Offer(1, "a")
    ended.add(KEY, Record("id", Address(7), offer, Stage.DONE, at=0))
    both = asyncio.gather(ended.answers(KEY, offer), ended.sweep())
    assert await both == [False, None]
    await ended.stop()
    folder.close()
