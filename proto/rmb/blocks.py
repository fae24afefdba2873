"""Envelopes parsed into shared blocks of memory.

The protobuf runtime allocates at least two pieces of memory for each message it parses. On glibc,
it returns the free pages of the whole process to the kernel each time it has freed ten thousand
pieces (`malloc_trim`). A relay that handles 60,000 messages a second did so twelve times a second,
and each time walked all the memory that it holds for slow readers. Messages that are fields of a
common parent message share its memory, which is freed in few pieces together with the last of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proto.rmb import types_pb2 as pb

BLOCK_BYTES: Final = 64 << 10
"""Approximate size of one block. It lives as long as any of its envelopes."""

ENVELOPE_BYTES: Final = 256
"""Approximate memory of an envelope in addition to the bytes it was parsed from."""


def block_parser() -> Callable[[bytes], pb.Envelope]:
    """Return a parser like `Envelope.FromString`, for callers that keep few of the parsed
    envelopes.

    Returns:
        Function that parses one message; it raises `google.protobuf.message.DecodeError`.
    """
    add = pb.Envelopes().envelopes.add
    left_bytes = BLOCK_BYTES

    def parse(raw: bytes) -> pb.Envelope:
        nonlocal add, left_bytes
        left_bytes -= len(raw) + ENVELOPE_BYTES
        if left_bytes < 0:
            add = pb.Envelopes().envelopes.add
            left_bytes = BLOCK_BYTES - len(raw) - ENVELOPE_BYTES
        envelope = add()
        envelope.MergeFromString(raw)
        return envelope

    return parse
