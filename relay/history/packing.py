"""The binary form of one point: five bytes for each value, its series' number and a float32.

    number (1 byte) value (float32, little endian) number value ...

Reading skips series of other releases. A float32 has seven digits; values are rounded to six before
they are stored, so that a value reads as it was written.
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
    """Return a value as the store returns it: NaN becomes 0, too large values the largest one."""
    if math.isnan(value):
        return 0.0
    return float(f"{max(-_LARGEST, min(_LARGEST, value)):.6g}")


def pack(values: Values) -> bytes:
    """Return the bytes of some values by key of their series."""
    return b"".join(_ONE.pack(BY_KEY[key].number, rounded(value)) for key, value in values.items())


def unpack(stored: bytes, keys: Collection[str] | None = None) -> dict[str, float]:
    """Return the values by key of their series, ignoring incomplete bytes at the end.

    With `keys`, only values of these series are returned.
    """
    whole = len(stored) - len(stored) % _ONE.size
    wanted = keys if keys is None else frozenset(keys)
    found = {}
    for key, at in _places(stored[: whole : _ONE.size], wanted):
        (value,) = _VALUE.unpack_from(stored, at)
        # As `rounded`, without the cases that a stored value cannot be: a chart has 100,000 values.
        found[key] = float(f"{value:.6g}") if value else value
    return found


@functools.lru_cache(maxsize=256)
def _places(numbers: bytes, wanted: frozenset[str] | None) -> tuple[tuple[str, int], ...]:
    """Return keys and offsets of values. Cached: nearly all points have the same series."""
    found = []
    for place, number in enumerate(numbers):
        series = BY_NUMBER.get(number)
        if series is not None and (wanted is None or series.key in wanted):
            found.append((series.key, place * _ONE.size + 1))
    return tuple(found)


def rolled_up(points: Iterable[Values]) -> dict[str, float]:
    """Return one point for several consecutive ones; a series that none of them has is omitted."""
    columns: dict[str, list[float]] = {}
    for point in points:
        for key, value in point.items():
            columns.setdefault(key, []).append(value)
    return {key: rounded(roll_up(BY_KEY[key], values)) for key, values in columns.items()}
