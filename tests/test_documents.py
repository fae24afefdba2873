"""Tests of what new users start with: targets of the Makefile, links and options in documents."""

from __future__ import annotations

import argparse
import re
import subprocess
from pathlib import Path

import pytest

from peer.gateway import options as gateway_options
from peer.gateway.app import COUNTERS, GAUGES
from relay.server import cli
from tests.screenshots import IMAGES, MAX_BYTES, SHOTS

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
VERBS = {
    *("setup", "run", "demo", "compile", "wheel", "test", "lint", "types", "cover"),
    *("bench", "fuzz", "docs", "screenshots", "fmt", "proto", "clean"),
}


def test_make_lists_its_verbs() -> None:
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    shown = re.findall(r"^ +make ([a-z-]+)", listed.stdout, re.MULTILINE)
    assert set(shown) >= VERBS


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\(([^)]+)\)", document.read_text())
    files = [target.partition("#")[0] for target in targets if "://" not in target]
    dead = [name for name in files if name and not (document.parent / name).exists()]
    assert not dead


def test_every_picture_is_taken_by_the_script_and_shown() -> None:
    pictures = {picture.name: picture.stat().st_size for picture in IMAGES.iterdir()}
    assert set(pictures) == {f"{shot.name}.png" for shot in SHOTS}
    assert max(pictures.values()) <= MAX_BYTES
    shown = "".join(document.read_text() for document in DOCUMENTS)
    assert not [name for name in pictures if f"images/{name})" not in shown]


@pytest.mark.parametrize(
    ("page", "parser"),
    [
        ("docs/operate/options.md", cli.build_parser("rmb-relay")),
        ("docs/operate/peer.md", gateway_options.build_parser()),
    ],
    ids=["rmb-relay", "rmb-peer"],
)
def test_every_option_is_documented(page: str, parser: argparse.ArgumentParser) -> None:
    text = (ROOT / page).read_text()
    options = {
        name
        for action in parser._actions
        for name in action.option_strings
        if name not in ("-h", "--help")
    }
    assert not [name for name in options if f"`{name}" not in text]
    described = set(re.findall(r"`(--?[a-z][a-z_-]*)", text))
    assert described <= options


def test_every_figure_of_the_gateway_is_documented() -> None:
    page = (ROOT / "docs/operate/peer.md").read_text()
    assert not [name for name in (*COUNTERS, *GAUGES) if f"`{name}`" not in page]
