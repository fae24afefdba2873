"""Reasons for the end of connections: each has a meaning, which the documentation repeats."""

from __future__ import annotations

import re
from pathlib import Path

from proto.sbd.errors import DropReason
from relay.sbd.options import MEANINGS, EndReason

PAGE = Path(__file__).parents[3] / "docs" / "protocol" / "sbd.md"


def test_the_page_has_every_reason_and_its_meaning() -> None:
    assert set(MEANINGS) == {*DropReason, *EndReason}
    part = PAGE.read_text().partition("## How a connection ends")[2].partition("\n## ")[0]
    (ends, *_) = re.findall(r"(?:^\|.*\n)+", part, re.MULTILINE)  # the other table is about packets
    assert dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", ends, re.MULTILINE)) == dict(MEANINGS)
