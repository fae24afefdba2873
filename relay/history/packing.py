"""The values of one moment as bytes: five for each, its series' number and a short float.

    number (1 byte) value (float32, little endian) number value ...

Series of another release are left out when they are read. A short float has seven digits; values
are rounded to six before they are stored, so that one reads as it was written.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from relay.history.series import BY_KEY, BY_NUMBER, roll_up

_ONE: Final = struct.Struct("<Bf")
_VALUE: Final = struct.Struct("<f")
_LARGEST: Final = 3.4e38

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
    wanted = keys if keys is None else frozenset(keys)
    found = {}
    for key, at in _places(stored[: whole : _ONE.size], wanted):
        (value,) = _VALUE.unpack_from(stored, at)
        # What `rounded` does, without what a stored value cannot be: a chart has 100,000.
        found[key] = float(f"{value:.6g}") if value else value
    return found


@functools.lru_cache(maxsize=256)
def _places(numbers: bytes, wanted: frozenset[str] | None) -> tuple[tuple[str, int], ...]:
    """Where the values are: nearly all moments have the same series, in the same order."""
    found = []
    for place, number in enumerate(numbers):
        series = BY_NUMBER.get(number)
        if series is not None and (wanted is None or series.key in wanted):
            found.append((series.key, place * _ONE.size + 1))
    return tuple(found)


def rolled_up(points: Iterable[Values]) -> dict[str, float]:
    """One point for several that follow each other; a series none of them has is not in it."""
    columns: dict[str, list[float]] = {}
    for point in points:
        for key, value in point.items():
            columns.setdefault(key, []).append(value)
    return {key: rounded(roll_up(BY_KEY[key], values)) for key, values in columns.items()}
