"""Tests of `hotpath.compiling`: what a build depends on, and errors when no build is possible."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest

from hotpath import compiled, compiling


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Name an empty folder for builds."""
    monkeypatch.setenv(compiled.FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.delenv(compiled.SWITCH, raising=False)
    return tmp_path


def write_manifest(folder: Path) -> None:
    """Write a manifest of a build of the current sources."""
    manifest = compiling.manifest_of(compiling.sources()) | {"build": "build-1"}
    (folder / compiled.MANIFEST).write_text(json.dumps(manifest))


def test_a_build_depends_on_the_modules_and_on_those_they_take_names_from() -> None:
    found = compiling.sources()
    assert {f"{name.replace('.', '/')}.py" for name in compiled.MODULES} <= set(found)
    assert {"proto/rmb/bounds.py", "proto/rmb/types_pb2.pyi"} <= set(found)
    assert len(found) < 200  # all are read at every start


def test_names_are_followed_to_where_they_come_from() -> None:
    """Imported names are followed to the modules that define them.

    `prepare` imports `Finding` from a package that imports it from one of its modules.
    """
    found = set(compiling._origins("relay.ops.doctor", "Finding"))
    assert found == {"relay/ops/doctor/__init__.py", "relay/ops/doctor/finding.py"}
    assert not set(compiling._origins("asyncio", "Event"))


def test_without_a_compiler(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -O1")
    assert compiling.main([]) == 1
    told = capsys.readouterr().err
    assert told.startswith("not compiled: no C compiler (no-such-compiler); ")
    assert told.count("\n") == 1
    assert compiling.main(["--wanted"]) == 1


def test_without_the_headers_of_python(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(folder))
    assert compiling.main([]) == 1
    assert f"no Python headers in {folder}; " in capsys.readouterr().err


def test_one_at_a_time(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open(folder / "lock", "w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert compiling.main([]) == 1
    assert capsys.readouterr().err == "not compiled: another process compiles at the moment\n"


def test_what_is_up_to_date_is_not_compiled_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_manifest(folder)
    assert compiling.main([]) == 0
    assert capsys.readouterr().out == "the compiled hot path is up to date\n"
    assert compiling.main(["--wanted"]) == 1


def test_a_manifest_that_cannot_be_read_is_no_build(folder: Path) -> None:
    for text in ("{", "{}"):
        (folder / compiled.MANIFEST).write_text(text)
        assert compiling.main(["--wanted"]) == 0


def test_sources_that_failed_are_not_tried_again_in_the_background(folder: Path) -> None:
    assert compiling.main(["--wanted"]) == 0
    digest = compiled.digest(compiling.sources())
    (folder / compiling.FAILURE).write_text(json.dumps({"digest": digest}))
    assert compiling.main(["--wanted"]) == 1
    (folder / compiling.FAILURE).write_text(json.dumps({"digest": "other"}))
    assert compiling.main(["--wanted"]) == 0


def test_the_reason_is_the_first_error(capsys: pytest.CaptureFixture[str]) -> None:
    program = "print('a.py:1: note: x', 'a.py:2: error: y', 'z', sep='\\n'); raise SystemExit(1)"
    with pytest.raises(compiling.CompileError, match=r"^a.py:2: error: y$"):
        compiling._run(program, os.environ)
    assert "a.py:1: note: x" in capsys.readouterr().err


def test_check_shows_the_state(capsys: pytest.CaptureFixture[str]) -> None:
    assert compiling.main(["--check"]) == (0 if compiled.in_use() else 1)
    assert capsys.readouterr().out == f"hot path: {compiled.state()}\n"


def test_a_folder_that_cannot_be_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "file").touch()
    monkeypatch.setenv(compiled.FOLDER_VARIABLE, str(folder / "file"))
    assert compiling.main([]) == 1
    assert capsys.readouterr().err.startswith(f"not compiled: cannot write to {folder}/file: ")
