"""States as pages show them: a word with an icon and a colour. Colour is never the only sign."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from django.utils.html import format_html
from django.utils.safestring import SafeString


class Tone(StrEnum):
    """How good or bad a state is."""

    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"
    INFO = "info"
    IDLE = "idle"


SIGNS: Final = {
    Tone.GOOD: "check_circle",
    Tone.WARNING: "warning",
    Tone.BAD: "error",
    Tone.INFO: "info",
    Tone.IDLE: "radio_button_unchecked",
}

SEVERITY: Final = {
    Tone.BAD: 0, Tone.WARNING: 1, Tone.INFO: 2, Tone.IDLE: 3, Tone.GOOD: 4,
}  # fmt: skip
"""Sort key by tone: lists ordered by it begin with the worst."""


class State(NamedTuple):
    """A word and its tone.

    Attributes:
        hint: text shown on hover, such as a reason.
    """

    text: str
    tone: Tone
    hint: str = ""

    def __str__(self) -> str:
        return self.text


def badge(state: State) -> SafeString:
    """Return the HTML of a state."""
    return format_html(
        '<span class="c-state c-{}"{}><span class="material-symbols-outlined" aria-hidden="true">'
        "{}</span>{}</span>",
        state.tone,
        format_html(' title="{}"', state.hint) if state.hint else "",
        SIGNS[state.tone],
        state.text,
    )
