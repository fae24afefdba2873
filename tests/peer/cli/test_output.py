"""Lines that are redrawn in place, and payloads for programs."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest

from peer.cli import output
from peer.cli.output import Progress

DEEP = "[" * 100_000

Captured = pytest.CaptureFixture[str]


def become_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the captured standard error look like a terminal, and show every redraw."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(output, "REDRAW_S", 0.0)


def test_a_bar_shows_share_size_and_speed(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    become_terminal(monkeypatch)
    with Progress() as progress:
        progress.part(512 * 1024, 2 * 1024 * 1024, "sending")
    drawn = capsys.readouterr().err
    assert "sending ███████░░░░░░░░░░░░░░░░░░░░░░░  25%  512.0 KiB of 2.0 MiB, " in drawn
    assert drawn.endswith("\r\x1b[K"), "the line is gone at the end"


def test_an_empty_file_is_done_at_once(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    become_terminal(monkeypatch)
    with Progress() as progress:
        progress.part(0, 0)
    assert "100%" in capsys.readouterr().err


async def test_waiting_is_told_until_it_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    become_terminal(monkeypatch)
    drawn = ""
    with Progress() as progress:
        async with progress.keep_waiting("waiting for twin 7"):
            async with asyncio.timeout(60):
                while drawn.count("waiting for twin 7 … ") < 3:
                    await asyncio.sleep(0)
                    drawn += capsys.readouterr().err


@pytest.mark.parametrize("as_json", [False, True])
def test_nothing_is_drawn_elsewhere(as_json: bool, capsys: Captured) -> None:
    with Progress(as_json) as progress:
        progress.part(1, 2)
        progress.waiting("x")
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    ("payload", "fields"),
    [
        (b'{"a": 1}', {"json": {"a": 1}}),
        (b"null", {"json": None}),
        (b"hello", {"text": "hello"}),
        (b"", {"text": ""}),
        (b"\xff", {"base64": "/w=="}),
        (b"[NaN]", {"text": "[NaN]"}),
        (b"1e999", {"text": "1e999"}),
        (DEEP.encode(), {"text": DEEP}),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_payload_for_programs(payload: bytes, fields: dict[str, object]) -> None:
    assert output.payload_fields(payload) == fields
    json.dumps(fields, allow_nan=False)


def test_no_depth_of_an_answer_ends_in_a_traceback() -> None:
    for depth in range(1, sys.getrecursionlimit()):
        payload = b"[" * depth + b"]" * depth
        json.dumps({"twin": 7, "answers": [{"version": output.payload_fields(payload)}]})


def test_an_answer_that_is_nested_too_deeply_is_shown_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    output.show_payload(DEEP.encode())
    assert capsys.readouterr().out == f"{DEEP}\n"
