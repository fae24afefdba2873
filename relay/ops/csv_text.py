"""Lines of CSV that are safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Any, Final

# The last four are the first four in full width, which some spreadsheets treat alike.
_FORMULA: Final = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")


def line(values: Iterable[Any]) -> str:
    """Return one line of CSV.

    A text that begins like a formula gets an apostrophe: clients choose such texts, and
    spreadsheets would execute them.
    """
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(map(_harmless, values))
    return out.getvalue()


def _harmless(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
