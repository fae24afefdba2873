"""The compactor's process: it waits while another one works; without Arrow, segments wait."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from relay.analytics import compactor_main, gaps, lag
from relay.analytics.compactor import alone
from relay.analytics.gaps import Why
from relay.analytics.lake import Lake
from relay.analytics.segments import Header
from relay.server.lifeline import READY_LINE
from tests.relay.analytics import segment_files as made
from tests.support.redis_servers import RedisServer
from tests.support.relay_process import command_environment
from tests.support.waiting import wait_until

START = made.at("2026-03-01T05:00")
ENDS_WITHIN_S = 30.0


def header(worker: str) -> Header:
    return Header("a.example", worker, START)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    (tmp_path / "data").mkdir(mode=0o700)
    return Lake(tmp_path / "data" / "analytics")


@contextlib.contextmanager
def running(
    folder: Path, settings: Mapping[str, str], path: Path | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Run the process until it is ready, and cut its lifeline at the end."""
    lifeline, hold = os.pipe()
    ready, tell = os.pipe()
    environment = command_environment(folder, settings)
    if path is not None:
        environment["PYTHONPATH"] = f"{path}{os.pathsep}{environment.get('PYTHONPATH', '')}"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", compactor_main.__name__),
            *("--lifeline-fd", str(lifeline), "--ready-fd", str(tell)),
        ],
        pass_fds=(lifeline, tell),
        env={**environment, "DJANGO_SETTINGS_MODULE": "rmbsite.settings"},
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(lifeline)
    os.close(tell)
    try:
        with open(ready, "rb") as pipe:
            assert pipe.readline() == READY_LINE
        yield process
    finally:
        os.close(hold)
        process.communicate(timeout=ENDS_WITHIN_S)


def test_it_waits_for_its_turn_and_takes_in_what_is_there_when_it_is_stopped(
    lake: Lake, tmp_path: Path
) -> None:
    made.put(lake, made.content(header("a"), made.events(START, range(9))), header("a"))
    with contextlib.ExitStack() as another:
        another.enter_context(alone(lake))
        with running(tmp_path, {}) as process:
            assert process.stderr is not None
            assert "another compactor is at work" in process.stderr.readline()
            assert made.uids(lake) == []
            another.close()
            wait_until(lambda: made.uids(lake) == list(range(9)), ENDS_WITHIN_S)
            process.send_signal(signal.SIGSTOP)
            later = made.events(START, range(9, 18))
            made.put(lake, made.content(header("b"), later), header("b"))
            process.terminate()
            process.send_signal(signal.SIGCONT)
            assert process.wait(ENDS_WITHIN_S) == 0
    assert made.uids(lake) == list(range(18))


def test_without_arrow_segments_wait_and_the_oldest_go_beyond_the_bound(
    lake: Lake, tmp_path: Path, valkey: RedisServer
) -> None:
    without = tmp_path / "without"
    without.mkdir()
    (without / "pyarrow.py").write_text("raise ModuleNotFoundError('gone', name='pyarrow')\n")
    paths = []
    for age, name in enumerate("ab"):
        data = made.content(header(name), made.events(START, range(9)))
        paths.append(made.put(lake, data.ljust(1 << 20, b"\0"), header(name)))
        os.utime(paths[-1], (START // 1_000_000 + age,) * 2)
    settings = {"analytics.segments_max_bytes": str(1 << 20), "redis.url": valkey.url}
    with running(tmp_path, settings, without) as process, valkey.client() as client:
        wait_until(lambda: not paths[0].exists(), ENDS_WITHIN_S)
        wait_until(lambda: lag.read(client), ENDS_WITHIN_S)
        assert lag.read(client)[lag.host()].segments in (1, 2)
        process.terminate()
        assert process.wait(ENDS_WITHIN_S) == 0
        assert process.stderr is not None
        assert "pyarrow is not installed (make setup-analytics)" in process.stderr.read()
        assert lag.read(client) == {}
    assert paths[1].exists()
    (gap,) = gaps.read(lake.root)
    assert (gap.worker, gap.lost, gap.why) == ("a", 9, Why.DISK)
