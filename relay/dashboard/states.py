"""Words for how something is, each with a sign and a colour: colour is never the only one."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from django.utils.html import format_html
from django.utils.safestring import SafeString


class Tone(StrEnum):
    """How good it is."""

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
"""In lists that are ordered by it the worst comes first."""


class State(NamedTuple):
    """A word and its tone.

    Attributes:
        hint: said on hover, such as a reason.
    """

    text: str
    tone: Tone
    hint: str = ""

    def __str__(self) -> str:
        return self.text


def badge(state: State) -> SafeString:
    """The word for a page."""
    return format_html(
        '<span class="c-state c-{}"{}><span class="material-symbols-outlined" aria-hidden="true">'
        "{}</span>{}</span>",
        state.tone,
        format_html(' title="{}"', state.hint) if state.hint else "",
        SIGNS[state.tone],
        state.text,
    )
