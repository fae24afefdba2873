"""Bundled third-party files match the checksums in their README."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
from django.contrib.staticfiles import finders

import relay.dashboard

STATIC = Path(relay.dashboard.__file__).parent / "static"
FOLDERS = sorted(each.parent for each in STATIC.rglob("README.md"))


def test_all_folders_are_found() -> None:
    assert {each.name for each in FOLDERS} == {"alpine", "uplot"}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda each: each.name)
def test_sums(folder: Path) -> None:
    told = dict(
        re.findall(r"^\| (\S+) \| ([0-9a-f]{64}) \|$", (folder / "README.md").read_text(), re.M)
    )
    found = {
        each.name: hashlib.sha256(each.read_bytes()).hexdigest()
        for each in folder.iterdir()
        if each.name != "README.md"
    }
    assert found == told and "LICENSE" in told


def test_the_theme_gets_the_alpine_that_compiles_nothing() -> None:
    found = finders.find("unfold/js/alpine/alpine.js")
    assert found == str(STATIC / "unfold/js/alpine/alpine.js")
