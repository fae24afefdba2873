"""`relay.server.node_report`, with real processes, folders and Redis."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from relay.ops import nodes
from relay.queues import keys
from relay.server import node_report
from relay.server.node_report import NodeReport, disk
from tests.support.redis_servers import RedisServer
from tests.support.waiting import eventually

CHILD = """
import subprocess, sys
kept = bytearray(b"x") * (32 << 20)
files = [open(sys.executable, "rb") for _ in range(20)]
below = subprocess.Popen(["sleep", "600"])
print("ready", flush=True)
sys.stdin.read()
below.kill()
"""


@pytest.fixture
def child() -> Iterator[subprocess.Popen[str]]:
    """Run a process that has memory, files and a child process."""
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.communicate()


def test_processes_as_another_tool_sees_them(child: subprocess.Popen[str], tmp_path: Path) -> None:
    report = NodeReport(lambda: {child.pid: "worker 0"}, {"data folder": tmp_path})
    report.look()
    busy_until = time.process_time() + 0.2
    while time.process_time() < busy_until:
        pass
    told = report.look()
    by_name = {each["name"]: each for each in told["processes"]}
    assert by_name.keys() == {"supervisor", "worker 0", "worker 0: sleep"}
    worker, other = by_name["worker 0"], psutil.Process(child.pid)
    assert worker["rss_bytes"] == pytest.approx(other.memory_info().rss, rel=0.05)
    assert worker["uss_bytes"] == pytest.approx(other.memory_full_info().uss, rel=0.05)
    assert worker["rss_bytes"] >= worker["uss_bytes"] >= 32 << 20
    assert worker["files"] == other.num_fds() > 20
    assert worker["files_limit"] == other.rlimit(psutil.RLIMIT_NOFILE)[0]
    assert by_name["supervisor"]["pid"] == os.getpid()
    assert 0 < by_name["supervisor"]["cpu"] <= 1.5 and worker["cpu"] == 0
    assert told["memory_bytes"] > told["memory_free_bytes"] > 0
    (node,) = nodes.read({b"x": json.dumps(told).encode()})
    assert node.disks[0].free_bytes and len(node.load) == 3


def test_a_process_that_ended_is_not_told(child: subprocess.Popen[str], tmp_path: Path) -> None:
    report = NodeReport(lambda: {child.pid: "worker 0"}, {})
    child.communicate()
    child.wait()
    assert [each["name"] for each in report.look()["processes"]] == ["supervisor"]


def test_disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("relay.sqlite3", "relay.sqlite3-wal", "below/one", "below/deep/two"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(100_000))
    (tmp_path / "below" / "back").symlink_to(tmp_path)
    folder, database = disk("x", tmp_path), disk("x", tmp_path / "relay.sqlite3")
    assert folder["used_bytes"] == pytest.approx(400_000, rel=0.1) and not folder["partial"]
    assert database["used_bytes"] == pytest.approx(200_000, rel=0.1)
    assert database["size_bytes"] == folder["size_bytes"] > 0
    assert disk("x", tmp_path / "none")["used_bytes"] == 0
    monkeypatch.setattr(node_report, "MAX_FILES", 2)
    assert disk("x", tmp_path)["partial"]


async def test_it_is_told_until_the_end(
    valkey: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_report, "INTERVAL_S", 0.05)

    def stored() -> list[Any]:
        return list(json.loads(each) for each in valkey.run("HVALS", keys.NODES))

    report = NodeReport(dict, {"data folder": tmp_path})
    task = asyncio.create_task(node_report.publish(report, valkey.url))
    await eventually(stored)
    (first,) = stored()
    await eventually(lambda: stored()[0]["at"] > first["at"])
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert stored() == []
