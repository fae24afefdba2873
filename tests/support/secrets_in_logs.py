"""Check that no log contains a token: every relay's log is searched when it stops."""

from __future__ import annotations

import re
from typing import Final

PATTERNS: Final = {
    "a session token": re.compile(r"eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}"),
    "an API token": re.compile(r"\brmb_[0-9a-f]{16}_[\w-]{43}"),
}


def assert_none(log: str) -> None:
    """Fail if the log contains a secret."""
    for what, pattern in PATTERNS.items():
        found = pattern.search(log)
        assert found is None, (
            f"the log holds {what}: {log[max(0, found.start() - 200) : found.end()]}"
        )
