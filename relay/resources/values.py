"""Types of the values in declared resources: their bounds, and how a text is parsed.

REST derives its schemas from them (`relay.resources.rest`); the console and commands get texts and
parse them here, so a value has the same bounds in all interfaces.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final

from relay.ops import arguments
from relay.ops.storable import MAX_ID, is_text, is_within_reach

MAX_DIGITS: Final = 30
"""Maximum length of a number that is parsed: Python is slow with thousands of digits."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text with a minimum and a maximum length, in characters.

    Attributes:
        form: function that raises `ValueError` for a malformed text, such as a key with a bad
            checksum.
    """

    max_chars: int = 300
    min_chars: int = 0
    form: Callable[[str], object] | None = None
    word: ClassVar[str] = "text"

    @property
    def bounds(self) -> str:
        exact = self.min_chars == self.max_chars
        return f"{self.max_chars} characters" if exact else ""

    def parse(self, text: str) -> str:
        if not self.min_chars <= len(text) <= self.max_chars:
            bounds = self.bounds or f"{self.min_chars} to {self.max_chars} characters"
            raise ValueError(f"must have {bounds}, has {len(text)}")
        if not is_text(text):
            raise ValueError("must be Unicode text without NUL characters")
        return self.check(text)

    def check(self, text: str) -> str:
        """Check the form of a text, and return it."""
        if self.form and text:
            self.form(text)
        return text


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number; both bounds are included."""

    least: int = 0
    most: int = MAX_ID
    word: ClassVar[str] = "whole number"

    @property
    def bounds(self) -> str:
        return f"{self.least} to {self.most}" if self.most < MAX_ID else ""

    def parse(self, text: str) -> int:
        whole = text.removeprefix("-")
        if not (whole.isascii() and whole.isdecimal() and len(text) <= MAX_DIGITS):
            raise ValueError("must be a whole number")
        if not self.least <= int(text) <= self.most:
            raise ValueError(f"must be a whole number from {self.least} to {self.most}")
        return int(text)


@dataclass(frozen=True, slots=True)
class Real:
    """A number with a fraction; used in fields only."""

    word: ClassVar[str] = "number"

    def parse(self, text: str) -> float:
        return float(text)


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    word: ClassVar[str] = "true or false"

    def parse(self, text: str) -> bool:
        if text not in ("true", "false"):
            raise ValueError("must be true or false")
        return text == "true"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of some texts."""

    options: tuple[str, ...]
    word: ClassVar[str] = "choice"

    def parse(self, text: str) -> str:
        if text not in self.options:
            raise ValueError(f"must be one of {', '.join(self.options)}")
        return text


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time with its UTC offset."""

    word: ClassVar[str] = "time"

    def parse(self, text: str) -> datetime:
        try:
            found = arguments.moment(text)
        except ValueError:
            raise ValueError("must be a time such as 2026-01-31T12:00:00Z") from None
        if not is_within_reach(found):
            raise ValueError("must be a time that a calendar has")
        return found


@dataclass(frozen=True, slots=True)
class Texts:
    """A list of texts; written as one text, each on its own line."""

    max_items: int = 100
    max_chars: int = 300
    word: ClassVar[str] = "list of texts"

    def parse(self, text: str) -> list[str]:
        return self.check([line.strip() for line in text.splitlines() if line.strip()])

    def check(self, found: list[str]) -> list[str]:
        if len(found) > self.max_items:
            raise ValueError(f"must have at most {self.max_items} lines")
        for each in found:
            Text(self.max_chars).parse(each)
        return found


@dataclass(frozen=True, slots=True)
class Pairs:
    """Names with a text each; written as one text, each on its own line: `name=text`."""

    max_items: int = 100
    max_chars: int = 1000
    word: ClassVar[str] = "names with texts"

    def parse(self, text: str) -> dict[str, str]:
        lines = Texts(self.max_items, 2 * self.max_chars + 1).parse(text)
        found: dict[str, str] = {}
        for line in lines:
            name, sign, value = line.partition("=")
            if not sign or not name.strip():
                raise ValueError("must have lines of the form name=text")
            if name.strip() in found:
                raise ValueError(f"has the name {name.strip()!r} twice")
            found[name.strip()] = value
        return self.check(found)

    def check(self, found: dict[str, str]) -> dict[str, str]:
        if len(found) > self.max_items:
            raise ValueError(f"must have at most {self.max_items} names")
        for each in (*found, *found.values()):
            Text(self.max_chars).parse(each)
        return found


Type = Text | Number | Real | Flag | Choice | Moment | Texts | Pairs
