"""Tags of an envelope: tokens split on comma or white space, case-sensitive."""

from __future__ import annotations

from typing import Final

FAIL_FAST: Final = "fail-fast"
"""Asks for "destination offline" at once instead of queueing; the one tag a relay knows."""


def split(tags: str) -> list[str]:
    """Returns the tokens in order."""
    return tags.replace(",", " ").split()


def has_fail_fast(tags: str) -> bool:
    """Whether the sender wants an error instead of a queued message."""
    # Most envelopes have no tags at all, and those that do rarely hold this text.
    return FAIL_FAST in tags and FAIL_FAST in split(tags)
