"""Reader of Redis' append-only file as it grows: the truth about its data.

With `appendfsync no` a write is in the file before it is answered, so a test that sees the effect
of the answer and then reads the file finds the write. A transaction or script is one unit.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

Command = list[bytes]


class AppendOnlyTail:
    """Reader that follows the append-only files in a server's folder through restarts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "appendonlydir"
        self._done: dict[Path, int] = {}  # bytes of each file that were already read

    def skip(self) -> None:
        """Skip everything written so far."""
        for _ in self.units():
            pass

    def units(self) -> Iterator[list[Command]]:
        """Yield each atomic write since the last call, in order."""
        for path in sorted(self._folder.glob("*.incr.aof"), key=_sequence):
            done = self._done.get(path, 0)
            with path.open("rb") as file:
                file.seek(done)
                data = file.read()
            at = 0
            for unit, end in _parse(data):
                at = end
                yield unit
            self._done[path] = done + at


def _sequence(path: Path) -> int:
    return int(path.name.split(".")[-3])


def _parse(data: bytes) -> Iterator[tuple[list[Command], int]]:
    """Yield complete units and the offset after each."""
    at, transaction = 0, None
    while (found := _command(data, at)) is not None:
        command, at = found
        name = command[0].upper() if command else b""
        if name == b"MULTI":
            transaction = []
        elif name == b"EXEC":
            yield transaction or [], at
            transaction = None
        elif transaction is not None:
            transaction.append(command)
        else:
            yield [command] if command else [], at


def _command(data: bytes, at: int) -> tuple[Command, int] | None:
    """Return one command and the offset after it; a timestamp line is an empty command."""
    end = data.find(b"\r\n", at)
    if end < 0:
        return None
    if data[at : at + 1] == b"#":
        return [], end + 2
    assert data[at : at + 1] == b"*", f"no append-only file: {data[at : at + 40]!r}"
    count, at = int(data[at + 1 : end]), end + 2
    command = []
    for _ in range(count):
        end = data.find(b"\r\n", at)
        if end < 0:
            return None
        size, at = int(data[at + 1 : end]), end + 2
        if len(data) < at + size + 2:
            return None
        command.append(data[at : at + size])
        at += size + 2
    return command, at
