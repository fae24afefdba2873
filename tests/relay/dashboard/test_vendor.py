"""What is bundled from elsewhere is what its README says it is."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

import relay.dashboard

VENDOR = Path(relay.dashboard.__file__).parent / "static/relay_dashboard/vendor"


@pytest.mark.parametrize("folder", sorted(each.name for each in VENDOR.iterdir()))
def test_sums(folder: str) -> None:
    told = dict(
        re.findall(
            r"^\| (\S+) \| ([0-9a-f]{64}) \|$", (VENDOR / folder / "README.md").read_text(), re.M
        )
    )
    found = {
        each.name: hashlib.sha256(each.read_bytes()).hexdigest()
        for each in (VENDOR / folder).iterdir()
        if each.name != "README.md"
    }
    assert found == told and "LICENSE" in told
