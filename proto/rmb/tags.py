"""Tags of an envelope: tokens split on comma or white space, case-sensitive."""

from __future__ import annotations

from typing import Final

FAIL_FAST: Final = "fail-fast"
"""Tag that requests "destination offline" at once instead of queueing; relays know no other."""


def split(tags: str) -> list[str]:
    """Return the tokens in order."""
    return tags.replace(",", " ").split()


def has_fail_fast(tags: str) -> bool:
    """Return whether the sender wants an error instead of a queued message."""
    # Most envelopes have no tags at all, and tags rarely contain this text.
    return FAIL_FAST in tags and FAIL_FAST in split(tags)
