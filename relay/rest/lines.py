"""Long answers, line by line: exports that no memory should hold at once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

from django.http import StreamingHttpResponse

NDJSON: Final = "application/x-ndjson"
CSV: Final = "text/csv"
MEDIA_TYPES: Final = {"jsonl": NDJSON, "csv": CSV}
"""Of an export, by its form."""
EXPORTED: Final = tuple(MEDIA_TYPES.values())

LINES: Final = 200
"""Lines that are made, and sent, at once."""


def lines(found: Iterator[str], media_type: str, file_name: str) -> StreamingHttpResponse:
    """An answer of lines, each with its end.

    The first ones are made before the answer begins, so that what is wrong from the start is told
    as a problem.
    """
    first = _part(found)
    answer = StreamingHttpResponse(_all(first, found), content_type=media_type)
    answer["Content-Disposition"] = f'attachment; filename="{file_name}"'
    return answer


def _part(found: Iterator[str]) -> bytes:
    return "".join(itertools.islice(found, LINES)).encode()


def _all(first: bytes, found: Iterator[str]) -> Iterator[bytes]:
    part = first
    while part:
        yield part
        part = _part(found)
