"""The data folder of embedded mode, and the server program that it starts."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from redispipe.address import RedisAddress
from relay.server import embedded
from relay.server.embedded import DataFolderLock, EmbeddedError
from relay.server.memory import machine_bytes

HOLD_LOCK = """
import fcntl, os, sys
lock = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(lock, fcntl.LOCK_EX)
os.pwrite(lock, sys.argv[2].encode() or str(os.getpid()).encode(), 0)
print("held", flush=True)
sys.stdin.read()
"""


def hold_lock(folder: Path, written_pid: str = "") -> subprocess.Popen[bytes]:
    """Start another process that holds a data folder until its input ends."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, str(folder / "lock"), written_pid],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    return holder


def dead_pid() -> int:
    """Return the id of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    return process.pid


async def test_the_lock_names_its_holder(tmp_path: Path) -> None:
    lock = DataFolderLock(tmp_path)
    try:
        await lock.acquire(print)
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
        assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600
    finally:
        os.close(lock.fd)


async def test_a_folder_in_use_is_refused_by_pid(tmp_path: Path) -> None:
    lock = DataFolderLock(tmp_path)
    with hold_lock(tmp_path) as holder:
        try:
            with pytest.raises(EmbeddedError, match=rf"running relay \(pid {holder.pid}\)"):
                await lock.acquire(print)
        finally:
            os.close(lock.fd)


async def test_the_end_of_a_killed_run_is_waited_for(tmp_path: Path) -> None:
    lock = DataFolderLock(tmp_path)
    pid = dead_pid()
    said: list[str] = []
    with hold_lock(tmp_path, str(pid)) as rest_of_the_run:

        def say(text: str) -> None:
            said.append(text)
            assert rest_of_the_run.stdin is not None
            rest_of_the_run.stdin.close()

        try:
            await lock.acquire(say)
        finally:
            os.close(lock.fd)
    assert said == [f"waiting for the rest of the relay that was pid {pid} to end"]


async def test_the_end_of_a_killed_run_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "FORMER_RUN_ENDS_S", 0.2)
    lock = DataFolderLock(tmp_path)
    with hold_lock(tmp_path, str(dead_pid())):
        try:
            with pytest.raises(EmbeddedError, match="is in use"):
                await lock.acquire(print)
        finally:
            os.close(lock.fd)


async def test_a_child_that_inherited_the_lock_keeps_the_folder(tmp_path: Path) -> None:
    lock = DataFolderLock(tmp_path)
    await lock.acquire(print)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=(lock.fd,)):
        os.close(lock.fd)
        other = os.open(tmp_path / "lock", os.O_RDWR)
        try:
            with pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(other)


def test_the_bundled_server_is_found() -> None:
    program = embedded.find_server_program()
    version = subprocess.run([program, "--version"], capture_output=True, check=True)
    assert b"Valkey" in version.stdout


def without_bundled_server(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr(embedded.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", path)


def test_a_server_on_the_path_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "redis-server"
    shutil.copy("/bin/true", program)
    without_bundled_server(monkeypatch, str(tmp_path))
    assert embedded.find_server_program() == str(program)


def test_no_server_at_all_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_bundled_server(monkeypatch, str(tmp_path))
    with pytest.raises(EmbeddedError, match="apt install redis-server"):
        embedded.find_server_program()


def test_a_short_data_folder_holds_the_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    assert embedded.socket_path(Path("/srv/rmb")) == Path("/srv/rmb/valkey/redis.sock")


def test_a_long_data_folder_gets_a_private_short_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = Path("/tmp") / f"rmb-test-{os.getpid()}"
    short.mkdir(mode=0o700)
    monkeypatch.setattr(embedded.tempfile, "gettempdir", lambda: str(short))
    data_dir = tmp_path / ("x" * 120)
    try:
        path = embedded.socket_path(data_dir)
        assert path.parent.parent == short
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert path == embedded.socket_path(data_dir), "the same at each start"
        assert path != embedded.socket_path(tmp_path / ("y" * 120))
        path.parent.chmod(0o755)
        with pytest.raises(EmbeddedError, match="not a private folder"):
            embedded.socket_path(data_dir)
    finally:
        shutil.rmtree(short)


def test_no_short_path_at_all_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 120)
    long.mkdir()
    monkeypatch.setattr(embedded.tempfile, "gettempdir", lambda: str(long))
    with pytest.raises(EmbeddedError, match="choose a shorter folder"):
        embedded.socket_path(long)


@pytest.mark.parametrize("name", ["plain", "with space", "per%cent", "ünïcode?#"])
def test_the_url_is_read_back_by_both_redis_clients(name: str) -> None:
    import redis

    path = Path(f"/data/{name}/redis.sock")
    url = embedded.redis_url(path)
    assert RedisAddress.parse(url).path == str(path)
    with redis.Redis.from_url(url) as client:
        assert client.connection_pool.connection_kwargs["path"] == str(path)


def test_a_folder_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(EmbeddedError, match=r"cannot use .*/lock: Is a directory"):
        DataFolderLock(tmp_path)
    (tmp_path / "valkey").touch()
    with pytest.raises(EmbeddedError, match=r"cannot make .*/valkey: File exists"):
        embedded.server_folder(tmp_path)


def test_the_server_gets_a_part_of_the_memory_and_throws_nothing_away(tmp_path: Path) -> None:
    command = embedded.server_command("valkey-server", tmp_path, tmp_path / "redis.sock")
    options = dict(zip(command[1::2], command[2::2], strict=False))
    assert options["--maxmemory"] == str(machine_bytes() // embedded.MEMORY_PART)
    assert options["--maxmemory-policy"] == "noeviction"
