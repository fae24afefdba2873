"""Tests of which files the workers of a run take, and in which order."""

from __future__ import annotations

from collections import OrderedDict

from xdist.scheduler import LoadScopeScheduling

from tests.support import two_ends


def test_end_to_end_tests_first_and_spark_last() -> None:
    tests = [
        "tests/chain/test_b.py::test_1",
        "tests/e2e/test_a.py::test_1",
        "tests/relay/analytics/test_a.py::test_1",
        "tests/relay/ops/test_a.py::test_2",
        "tests/relay/ops/test_a.py::test_1",
        f"{two_ends.FIRST}::test_1",
    ]
    longest = tests.pop()
    placed = sorted([*tests, longest], key=two_ends.place)
    assert placed == [longest, tests[1], tests[0], *tests[3:], tests[2]]


def test_workers_take_files_from_both_ends() -> None:
    files = OrderedDict.fromkeys("abcdef")
    taken = []
    for number in (0, 1, 2, 3, 2, 0):
        two_ends.bring_forward(files, f"gw{number}")
        taken.append(files.popitem(last=False)[0])
    assert "".join(taken) == "abfced"
    two_ends.bring_forward(files, "gw2")  # nothing is left


def test_xdist_still_hands_out_files_so() -> None:
    """xdist has the method that `TwoEnds` overrides; it is private, and may be removed."""
    assert "_assign_work_unit" in vars(LoadScopeScheduling)
