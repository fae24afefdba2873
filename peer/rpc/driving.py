"""Driving the state machine of a call: received data goes in, its actions apply to the stream."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from peer.mux.errors import StreamFailedError
from peer.mux.session import MuxSession
from peer.mux.stream import MuxStream
from proto.mux.frames import Half
from proto.rpc.call import Abort, Cancel, End, Write
from proto.rpc.caller import Caller
from proto.rpc.handler import Handler

Params = dict[str, Any]


async def perform(machine: Caller | Handler, stream: MuxStream) -> None:
    """Perform the actions that the machine requests on the stream."""
    while (action := machine.next_action()) is not None:
        try:
            match action:
                case Write(data, is_alone):
                    await stream.write(data)
                    if is_alone:
                        await stream.acknowledged()
                        machine.acknowledged()
                case End():
                    await stream.end()
                case Abort(code):
                    stream.abort(code)
                case Cancel(code):
                    stream.cancel(code)
        except StreamFailedError as error:
            fail(machine, Half.WRITE, error)


def perform_now(machine: Caller | Handler, stream: MuxStream) -> None:
    """Perform the actions without waiting, if none is a write that must be sent alone."""
    while (action := machine.next_action()) is not None:
        try:
            match action:
                case Write(data):
                    stream.write_now(data)
                case End():
                    stream.end_now()
                case Abort(code):
                    stream.abort(code)
                case Cancel(code):
                    stream.cancel(code)
        except StreamFailedError as error:
            fail(machine, Half.WRITE, error)


async def receive(machine: Caller | Handler, stream: MuxStream) -> bool:
    """Pass the next data on the stream to the machine; return whether more can come."""
    try:
        if machine.next_timer() is None:
            data: bytes | None = await stream.read()
        else:
            data = await _in_time(machine, stream)
    except StreamFailedError as error:
        fail(machine, Half.READ, error)
        return False
    if data is None:
        return True
    if data:
        machine.receive_data(data)
        return True
    machine.receive_end()
    return False


async def wait(machine: Handler, stream: MuxStream, work: asyncio.Task[None]) -> None:
    """Wait until the work ends, the stream fails, or the machine's timer is due."""
    failing = asyncio.ensure_future(stream.failed())
    try:
        await asyncio.wait(
            (failing, work), timeout=wait_s(machine), return_when=asyncio.FIRST_COMPLETED
        )
        if failing.done():
            fail(machine, *failing.result())
        machine.handle_timer(MuxSession.now_ns())
    finally:
        failing.cancel()


def fail(machine: Caller | Handler, half: Half, error: StreamFailedError) -> None:
    """Report the failure of a half of the stream to the machine."""
    if isinstance(machine, Caller):
        machine.receive_failure(half, error.code, str(error))
    else:
        machine.receive_failure(half, str(error))


async def _in_time(machine: Caller | Handler, stream: MuxStream) -> bytes | None:
    """Read; return None if the machine's timer was due first."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(wait_s(machine)):
            return await stream.read()
    machine.handle_timer(MuxSession.now_ns())
    return None


def wait_s(machine: Caller | Handler) -> float | None:
    """Return the seconds until the machine's timer is due; None if it has none."""
    due_ns = machine.next_timer()
    return None if due_ns is None else max(0.0, (due_ns - MuxSession.now_ns()) / 1e9)


def milliseconds(timeout_s: float | None) -> float | None:
    """Convert a time-out in seconds to milliseconds, the unit of the machines."""
    return None if timeout_s is None else timeout_s * 1000
