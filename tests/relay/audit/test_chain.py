"""`relay.audit.chain` finds changed, removed and cut-off entries, and their places."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest

from relay.audit import chain
from relay.audit.chain import Broken, Head, Record

KEY = chain.key_of("a secret key for tests")
Entry = tuple[Record, str]


def log(size: int, key: bytes = KEY) -> list[Entry]:
    entries: list[Entry] = []
    previous = chain.NO_HASH
    for number in range(1, size + 1):
        record = Record(
            *(number, datetime(2026, 11, 21, 12, 0, number, number, UTC), "olga", "rest", "::1"),
            *("ban.set", f"{number}", "null", chain.canonical({"reason": "ä\U0001f600"}), previous),
        )
        previous = chain.hash_of(key, record)
        entries.append((record, previous))
    return entries


def head_of(entries: list[Entry]) -> Head:
    return Head(entries[-1][0].number, entries[-1][1])


def test_a_whole_log() -> None:
    entries = log(5)
    assert chain.verify([KEY], entries, [head_of(entries[:3])]) == head_of(entries)
    assert chain.verify([KEY], []) == chain.EMPTY
    assert chain.verify([KEY], entries, [chain.EMPTY]) == head_of(entries)


def _changed(field: str, value: object) -> Callable[[list[Entry]], list[Entry]]:
    def tamper(entries: list[Entry]) -> list[Entry]:
        record, found = entries[2]
        return [*entries[:2], (record._replace(**{field: value}), found), *entries[3:]]

    return tamper


def _rehashed(entries: list[Entry]) -> list[Entry]:
    """Return a log forged by an attacker who knows the method, but not the key."""
    return log(5, b"guessed")


@pytest.mark.parametrize(
    ("tamper", "number"),
    [
        *(
            (_changed(field, value), 3)
            for field, value in {
                "at": datetime(2026, 11, 20, tzinfo=UTC),
                "actor": "eve",
                "face": "cli",
                "address": "::2",
                "action": "ban.lift",
                "target": "9",
                "before": "1",
                "after": "null",
                "previous": chain.NO_HASH,
            }.items()
        ),
        (lambda log: [*log[:2], *log[3:]], 3),
        (lambda log: log[1:], 1),
        (lambda log: [*log[:2], log[3], log[2], log[4]], 3),
        (lambda log: [*log[:3], log[2], *log[3:]], 4),
        (_rehashed, 1),
    ],
)
def test_tampering_is_found(tamper: Callable[[list[Entry]], list[Entry]], number: int) -> None:
    with pytest.raises(Broken) as broken:
        chain.verify([KEY], tamper(log(5)))
    assert broken.value.number == number


def test_numbers_given_anew_do_not_hide_a_missing_entry() -> None:
    entries = log(5)
    moved = [(record._replace(number=record.number - 1), found) for record, found in entries[3:]]
    with pytest.raises(Broken) as broken:
        chain.verify([KEY], [*entries[:2], *moved])
    assert broken.value.number == 3


def test_a_cut_tail_is_found_by_a_head() -> None:
    entries = log(5)
    assert chain.verify([KEY], entries[:4]) == head_of(entries[:4]), "nothing else tells"
    with pytest.raises(Broken, match="there was a head 5") as broken:
        chain.verify([KEY], entries[:4], [head_of(entries)])
    assert broken.value.number == 5
    with pytest.raises(Broken, match="not the one that was the head"):
        chain.verify([KEY], entries, [Head(4, "f" * 64)])


def test_a_new_secret_key_leaves_the_old_entries() -> None:
    entries = log(3)
    new = chain.key_of("a newer key")
    with pytest.raises(Broken, match="another secret key"):
        chain.verify([new], entries)
    assert chain.verify([new, KEY], entries).number == 3


def test_the_time_zone_of_a_database_does_not_matter() -> None:
    record, found = log(1)[0]
    local = record.at.astimezone(timezone(timedelta(hours=2)))
    assert chain.hash_of(KEY, record._replace(at=local)) == found


@pytest.mark.parametrize(
    "text",
    ["", "1", "1:", *(f"{number}:{'0' * 64}" for number in ("", "x", "9" * 19)), f"1:{'G' * 64}"],
)
def test_heads_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="head"):
        Head.parse(text)


def test_a_head_as_text() -> None:
    head = head_of(log(2))
    assert Head.parse(f" {head}\n") == head


def test_a_long_value_is_cut() -> None:
    for value in ("x" * 5000, '"' * 5000, {"nested": ["\\" * 9000]}):
        text = chain.bounded(value)
        assert len(text) <= chain.MAX_VALUE_BYTES and '"cut"' in text
    assert chain.bounded("x" * 4000) == f'"{"x" * 4000}"'
