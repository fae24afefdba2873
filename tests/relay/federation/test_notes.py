"""`relay.federation.notes`: keeping many messages in little memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from relay.federation.notes import Note, Notes

DEADLINES = st.floats(0, 1e10)
NOTES = st.lists(
    st.builds(
        lambda moment, serial, *rest: Note(b"%d-%d" % (moment, serial), *rest),
        st.integers(0, 2**64 - 1),
        st.integers(0, 2**64 - 1),
        DEADLINES,
        st.integers(0, 2**32 - 1),
        st.booleans(),
    )
)


def noted(*notes: Note) -> Notes:
    found = Notes()
    for note in notes:
        found.add(note)
    return found


@given(NOTES, st.integers(0, 10))
def test_they_come_as_they_went(given_notes: list[Note], count: int) -> None:
    notes = noted(*given_notes)
    assert len(notes) == len(given_notes)
    assert notes.doubtful() == [note.id for note in given_notes if note.doubtful]
    assert notes.take(count) == given_notes[:count]
    assert notes.take(len(given_notes)) == given_notes[count:]
    assert not notes


@given(NOTES, NOTES)
def test_some_are_put_in_front(first: list[Note], others: list[Note]) -> None:
    notes = noted(*others)
    notes.put_first(first)
    assert notes.nearest == min([note.deadline for note in first + others], default=float("inf"))
    assert notes.take(len(first + others)) == first + others


@given(NOTES, DEADLINES)
def test_those_that_expired_are_taken_out(given_notes: list[Note], now: float) -> None:
    notes = noted(*given_notes)
    assert notes.expired(now) == [note for note in given_notes if note.deadline <= now]
    left = [note for note in given_notes if note.deadline > now]
    assert notes.nearest == min([note.deadline for note in left], default=float("inf"))
    assert notes.take(len(given_notes)) == left
