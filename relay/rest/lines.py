"""Long answers in lines, for exports that are too large for memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

from django.http import StreamingHttpResponse

NDJSON: Final = "application/x-ndjson"
CSV: Final = "text/csv"
MEDIA_TYPES: Final = {"jsonl": NDJSON, "csv": CSV}
"""Media types of exports, by format."""
EXPORTED: Final = tuple(MEDIA_TYPES.values())

LINES: Final = 200
"""Number of lines that are made and sent at once."""


def lines(found: Iterator[str], media_type: str, file_name: str) -> StreamingHttpResponse:
    """Return an answer made of lines, each with its line end.

    The first lines are made before the answer begins, so that an error at the start is answered
    with a problem.
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
