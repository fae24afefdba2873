"""Runs the tests of the hot path again in its compiled form (`hotpath.compiled`).

It uses the build of the checkout if that matches the current sources, otherwise one in the cache of
pytest, which later runs use again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hotpath import compiled, compiling
from tests.support.forking import ROOT

TESTS = (
    "tests/hotpath/test_compiled.py",
    "tests/proto/federation",
    "tests/proto/identity",
    "tests/proto/mux",
    "tests/proto/rmb",
    "tests/proto/rpc/test_calls.py",
    "tests/proto/sbd",
    "tests/proto/websocket",
    "tests/peer/gateway/test_kills_from_outside.py",
    "tests/peer/gateway/test_round_trips.py",
    "tests/peer/mux/test_connecting.py",
    "tests/peer/test_rpc_sessions.py",
    "tests/redispipe",
    "tests/relay/federation/test_accounts.py",
    "tests/relay/federation/test_inbound_memory.py",
    "tests/relay/federation/test_sending.py",
    "tests/relay/queues",
    "tests/relay/sbd/test_two_workers.py",
    "tests/relay/server/test_frame_protocol.py",
    "tests/model/test_claims.py",
    "tests/model/test_dead_links.py",
    "tests/model/test_delivery_machine.py",
    "tests/model/test_scenarios.py",
    "tests/model/test_slow_readers.py",
    "tests/e2e/test_federation_delivery.py",
    "tests/e2e/test_federation_inbound_batch.py",
    "tests/e2e/test_routing.py",
)
TIMEOUT_S = 1800.0
MODEL_EXAMPLES = "10"
"""Number of examples, a quarter of the sources' number: compilation faults break most examples."""


@pytest.fixture
def build(
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Set the environment to a folder with a build of the current sources."""
    monkeypatch.delenv(compiled.FOLDER_VARIABLE, raising=False)
    manifest = compiled.read_manifest()
    if manifest is None or compiled.misfit(manifest):
        cache = getattr(request.config, "cache", None)  # None with -p no:cacheprovider
        folder: Path = cache.mkdir("compiled") if cache else tmp_path_factory.mktemp("compiled")
        monkeypatch.setenv(compiled.FOLDER_VARIABLE, str(folder))
        print(compiling.compile_modules(opt_level="0"))  # halves the time to compile


@pytest.mark.usefixtures("build")
def test_the_hot_path_passes_its_tests_in_the_compiled_form() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-x", *TESTS],
        cwd=ROOT,
        env={"RMB_MODEL_EXAMPLES": MODEL_EXAMPLES, **os.environ, compiled.SWITCH: "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    summary = done.stdout.strip().rpartition("\n")[2]
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in summary and "failed" not in summary and "skipped" not in summary
