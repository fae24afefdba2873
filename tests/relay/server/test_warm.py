"""The warm parent: processes that it forks are children of the supervisor, and survive its end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio

from relay.server import start
from relay.server.child import Child, ChildSpec, child_environment
from relay.server.supervisor import Supervisor
from relay.server.warm import Adopted, WarmParent
from relay.server.warm_request import Request
from tests.relay.server.trivial_parent import CHILD_MODULE
from tests.support.started import exists
from tests.support.waiting import eventually

WAITS = "tests.relay.server.waiting_child"


@pytest_asyncio.fixture
async def warm() -> AsyncIterator[WarmParent]:
    parent = WarmParent(None, ())
    yield parent
    await parent.close()


def request(module: str = WAITS, **more: Any) -> Request:
    """Return a request for a child without Django."""
    return Request(child_environment(), module=module, **more)


async def forked(warm: WarmParent, asked: Request, fds: tuple[int, ...] = ()) -> Adopted:
    child = await warm.fork(asked, fds)
    assert child is not None
    return child


async def test_a_child_is_one_of_the_supervisor(warm: WarmParent) -> None:
    child = await forked(warm, request(arguments=["1", "2"]))
    process = psutil.Process(child.pid)
    assert process.ppid() == os.getpid()
    assert os.getpgid(child.pid) == child.pid
    await eventually(lambda: WAITS in process.cmdline())
    assert process.cmdline()[:3] == [WAITS, "1", "2"]
    child.send_signal(signal.SIGTERM)
    assert await child.wait() == -signal.SIGTERM
    assert not exists(child.pid)
    child.send_signal(signal.SIGTERM)


async def test_it_has_the_descriptors_it_was_given(warm: WarmParent) -> None:
    reading, writing = os.pipe()
    child = await forked(warm, request(arguments=["7"], fds=[1]), (writing,))
    os.close(writing)
    assert await child.wait() == 7, "its exit code"
    with os.fdopen(reading) as output:
        assert output.read() == "7\n"


async def test_a_child_that_raises_says_so(
    warm: WarmParent, capfd: pytest.CaptureFixture[str]
) -> None:
    child = await forked(warm, request(arguments=["no number"]))
    assert await child.wait() == 1
    assert "ValueError" in capfd.readouterr().err


async def test_the_end_of_a_warm_parent_concerns_no_child(
    warm: WarmParent, caplog: pytest.LogCaptureFixture
) -> None:
    child = await forked(warm, request())
    before = warm.pid
    assert before is not None
    os.kill(before, signal.SIGKILL)
    await eventually(lambda: "was ended by SIGKILL; the next child gets another" in caplog.text)
    assert exists(child.pid)
    after = await forked(warm, request())
    assert warm.pid not in (before, None)
    for each in (child, after):
        each.kill()
        assert await each.wait() == -signal.SIGKILL


async def test_one_that_ends_while_it_is_asked_is_replaced(warm: WarmParent) -> None:
    await (await forked(warm, request(arguments=["0"]))).wait()
    assert warm.pid is not None
    os.kill(warm.pid, signal.SIGSTOP)
    asking = asyncio.create_task(forked(warm, request(arguments=["3"])))
    await asyncio.sleep(0)
    os.kill(warm.pid, signal.SIGKILL)
    assert await (await asking).wait() == 3


async def test_one_that_has_nothing_to_do_is_ended(
    warm: WarmParent, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("relay.server.warm.REST_S", 0.05)
    child = await forked(warm, request())
    await eventually(lambda: warm.pid is None)
    assert exists(child.pid)
    assert await (await forked(warm, request(arguments=["3"]))).wait() == 3, "of another one"
    child.kill()
    await child.wait()
    assert not caplog.records


async def test_what_cannot_be_imported_is_left_to_a_start_without_it(
    warm: WarmParent, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    spec = ChildSpec(
        "worker", CHILD_MODULE, (str(tmp_path / "diary"), "serve", "0"), imports=("relay.nothing",)
    )
    child = await Child.spawn(spec, warm)
    async with asyncio.timeout(30):
        await child.ready.wait()
    assert "-m" in psutil.Process(child.pid).cmdline()
    assert "no warm parent until the next rolling restart: ModuleNotFoundError" in caplog.text
    assert await child.stop() == 0
    assert await warm.fork(request()) is None
    await warm.renew()
    await (await forked(warm, request(arguments=["0"]))).wait()


async def test_a_rolling_restart_reads_code_again(warm: WarmParent, tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    supervisor = Supervisor(warm)
    async with supervisor.handling_signals():
        await supervisor.start_workers(
            1,
            lambda slot: ChildSpec(
                f"worker {slot}", CHILD_MODULE, (str(diary), "serve", str(slot)), imports=()
            ),
        )
        (first,) = supervisor.worker_pids().values()
        assert psutil.Process(first).cmdline()[0] == CHILD_MODULE, "it was forked"
        before = warm.pid
        assert before is not None and supervisor.processes()[before] == "warm parent"
        supervisor.restart_workers()
        await eventually(lambda: first not in supervisor.worker_pids().values())
        assert warm.pid not in (before, None)
        assert not exists(before)
    assert [line.split()[1] for line in diary.read_text().splitlines()].count("stopped") == 2


async def test_nothing_is_open_and_nothing_runs_when_it_forks(
    warm: WarmParent, tmp_path: Path
) -> None:
    """The warm parent has no threads, sockets or databases that a fork would lose or share."""
    environment = {
        **child_environment({"RMB_DATA__DIR": str(tmp_path)}),
        "DJANGO_SETTINGS_MODULE": "rmbsite.settings",
    }
    for imports in (start.IMPORTS, start.WORKER_IMPORTS, start.CELERY_IMPORTS):
        assert await warm.fork(Request(environment, imports=imports, set_up=True)) is None
    assert warm.pid is not None, "it was not given up"
    process = psutil.Process(warm.pid)
    assert process.num_threads() == 1
    targets = [os.readlink(each) for each in Path(f"/proc/{warm.pid}/fd").iterdir()]
    assert sum(each.startswith("socket:") for each in targets) == 1
    assert len(targets) == 4, targets  # the socket and the standard streams
    assert not list(tmp_path.glob("*.sqlite3*"))


async def test_it_ignores_what_a_service_sends_to_all_processes(
    warm: WarmParent, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    await (await forked(warm, request(arguments=["0"]))).wait()
    assert warm.pid is not None
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(warm.pid, number)
    child = await forked(warm, request())
    child.send_signal(signal.SIGTERM)
    assert await child.wait() == -signal.SIGTERM, "its children do not ignore it"
    assert not caplog.text
