"""Tests of `pip install .`: the wheel contains the files that the sources read at run time."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("chain", "hotpath", "lattice", "peer", "proto", "redispipe", "relay", "rmbsite")
# Files that the build needs besides the packages.
SOURCES = ("pyproject.toml", "setup.py", "README.md", "LICENSE")


def test_the_wheel_is_complete(tmp_path: Path) -> None:
    # Build in a copy, because a build leaves folders beside the sources.
    source = tmp_path / "source"
    source.mkdir()
    for name in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__", "_compiled")
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    shutil.copytree(ROOT / "docs", source / "docs", ignore=shutil.ignore_patterns("history"))
    for name in SOURCES:
        shutil.copy(ROOT / name, source)
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index"),
            *("--no-build-isolation", "--wheel-dir", str(tmp_path), str(source)),
        ],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*-py3-none-any.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    files = {
        path.relative_to(source).as_posix() for name in PACKAGES for path in _files(name, source)
    }
    assert not files - packed
    shared = {name.partition("/share/doc/rmb-relay-platform/")[2] for name in packed}
    assert {
        path.relative_to(source / "docs").as_posix() for path in _files("docs", source)
    } <= shared


def _files(package: str, source: Path) -> list[Path]:
    return [
        path
        for path in (source / package).rglob("*")
        if path.is_file() and not {"build", "__pycache__"} & set(path.parts)
    ]
