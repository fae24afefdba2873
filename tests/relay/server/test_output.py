"""Lines for people on an output that several processes share."""

from __future__ import annotations

import io

from relay.server.output import say


class Writes(io.RawIOBase):
    """An unbuffered output, as with `python -u`, that records each write."""

    def __init__(self) -> None:
        self.all: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        self.all.append(bytes(data))  # type: ignore[call-overload]
        return len(self.all[-1])


def test_a_line_and_its_end_are_one_write() -> None:
    writes = Writes()
    unbuffered = io.TextIOWrapper(writes, write_through=True)  # type: ignore[arg-type]
    say("stopping", unbuffered)
    say("one\ntwo", unbuffered)
    assert writes.all == [b"stopping\n", b"one\ntwo\n"]
