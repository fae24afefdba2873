"""`rmb_bench` and `rmb_demo` with a real embedded relay."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.support.relay_process import ROOT, command_environment, run_command
from tests.support.started import embedded


async def test_a_load_and_the_demo(start: Any) -> None:
    relay = await start(*embedded()).ready()
    folder = relay.data_dir.parent

    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(ROOT / "manage.py"), *arguments],
            env={**command_environment(folder, {}), "RMB_DATA__DIR": str(relay.data_dir)},
            capture_output=True,
            text=True,
            timeout=60,
        )

    done = command("rmb_bench", "--pairs", "3", "--window", "2", "--seconds", "1", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["messages_per_s"] > 100 and found["latency_s"]["p50"] > 0
    assert (found["lost"], found["doubled"], found["disordered"], found["errors"]) == (0, 0, 0, {})
    done = command("rmb_demo")
    assert done.returncode == 0 and "all messages arrived, in order" in done.stdout
    limited = (
        "from relay.access.actor import SYSTEM; from relay.limits import services; "
        "services.set_limit(101, 10, 100_000, actor=SYSTEM)"
    )
    assert command("shell", "-c", limited).returncode == 0
    done = command("rmb_bench", "--pairs", "1", "--window", "20", "--seconds", "1")
    assert done.returncode == 1 and "refused" in done.stdout


def test_no_relay(tmp_path: Any) -> None:
    for name in ("rmb_bench", "rmb_demo"):
        done = run_command(tmp_path, name)
        assert done.returncode == 1 and "no relay runs on" in done.stderr


@pytest.mark.parametrize(
    ("option", "value"), [("--pairs", "0"), ("--size", "1"), ("--window", "x")]
)
def test_refused(tmp_path: Any, option: str, value: str) -> None:
    done = run_command(tmp_path, "rmb_bench", option, value)
    assert done.returncode == 2 and "must be a whole number" in done.stderr
