"""Tests that the table of answers agrees with the page that documents it."""

from __future__ import annotations

import re
from pathlib import Path

from proto.federation.answers import MEANINGS, REPEATED, TAKEN, InboundReason, refused

PAGE = Path(__file__).parents[3] / "docs" / "protocol" / "federation.md"


def test_every_reason_of_its_own_has_an_answer() -> None:
    assert set(InboundReason) <= set(MEANINGS)


def test_final_answers_are_those_the_reference_takes_as_final() -> None:
    for reason, (status, text) in MEANINGS.items():
        answer = refused(reason)
        assert status in (400, 403, 404, 413, 503)
        assert answer.final == (status < 500) == (answer.retry_after_s == 0)
        assert text and (answer.reason, answer.text) == (reason, text)
    assert refused(InboundReason.OVERFULL, 7).retry_after_s == 7
    assert not TAKEN.final and not REPEATED.final


def test_the_page_says_the_same() -> None:
    rows = re.findall(r"^\| (\d{3}) \| `(\w+)` \| ([^|]+) \|$", PAGE.read_text(), re.MULTILINE)
    assert [(int(status), reason, text) for status, reason, text in rows] == [
        (status, reason.value, text) for reason, (status, text) in MEANINGS.items()
    ]
