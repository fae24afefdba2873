"""Tests of `hotpath.compiled`: which build is used, and when the Python sources are used."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import proto.rmb.address  # a compiled module: `hotpath` must be imported before it
from hotpath import compiled, compiling
from tests.support.forking import ROOT, without_settings

SOURCES = ["proto/rmb/address.py", "proto/rmb/bounds.py"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Name an empty folder for builds, and turn the switch on."""
    monkeypatch.setenv(compiled.FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setenv(compiled.SWITCH, "1")
    monkeypatch.setattr(compiled, "_reason", compiled._reason)
    return tmp_path


def make_build(folder: Path, **changed: Any) -> None:
    """Write a build whose extension modules are invalid."""
    manifest = compiling.manifest_of(SOURCES) | {"build": "build-1"}
    (folder / compiled.MANIFEST).write_text(json.dumps(manifest | changed))
    for name in (*compiled.MODULES, compiled.LIBRARY):
        file = Path(folder, "build-1", *name.split(".")).with_suffix(compiled.SUFFIX)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"not an extension module")


def state() -> str:
    compiled.enable()
    return compiled.state()


def test_this_process_runs_the_form_it_was_asked_for() -> None:
    """The process uses the compiled form exactly if the switch is on.

    `test_compiled_form` runs this test with the switch on.
    """
    asked = os.environ.get(compiled.SWITCH) == "1"
    origin = str(proto.rmb.address.__spec__ and proto.rmb.address.__spec__.origin)
    assert compiled.in_use() is asked, compiled.state()
    assert origin.endswith(compiled.SUFFIX if asked else ".py")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"digest": "0"}, "built from other sources; run make compile"),
        ({"sources": ["proto/rmb/removed.py"]}, "built from other sources; run make compile"),
        ({"modules": ["proto.rmb.address"]}, "built from other sources; run make compile"),
        ({"suffix": ".so", "python": "3.9"}, "built for Python 3.9; run make compile"),
    ],
)
def test_a_build_that_does_not_fit_is_not_used(
    folder: Path, changed: dict[str, Any], reason: str
) -> None:
    make_build(folder, **changed)
    assert state() == f"pure Python: {reason}"


def test_without_a_build(folder: Path) -> None:
    assert state() == "pure Python: not built; run make compile"


def test_the_switch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_build(folder)
    monkeypatch.setenv(compiled.SWITCH, "0")
    assert state() == "pure Python: switched off by RMB_COMPILED=0"
    monkeypatch.delenv(compiled.SWITCH)
    assert state() == "pure Python: pytest tests the sources unless RMB_COMPILED=1"


def test_all_modules_are_compiled_or_none(folder: Path) -> None:
    make_build(folder)
    first = next(name for name in compiled.MODULES if name in sys.modules)
    assert state() == f"pure Python: {first} was imported before"


def test_a_broken_manifest(folder: Path) -> None:
    (folder / compiled.MANIFEST).write_text("{")
    assert state().startswith("pure Python: JSONDecodeError: ")
    (folder / compiled.MANIFEST).write_text("{}")
    assert state() == "pure Python: KeyError: 'suffix'"


@pytest.mark.parametrize("missing", [False, True])
def test_a_broken_build_leaves_the_sources(folder: Path, missing: bool) -> None:
    make_build(folder)
    if missing:
        next(folder.rglob(f"address{compiled.SUFFIX}")).unlink()
    program = (
        "import hotpath, proto.rmb.address as module; "
        "print(hotpath.compiled.state(), module.__file__, sep='\\n')"
    )
    told = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**without_settings(os.environ), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    wrong = "is missing; run make compile" if missing else "ImportError: "
    assert told[0].startswith("pure Python: ") and wrong in told[0]
    assert told[1].endswith("address.py")


def test_mypy_looks_for_unreachable_code_in_what_is_compiled() -> None:
    """mypy checks all compiled modules for unreachable code, because mypyc removes such code."""
    settings = tomllib.loads(Path(ROOT, "pyproject.toml").read_text())["tool"]["mypy"]
    (modules,) = (each["module"] for each in settings["overrides"] if "warn_unreachable" in each)
    assert modules == list(compiled.MODULES)


@pytest.mark.parametrize("module", compiled.MODULES)
def test_compiled_modules_do_not_ask_where_they_are(module: str) -> None:
    """Compiled modules do not use `__file__`: it points into the build, without other files."""
    assert "__file__" not in Path(ROOT, *module.split(".")).with_suffix(".py").read_text()


@pytest.mark.parametrize("module", compiled.MODULES)
def test_compiled_coroutines_do_not_await_while_they_handle_an_error(module: str) -> None:
    """Compiled coroutines do not await in error handlers.

    Otherwise code that runs during the wait would see the error as its own.
    """
    tree = ast.parse(Path(ROOT, *module.split(".")).with_suffix(".py").read_text())
    handlers = [
        part
        for node in ast.walk(tree)
        if isinstance(node, ast.Try)
        for part in (*node.handlers, *node.finalbody)
    ]
    waits = ast.Await | ast.AsyncWith | ast.AsyncFor
    assert not [each for part in handlers for each in ast.walk(part) if isinstance(each, waits)]
