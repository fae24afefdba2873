"""Tests of which calls the bridge between twins and a lattice allows."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.identity.bounds import MAX_TWIN
from proto.lattice.policy import (
    MAX_PATTERN_CHARS,
    MAX_PATTERNS,
    Direction,
    Policies,
    Policy,
    PolicyError,
    Refusal,
    RefusedError,
    matches,
    read_link,
    read_patterns,
    read_policy,
    read_twins,
)

ACTOR = "MASUHOJP6EEVKEKHNLOIG2O3NXOJGNTFUEMXRXNBIBHOCBTMVFKZ3BLC"
GIVEN = {
    "name": "weather",
    "direction": "to_lattice",
    "twins": "7, 10-19",
    "entities": "M*, forecast",
    "names": "Weather.*",
}


def policies(**more: Any) -> Policies:
    return Policies([read_policy({**GIVEN, **more})])


def decide(found: Policies, twin: int = 7, **more: Any) -> Policy:
    asked = {"entity": ACTOR, "name": "Weather.Today", "size": 10, "now": 1.0, **more}
    return found.decide(Direction.TO_LATTICE, twin, **asked)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("*", "", True),
        ("a.*", "a.b.c", True),
        ("a.*", "a", False),
        ("a.*", "ab.c", False),
        ("*.get", "x.y.get", True),
        ("a*c", "abbbc", True),
        ("a[b]?", "ab", False),
        ("a[b]?", "a[b]?", True),
        ("a", "a\n", False),
    ],
)
def test_a_star_is_any_text_and_nothing_else_is_special(
    pattern: str, text: str, expected: bool
) -> None:
    assert matches([pattern], text) is expected


def test_the_first_policy_that_names_all_decides() -> None:
    other = {**GIVEN, "name": "second", "max_bytes": 5}
    found = Policies([read_policy(GIVEN), read_policy(other)])
    assert decide(found, size=10).name == "weather"
    for twin in (10, 15, 19):
        assert decide(found, twin).name == "weather"
    assert decide(found, entity="V" + ACTOR[1:], alias="forecast").name == "weather"


@pytest.mark.parametrize(
    "more",
    [
        {"twin": 8},
        {"twin": 20},
        {"entity": "V" + ACTOR[1:]},
        {"entity": "V" + ACTOR[1:], "alias": "forecasts"},
        {"name": "Other.Today"},
    ],
)
def test_what_no_policy_names_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(RefusedError, match="no policy allows twin") as caught:
        decide(policies(), **more)
    assert caught.value.reason is Refusal.NO_POLICY
    with pytest.raises(RefusedError):
        policies().decide(Direction.TO_TWIN, 7, ACTOR, "Weather.Today", 1, 1.0)


def test_size_and_rate_of_each_pair() -> None:
    found = policies(max_bytes=10, per_s=2)
    with pytest.raises(RefusedError, match="has 11 bytes; policy weather allows 10") as caught:
        decide(found, size=11)
    assert caught.value.reason is Refusal.SIZE
    for _ in range(2):
        decide(found)
        decide(found, 10)
    with pytest.raises(RefusedError, match="policy weather allows 2 calls a second") as caught:
        decide(found)
    assert caught.value.reason is Refusal.RATE
    decide(found, now=1.5)
    fresh = policies(max_bytes=10, per_s=2)
    fresh.keep_rates_of(found)
    with pytest.raises(RefusedError):
        decide(fresh, now=1.5)
    changed = policies(per_s=3)
    changed.keep_rates_of(found)
    decide(changed, now=1.5)


def test_values_of_a_link() -> None:
    rules = read_link({"twins": "7", "commands": "calc.*, echo", "serves": "weather.*"})
    rules.check(7, "calc.add")
    assert rules.serves == ("weather.*",)
    for twin, command, text in ((8, "echo", "twin 8"), (7, "ech", "the command ech")):
        with pytest.raises(RefusedError, match=text) as caught:
            rules.check(twin, command)
        assert caught.value.reason is Refusal.LINK
    nothing = read_link({"other": "x"})
    with pytest.raises(RefusedError):
        nothing.check(7, "echo")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        ("7", ((7, 7),)),
        (" 7 - 9 ,12", ((7, 9), (12, 12))),
        ("*", ((1, MAX_TWIN),)),
        (str(MAX_TWIN), ((MAX_TWIN, MAX_TWIN),)),
    ],
)
def test_lists_of_twins(text: str, expected: Any) -> None:
    assert read_twins(text).ranges == expected


@pytest.mark.parametrize(
    "text",
    ["0", "9-7", "x", "7,", ",", "-", "7-", "-7", "1-2-3", "²", str(MAX_TWIN + 1), "1" * 999],
)
def test_what_is_no_list_of_twins(text: str) -> None:
    with pytest.raises(PolicyError, match=r"^twins: "):
        read_twins(text)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", "x" * 65),
        ("name", 7),
        ("direction", "both"),
        ("twins", ""),
        ("twins", None),
        ("entities", ""),
        ("names", " "),
        ("names", "a,,b"),
        ("names", "x" * (MAX_PATTERN_CHARS + 1)),
        ("names", ",".join("x" * (MAX_PATTERNS + 1))),
        ("names", "*a*b*c*d*"),
        ("names", "a\0"),
        ("per_s", -1),
        ("per_s", float("nan")),
        ("per_s", True),
        ("max_bytes", 0),
        ("max_bytes", 2**30),
        ("timeout_ms", 0),
        ("timeout_ms", "1"),
    ],
)
def test_a_policy_with_a_field_out_of_bounds(field: str, value: Any) -> None:
    with pytest.raises(PolicyError, match=rf"^{field}: ") as caught:
        read_policy({**GIVEN, field: value})
    assert caught.value.field == field


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_text(text: str, other: str) -> None:
    for read in (read_twins, lambda each: read_patterns(each, "names")):
        try:
            read(text)
        except PolicyError as error:
            assert error.field in ("twins", "names")
    try:
        patterns = read_patterns(text, "names")
    except PolicyError:
        return
    matches(patterns, other)
