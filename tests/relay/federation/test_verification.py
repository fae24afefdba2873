"""Signature checks in child processes and on the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import psutil
import pytest

from proto.identity.signing import KeyType, SigningKey
from relay.federation.verification import (
    LONE_S,
    Check,
    Checker,
    Verification,
)
from tests.support.children import children
from tests.support.identities import twin
from tests.support.waiting import eventually

DIGEST = bytes(range(16))
SIGNERS = [
    twin(1).signing_key,
    SigningKey.from_mini_secret(twin(2).mini_secret, KeyType.ED25519),  # a test key
]
GOOD: list[Check] = [(key.account, DIGEST, key.sign(DIGEST)) for key in SIGNERS]
ACCOUNT, _, SIGNATURE = GOOD[0]
BAD = [
    (ACCOUNT, bytes(16), SIGNATURE),
    (GOOD[1][0], DIGEST, SIGNATURE),
    (b"", DIGEST, SIGNATURE),
    (ACCOUNT, DIGEST, b""),
    (ACCOUNT, DIGEST, SIGNATURE[:64]),
    (ACCOUNT, DIGEST, SIGNATURE + b"x"),
    (ACCOUNT, DIGEST, b"x" + SIGNATURE[1:]),
    (ACCOUNT, DIGEST, b"e" + SIGNATURE[1:]),
]


@contextlib.asynccontextmanager
async def verification(processes: int) -> AsyncIterator[Verification]:
    checks = Verification(processes)
    try:
        yield checks
    finally:
        await checks.stop()


def checkers() -> list[psutil.Process]:
    return children("relay.federation.verifier")


@pytest.mark.parametrize("processes", [0, 1, 2])
async def test_verdicts_come_in_order(processes: int) -> None:
    async with verification(processes) as checks:
        await checks.verify(GOOD)
        await eventually(lambda: len(checkers()) == processes)
        rounds = [[*GOOD, *BAD][n % 5 :] * (n % 7) for n in range(60)]
        verdicts = await asyncio.gather(*(checks.verify(each) for each in rounds))
        assert verdicts == [[check in GOOD for check in each] for each in rounds]
        assert checks.waiting == 0
    assert checkers() == []


async def test_no_process_is_there_before_it_is_needed() -> None:
    async with verification(1) as checks:
        assert checkers() == []
        assert await checks.verify([]) == []
        assert checks.restarts == 0


async def test_one_that_comes_alone_is_checked_at_once() -> None:
    async with verification(1) as checks:
        await checks.verify(GOOD)
        await eventually(checkers)
        await asyncio.sleep(LONE_S)
        for check in (*GOOD, *BAD):
            coroutine = checks.verify([check])
            with contextlib.closing(coroutine):
                await asyncio.sleep(LONE_S)
                with pytest.raises(StopIteration) as done:
                    coroutine.send(None)
            assert done.value.value == [check in GOOD]


async def test_what_a_dead_process_was_to_check_is_checked_here() -> None:
    async with verification(1) as checks:
        await checks.verify(GOOD)
        (child,) = await eventually(checkers)
        many = [*GOOD, *BAD] * 100
        waiting = [asyncio.create_task(checks.verify(many)) for _ in range(3)]
        await asyncio.sleep(0)
        child.kill()
        for task in waiting:
            assert await task == [check in GOOD for check in many]
        await eventually(lambda: checks.restarts == 1)
        assert await checks.verify(GOOD) == [True, True]
        await eventually(checkers)


async def test_a_process_that_hangs_is_replaced() -> None:
    async with verification(1) as checks:
        await checks.verify(GOOD)
        (child,) = await eventually(checkers)
        child.suspend()
        assert await checks.verify(GOOD) == [True, True]
        await eventually(lambda: checkers() not in ([], [child]))


async def test_a_process_that_just_ended_is_not_asked() -> None:
    """A check is not sent after the socket closed, even before the keeper learns of it."""
    own, other = socket.socketpair()
    with other:
        loop = asyncio.get_running_loop()
        transport, child = await loop.create_unix_connection(Checker, sock=own)
        checking = asyncio.create_task(child.verify(GOOD))
        await asyncio.sleep(0)
        transport.abort()
        assert await checking is None
        assert await child.verify(GOOD) is None


async def test_the_loop_goes_on_meanwhile() -> None:
    async with verification(0) as checks:
        turns = 0
        task = asyncio.create_task(checks.verify(GOOD * 100))
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        assert turns > 10
