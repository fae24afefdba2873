"""What tests of the simulated world have in common."""

from __future__ import annotations

import pytest

ABANDONED = [
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
"""A killed worker leaves coroutines that never ran."""
