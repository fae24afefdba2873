"""Tests of the list of reasons, its tables, and the page that documents them."""

from __future__ import annotations

import re
from pathlib import Path

from proto.rmb import notices
from proto.rmb.reasons import MESSAGES, SESSIONS, MessageReason, SessionReason
from proto.websocket.errors import Fault

PAGE = Path(__file__).parents[3] / "docs" / "protocol" / "reasons.md"
MAX_CLOSE_TEXT_BYTES = 123  # RFC 6455, section 5.5: 125 in a control frame, less 2 for the code

# The names are an interface: dashboards, queries and alarms use them.
MESSAGE_NAMES = """unparsable empty text_frame too_large wrong_source missing_destination
unknown_twin no_relay offline_failfast limit_count limit_size banned queue_full source_share
storage_full expired queue_expired bad_signature not_here remote_4xx remote_5xx remote_timeout
outbox_full purged look_up_failed no_usable_relay source_full twin_full"""
SESSION_NAMES = """client_close idle replaced back_pressure protocol_error text_frame unparsable
too_large kicked banned drained worker_lost capacity handshake_timeout unauthorized ip_limit
twin_changed twin_sessions address_banned"""


def test_the_names() -> None:
    assert [reason.value for reason in MessageReason] == MESSAGE_NAMES.split()
    assert [reason.value for reason in SessionReason] == SESSION_NAMES.split()


def test_every_reason_is_in_its_table() -> None:
    assert list(MESSAGES) == list(MessageReason)
    assert list(SESSIONS) == list(SessionReason)


def test_close_frames_are_possible() -> None:
    for end in SESSIONS.values():
        assert (
            end.close_code is None
            or end.close_code in range(1000, 1016)
            or (4000 <= end.close_code <= 4999)
        )
        assert end.close_code not in (1004, 1005, 1006, 1015), "never in a frame"
        assert len(end.text.encode()) <= MAX_CLOSE_TEXT_BYTES


def test_each_own_close_code_has_one_meaning() -> None:
    codes = [end.close_code for end in SESSIONS.values() if end.close_code]
    assert len(codes) == len(set(codes))
    assert SESSIONS[SessionReason.REPLACED][::2] == (4001, "replaced")
    assert SESSIONS[SessionReason.DRAINED].close_code == 1012


def _table(heading: str) -> dict[str, list[str]]:
    """Return the rows of the table under a heading of the page, by their first cell."""
    section = PAGE.read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", section, re.MULTILINE)
    return {name: [cell.strip() for cell in cells.split(" | ")] for name, cells in rows}


def test_the_page_says_the_same_of_messages() -> None:
    assert _table("Messages") == {
        reason.value: [meaning, f'"{notices.TEXTS[reason]}"' if reason in notices.TEXTS else "-"]
        for reason, meaning in MESSAGES.items()
    }


FAULTS = [fault for fault in Fault if fault is not Fault.MESSAGE_TEXT]
"""Faults of RMB. Only SBD accepts text messages, and it sends no close frame."""


def test_the_page_says_the_same_of_refused_frames() -> None:
    rows = re.findall(r'^\| `(\w+)` \| (\d+) \| "(.*)" \|$', PAGE.read_text(), re.MULTILINE)
    assert rows == [(fault.refusal.value, str(fault.code.value), fault.text) for fault in FAULTS]


def test_texts_of_refused_frames_begin_with_those_of_the_list() -> None:
    for fault in FAULTS:
        end = SESSIONS[SessionReason(fault.refusal)]
        assert fault.text.partition(":")[0] == end.text
        assert fault.code == end.close_code or fault in (
            Fault.TOO_MUCH_INCOMPLETE,
            Fault.CLOSE_TEXT,
        )


def test_the_page_says_the_same_of_sessions() -> None:
    assert _table("Sessions") == {
        reason.value: [
            end.meaning,
            str(end.close_code or "-"),
            f'"{end.text}"' if end.text else "-",
            str(end.http_status or "-"),
        ]
        for reason, end in SESSIONS.items()
    }
