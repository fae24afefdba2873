"""The supervisor, with real child processes that do little."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from relay.server import supervisor as supervisor_module
from relay.server.child import Child, ChildSpec, child_environment, describe_end
from relay.server.supervisor import Kept, StartError, Supervisor
from tests.relay.server.trivial_parent import CHILD_MODULE
from tests.support.started import exists
from tests.support.waiting import eventually

PARENT_MODULE = "tests.relay.server.trivial_parent"

# The standard input becomes the terminal of the new session.
WITH_TERMINAL = f"""
import fcntl, runpy, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
runpy.run_module({PARENT_MODULE!r}, run_name="__main__")
"""


class Diary:
    """A file in which the children of a test record events."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def entries(self, what: str) -> list[tuple[str, int]]:
        """Return name and process id of every child that recorded the event `what`."""
        lines = [line.split() for line in self.path.read_text().splitlines()]
        return [(name, int(pid)) for name, told, pid in lines if told == what]

    def worker(self, act: str = "serve", stop_grace_s: float = 5) -> Callable[[int], ChildSpec]:
        """Return a function that describes the worker of a slot."""
        return lambda slot: ChildSpec(
            f"worker {slot}",
            CHILD_MODULE,
            (str(self.path), act, str(slot)),
            stop_grace_s=stop_grace_s,
        )


@pytest.fixture
def diary(tmp_path: Path) -> Diary:
    return Diary(tmp_path / "diary")


async def test_children_are_ready_when_start_returns_and_gone_at_the_end(diary: Diary) -> None:
    supervisor = Supervisor()
    async with supervisor.handling_signals():
        await supervisor.keep(diary.worker()(9))
        await supervisor.start_workers(2, diary.worker())
        assert sorted(name for name, _ in diary.entries("started")) == ["0", "1", "9"]
        assert sorted(supervisor.worker_pids()) == [0, 1]
    stopped = [name for name, _ in diary.entries("stopped")]
    assert sorted(stopped) == ["0", "1", "9"]
    assert stopped[-1] == "9", "what was kept before the workers ends after them"


async def test_a_signal_to_the_supervisor_stops(diary: Diary) -> None:
    supervisor = Supervisor()
    async with supervisor.handling_signals():
        await supervisor.start_workers(1, diary.worker())
        os.kill(os.getpid(), signal.SIGTERM)
        await supervisor.stopped()
    assert len(diary.entries("stopped")) == 1


async def test_a_dead_worker_is_replaced(diary: Diary, caplog: pytest.LogCaptureFixture) -> None:
    supervisor = Supervisor()
    async with supervisor.handling_signals():
        await supervisor.start_workers(1, diary.worker())
        first = supervisor.worker_pids()[0]
        os.kill(first, signal.SIGKILL)
        await eventually(lambda: len(diary.entries("started")) == 2)
        assert supervisor.worker_pids()[0] != first
    assert f"worker 0 (pid {first}) was ended by SIGKILL; starting it again" in caplog.text


async def test_failures_in_a_row_are_answered_more_and_more_slowly(
    diary: Diary, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    supervisor = Supervisor()
    async with supervisor.handling_signals():
        await supervisor.start_workers(1, diary.worker())
        for deaths in (1, 2):
            os.kill(supervisor.worker_pids()[0], signal.SIGKILL)
            await eventually(lambda deaths=deaths: len(diary.entries("started")) == deaths + 1)
    waits = [record.args[-1] for record in caplog.records if record.args]
    assert waits == [0.5, 1.0]


async def test_a_child_that_fails_at_the_start_is_told(diary: Diary) -> None:
    supervisor = Supervisor()
    with pytest.raises(StartError, match="worker 0 ended with exit code 7 before it was ready"):
        async with supervisor.handling_signals():
            await supervisor.start_workers(1, diary.worker("fail"))
    assert len(diary.entries("failed")) == 1, "it is not tried again"


async def test_a_child_that_is_not_vital_is_tried_again(diary: Diary) -> None:
    supervisor = Supervisor()
    spec = dataclasses.replace(diary.worker("fail")(0), vital=False)
    async with supervisor.handling_signals():
        keeping = asyncio.create_task(supervisor.keep(spec))
        await eventually(lambda: len(diary.entries("failed")) == 2)
        assert not keeping.done()
        supervisor.stop()
        await keeping


async def test_a_child_for_which_there_is_no_room_is_tried_again(
    diary: Diary, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = Supervisor()
    spawn, room = Child.spawn, True

    async def spawning(spec: ChildSpec, _: object) -> Child:
        nonlocal room
        if not room:
            room = True
            raise BlockingIOError(errno.EAGAIN, "no room")
        return await spawn(spec)

    monkeypatch.setattr(Child, "spawn", spawning)
    async with supervisor.handling_signals():
        await supervisor.start_workers(1, diary.worker())
        room = False
        os.kill(supervisor.worker_pids()[0], signal.SIGKILL)
        await eventually(lambda: len(diary.entries("started")) == 2)
    assert f"worker 0 cannot be started ([Errno {errno.EAGAIN}] no room)" in caplog.text


async def test_a_first_start_without_room_is_told(
    diary: Diary, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> Child:
        raise BlockingIOError(errno.EAGAIN, "no room")

    monkeypatch.setattr(Child, "spawn", refuse)
    supervisor = Supervisor()
    with pytest.raises(StartError, match="worker 0 cannot be started"):
        async with supervisor.handling_signals():
            await supervisor.start_workers(1, diary.worker())


async def test_a_rolling_restart_renews_what_is_not_vital(diary: Diary) -> None:
    supervisor = Supervisor()
    async with supervisor.handling_signals():
        await supervisor.keep(diary.worker()(7))
        await supervisor.keep(dataclasses.replace(diary.worker()(8), vital=False))
        await supervisor.start_workers(1, diary.worker())
        supervisor.restart_workers()
        await eventually(lambda: len(diary.entries("started")) == 5)
        assert [name for name, _ in diary.entries("stopped")] == ["0", "8"]


async def test_a_failure_after_a_renewal_in_the_pause_is_told(
    diary: Diary, caplog: pytest.LogCaptureFixture
) -> None:
    """A renewal during the pause has no child to stop, so the next end counts as a failure."""
    supervisor = Supervisor()
    failing = Kept(dataclasses.replace(diary.worker("fail")(8), vital=False))
    supervisor._others.append(failing)
    async with supervisor.handling_signals():
        await eventually(lambda: "starting it again" in caplog.text)
        await failing.renew()
        await eventually(lambda: caplog.text.count("starting it again") == 2)
    assert len(diary.entries("failed")) == 2


async def test_a_stop_does_not_wait_for_a_start(diary: Diary) -> None:
    supervisor = Supervisor()
    async with supervisor.handling_signals():
        starting = asyncio.create_task(supervisor.start_workers(1, diary.worker("silent")))
        await eventually(lambda: diary.entries("started"))
        supervisor.stop()
        await starting
    assert len(diary.entries("stopped")) == 1


async def test_a_child_that_does_not_stop_is_killed(
    diary: Diary, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = Supervisor()
    async with supervisor.handling_signals():
        await supervisor.start_workers(1, diary.worker("stubborn", stop_grace_s=0.3))
        (pid,) = supervisor.worker_pids().values()
    assert not exists(pid)
    assert "did not stop within 0.3 s and was killed" in caplog.text


async def test_one_signal_that_comes_twice_waits(diary: Diary) -> None:
    """A repeated signal does not force a stop.

    `make` passes on what the terminal or `timeout` has already sent to the whole group.
    """
    supervisor = Supervisor()
    async with supervisor.handling_signals():
        await supervisor.start_workers(1, diary.worker())
        os.kill(os.getpid(), signal.SIGTERM)
        await supervisor.stopped()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0)
    assert len(diary.entries("stopped")) == 1


async def test_a_second_signal_does_not_wait(diary: Diary) -> None:
    supervisor = Supervisor()
    async with supervisor.handling_signals(), asyncio.timeout(10):
        await supervisor.start_workers(1, diary.worker("stubborn", stop_grace_s=600))
        (pid,) = supervisor.worker_pids().values()
        supervisor.stop()
        asyncio.get_running_loop().call_later(0.6, supervisor.stop)
        await supervisor.stopped()
    assert not exists(pid)


async def test_a_rolling_restart_always_has_somebody_ready(diary: Diary) -> None:
    supervisor = Supervisor()
    async with supervisor.handling_signals():
        await supervisor.start_workers(2, diary.worker())
        before = set(supervisor.worker_pids().values())
        os.kill(os.getpid(), signal.SIGHUP)
        await eventually(lambda: len(diary.entries("stopped")) == 2)
        await eventually(lambda: len(supervisor.worker_pids()) == 2)
        assert not before & set(supervisor.worker_pids().values())
    told = [line.split()[1] for line in diary.path.read_text().splitlines()]
    assert told[:6] == ["started"] * 3 + ["stopped", "started", "stopped"]


async def test_a_replacement_that_fails_leaves_the_old_worker(
    diary: Diary, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = Supervisor()
    acts = iter(["serve", "fail"])
    async with supervisor.handling_signals():
        await supervisor.start_workers(1, lambda slot: diary.worker(next(acts))(slot))
        before = supervisor.worker_pids()
        supervisor.restart_workers()
        await eventually(lambda: "rolling restart given up" in caplog.text)
        await eventually(lambda: supervisor.worker_pids() == before)
        assert not diary.entries("stopped")


async def test_a_replacement_that_hangs_is_given_up(
    diary: Diary, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervisor_module, "REPLACEMENT_READY_S", 0.5)
    supervisor = Supervisor()
    acts = iter(["serve", "silent"])
    async with supervisor.handling_signals():
        await supervisor.start_workers(1, lambda slot: diary.worker(next(acts))(slot))
        before = supervisor.worker_pids()
        supervisor.restart_workers()
        await eventually(lambda: "not ready within 0.5 s" in caplog.text)
        await eventually(lambda: supervisor.worker_pids() == before)


async def test_children_notice_that_their_parent_was_killed(diary: Diary) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-m", PARENT_MODULE, str(diary.path), "serve"],
        env=child_environment(),
        stdout=subprocess.PIPE,
    )
    with parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        pids = [pid for _, pid in diary.entries("started")]
        assert len(pids) == 2
        parent.kill()
    await eventually(lambda: not any(map(exists, pids)))
    assert len(diary.entries("stopped")) == 2, "they ended in good order"


async def test_a_stubborn_orphan_ends_after_its_grace(diary: Diary) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-m", PARENT_MODULE, str(diary.path), "stubborn"],
        env=child_environment(),
        stdout=subprocess.PIPE,
    )
    with parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        pids = [pid for _, pid in diary.entries("started")]
        parent.kill()
    await eventually(lambda: not any(map(exists, pids)))
    assert not diary.entries("stopped")


async def test_closing_the_terminal_stops(diary: Diary) -> None:
    ours, theirs = os.openpty()
    parent = subprocess.Popen(
        [sys.executable, "-c", WITH_TERMINAL, str(diary.path), "serve"],
        env=child_environment(),
        stdin=theirs,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    os.close(theirs)
    with parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        os.close(ours)
        assert parent.wait(30) == 0
    assert len(diary.entries("stopped")) == 2
    assert len(diary.entries("started")) == 2, "it did not restart them"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "ended with exit code 0"),
        (3, "ended with exit code 3"),
        (-9, "was ended by SIGKILL"),
        (-63, "was ended by signal 63"),
    ],
)
def test_ends_in_words(code: int, words: str) -> None:
    assert describe_end(code) == words
