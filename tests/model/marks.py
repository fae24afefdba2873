"""Marks that tests of the simulated world share."""

from __future__ import annotations

import pytest

ABANDONED = [
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
"""Marks of tests in which a killed worker leaves coroutines that never ran."""
