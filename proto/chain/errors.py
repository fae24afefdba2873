"""Errors in chain values.

    ChainFormatError
    |- ScaleError        bytes that are not a SCALE value of the expected kind
    |- BoundError        a field above its bound
    |- RelayTextError    a relay text the chain would reject
    `- HeaderError       JSON that is not a block header

Messages name the field and the bound.
"""

from __future__ import annotations


class ChainFormatError(Exception):
    """Base class of all exceptions this package raises on bad input."""


class ScaleError(ChainFormatError):
    """Bytes that cannot be decoded.

    Attributes:
        field: name of the field that was being read.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field


class BoundError(ChainFormatError):
    """A field is larger than allowed.

    Attributes:
        field: name of the field.
        size: size that was found.
        bound: size that is allowed.
        unit: unit of both; "" for the value itself.
    """

    def __init__(self, field: str, size: int, bound: int, unit: str = "bytes") -> None:
        # A compact number can have 160 digits, too many to be read.
        shown = f"{size}" if size < 2**136 else f"about 2^{size.bit_length()}"
        has = f"has {shown} {unit}" if unit else f"is {shown}"
        super().__init__(f"{field} {has}, at most {bound} is allowed")
        self.field = field
        self.size = size
        self.bound = bound
        self.unit = unit


class RelayTextError(ChainFormatError):
    """A relay text that tfchain rejects with InvalidRelayAddress."""


class HeaderError(ChainFormatError):
    """JSON that is not a block header."""
