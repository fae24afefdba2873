"""Tests of finding child processes while some start and end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from tests.support.children import children, descendants

WAITS = (sys.executable, "-c", "input()", "a word of this test")


@pytest.fixture
def child() -> Iterator[subprocess.Popen]:
    with subprocess.Popen(WAITS, stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_a_child_is_found_by_a_word(child: subprocess.Popen) -> None:
    assert [each.pid for each in children(WAITS[-1])] == [child.pid]
    assert children("another word of this test") == []
    assert children(WAITS[-1], of=child.pid) == []


def test_one_that_just_ended_is_passed_over(
    child: subprocess.Popen, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = psutil.Process(child.pid)
    child.kill()
    child.wait()
    monkeypatch.setattr(psutil.Process, "children", lambda *_, **__: [ended])
    assert children(WAITS[-1]) == []


def test_all_below_are_found_and_none_of_one_that_has_ended(child: subprocess.Popen) -> None:
    own = psutil.Process().pid
    assert child.pid in descendants(own)
    (found,) = children(WAITS[-1], own, recursive=True)
    assert found.pid == child.pid
    child.kill()
    child.wait()
    assert descendants(child.pid) == []
