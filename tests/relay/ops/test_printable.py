"""`relay.ops.printable`: nothing a stranger wrote moves a cursor or breaks a line."""

from __future__ import annotations

import pytest

from relay.ops.printable import shown


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", ""),
        ("plain, ünïcode, 'quoted'", "plain, ünïcode, 'quoted'"),
        ("red\x1b[31m", "red\\x1b[31m"),
        ("two\nlines\r", "two\\nlines\\r"),
        ("right\u202eleft", "right\\u202eleft"),
        ("half\ud800", "half\\ud800"),
    ],
)
def test_what_is_not_to_be_printed_is_escaped(text: str, wanted: str) -> None:
    assert shown(text) == wanted
    assert wanted.isprintable()


def test_a_limit_holds_for_what_is_shown() -> None:
    assert shown("x" * 5, 5) == "xxxxx"
    assert shown("x" * 6, 5) == "xxxx…"
    assert shown("\x00" * 3, 9) == "\\x00\\x00…", "of the escaped text"
