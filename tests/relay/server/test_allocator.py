"""The allocator of the bundled server. A library that every glibc has replaces jemalloc here."""

from __future__ import annotations

import ctypes.util
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import redis

from relay.server import allocator, embedded
from tests.support.redis_servers import VALKEY_PROGRAM, start_valkey
from tests.support.waiting import wait_until

LIBRARY = "libBrokenLocale.so.1"
TIMEOUT_S = 20.0

MAIN_WITH_LIBRARY = f"""
import ctypes.util
from relay.server import valkey_main
ctypes.util.find_library = lambda name: {LIBRARY!r}
valkey_main.main()
"""


def find(monkeypatch: pytest.MonkeyPatch, library: str | None) -> None:
    found = {allocator.LIBRARY: library}
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: found[name])


def has_loaded(pid: int) -> bool:
    return LIBRARY in Path(f"/proc/{pid}/maps").read_text()


def test_a_server_runs_with_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find(monkeypatch, LIBRARY)
    environment = allocator.server_environment(VALKEY_PROGRAM)
    server = start_valkey(tmp_path, environment=environment)
    try:
        assert has_loaded(server.pid)
    finally:
        server.remove()


def test_what_is_loaded_anyway_comes_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    find(monkeypatch, LIBRARY)
    monkeypatch.setenv("LD_PRELOAD", "libm.so.6")
    added = {"LD_PRELOAD": f"{LIBRARY}:libm.so.6", "MALLOC_CONF": allocator.OPTIONS}
    assert allocator.server_environment(VALKEY_PROGRAM) == {**os.environ, **added}


def test_it_is_told_how_to_serve_large_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    find(monkeypatch, LIBRARY)
    added = {"LD_PRELOAD": LIBRARY, "MALLOC_CONF": allocator.OPTIONS}
    assert allocator.server_environment(VALKEY_PROGRAM) == {**os.environ, **added}


def test_what_it_is_told_by_others_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options of the environment take precedence: of a repeated option the last one counts."""
    find(monkeypatch, LIBRARY)
    monkeypatch.setenv("MALLOC_CONF", "narenas:1")
    environment = allocator.server_environment(VALKEY_PROGRAM)
    assert environment["MALLOC_CONF"] == f"{allocator.OPTIONS},narenas:1"


def test_one_that_is_too_old_for_the_options_does_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find(monkeypatch, LIBRARY)
    program = tmp_path / "server"
    program.write_text('#!/bin/sh\n[ -z "$MALLOC_CONF" ] || echo "Invalid conf pair" >&2\n')
    program.chmod(0o700)
    environment = allocator.server_environment(str(program))
    assert environment == {**os.environ, "LD_PRELOAD": LIBRARY}


def test_a_machine_without_it_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    find(monkeypatch, None)
    assert allocator.server_environment(VALKEY_PROGRAM) == dict(os.environ)


def test_a_library_that_does_not_load_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    find(monkeypatch, "libthat-is-not-there.so.9")
    assert allocator.server_environment(VALKEY_PROGRAM) == dict(os.environ)


@pytest.mark.parametrize("program", ["/bin/false", "/nonexistent/valkey-server"])
def test_a_server_that_does_not_start_with_it_does_without(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find(monkeypatch, LIBRARY)
    assert allocator.server_environment(program) == dict(os.environ)


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    find(monkeypatch, LIBRARY)
    monkeypatch.setattr(allocator.sys, "platform", "darwin")
    assert allocator.server_environment(VALKEY_PROGRAM) == dict(os.environ)


def test_the_process_around_the_server_starts_it_with_the_library(tmp_path: Path) -> None:
    users_read, users_write = os.pipe()
    lifeline_read, lifeline_write = os.pipe()
    ready_read, ready_write = os.pipe()
    path = embedded.socket_path(tmp_path)
    command = [
        *(sys.executable, "-c", MAIN_WITH_LIBRARY, "--users-fd", str(users_read)),
        *("--socket", str(path), "--folder", str(embedded.server_folder(tmp_path))),
        *("--lifeline-fd", str(lifeline_read), "--ready-fd", str(ready_write), "--"),
        *embedded.server_command(VALKEY_PROGRAM, tmp_path, path),
    ]
    around = subprocess.Popen(command, pass_fds=(users_read, lifeline_read, ready_write))
    for fd in (users_read, lifeline_read, ready_write):
        os.close(fd)
    try:
        assert os.read(ready_read, 6) == b"ready\n"
        with closing(redis.Redis(unix_socket_path=str(path))) as client:
            assert has_loaded(client.info("server")["process_id"])
    finally:
        for fd in (users_write, lifeline_write, ready_read):  # without users it ends
            os.close(fd)
        wait_until(lambda: around.poll() is not None, TIMEOUT_S)
    assert around.returncode == 0
