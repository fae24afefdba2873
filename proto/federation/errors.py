"""Errors in the bytes of the batch form.

BatchError
├── BatchTruncated   the bytes end inside a field
└── BatchBound       a field or the whole is above its bound
"""

from __future__ import annotations


class BatchError(ValueError):
    """The bytes are not a batch, or not the answer to one; the message names field and bound."""


class BatchTruncated(BatchError):
    """The bytes end inside a field."""

    def __init__(self, field: str) -> None:
        super().__init__(f"batch ends inside {field}")
        self.field = field


class BatchBound(BatchError):
    """A field or the whole is above its bound."""

    def __init__(self, field: str, size: int, bound: int) -> None:
        super().__init__(f"batch {field} of {size} is above {bound}")
        self.field = field
        self.size = size
        self.bound = bound
