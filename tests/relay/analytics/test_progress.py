"""The progress that a run shows, without Spark."""

from __future__ import annotations

import io
import re

import pytest

from relay.analytics import progress
from relay.analytics.progress import Progress
from tests.support.waiting import wait_until


class Terminal(io.StringIO):
    """A stream that counts as a terminal, so that it gets a progress bar."""

    def isatty(self) -> bool:
        return True


def test_a_phase_is_there_at_once_and_its_clock_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 0.01)
    terminal = Terminal()
    with Progress(terminal).phase("starting"):
        assert terminal.getvalue() == "\r\x1b[Kstarting   0:00 "
        wait_until(lambda: terminal.getvalue().count("starting") > 2)
    assert re.search(r"0:0\d \r\x1b\[K$", terminal.getvalue()), "the line is free for what comes"


def test_without_a_terminal_a_phase_is_a_line_before_it_begins() -> None:
    file = io.StringIO()
    with Progress(file).phase("starting"):
        assert file.getvalue() == "starting\n"
    assert file.getvalue() == "starting\n"


def test_quiet_is_quiet() -> None:
    terminal = Terminal()
    shown = Progress(terminal, quiet=True)
    with shown.phase("starting"):
        shown.say("a line")
    assert terminal.getvalue() == ""
