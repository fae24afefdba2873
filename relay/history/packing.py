"""The values of one moment as bytes: five for each, its series' number and a short float.

    number (1 byte) value (float32, little endian) number value ...

Series of another release are left out when they are read. A short float has seven digits; values
are rounded to six before they are stored, so that one reads as it was written.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from relay.history.series import BY_KEY, BY_NUMBER, SERIES, roll_up

_ONE: Final = struct.Struct("<Bf")
MAX_BYTES: Final = _ONE.size * 255
_LARGEST: Final = 3.4e38

_KEYS: Final = {number: each.key for number, each in BY_NUMBER.items()}

Values = Mapping[str, float]


def rounded(value: float) -> float:
    """A value as it comes back from the store; what cannot be stored is 0 or the largest."""
    if math.isnan(value):
        return 0.0
    return float(f"{max(-_LARGEST, min(_LARGEST, value)):.6g}")


def pack(values: Values) -> bytes:
    """The bytes of some values by key of their series."""
    return b"".join(_ONE.pack(BY_KEY[key].number, rounded(value)) for key, value in values.items())


def unpack(stored: bytes, keys: Collection[str] | None = None) -> dict[str, float]:
    """The values, those of some keys only if they are given; bytes at the end that are no value
    are left out."""
    whole = len(stored) - len(stored) % _ONE.size
    found = {}
    for number, value in _ONE.iter_unpack(memoryview(stored)[:whole]):
        key = _KEYS.get(number)
        if key is not None and (keys is None or key in keys):
            # What `rounded` does, without what a stored value cannot be: a chart has 100,000.
            found[key] = float(f"{value:.6g}") if value else value
    return found


def rolled_up(points: Iterable[Values]) -> dict[str, float]:
    """One point for several that follow each other; a series none of them has is not in it."""
    columns: dict[str, list[float]] = {}
    for point in points:
        for key, value in point.items():
            columns.setdefault(key, []).append(value)
    found = {}
    for series in SERIES:
        one = roll_up(series, columns.get(series.key, ()))
        if one is not None:
            found[series.key] = rounded(one)
    return found
