"""Redis commands as bytes.

The commit path writes hundreds of ``XADD`` commands per batch. Their constant part is encoded once
per stream; only the length and the payload are added for each message.
"""

from __future__ import annotations

from typing import Final

import hiredis

Argument = str | bytes | int | float

MULTI: Final[bytes] = hiredis.pack_command(("MULTI",))
EXEC: Final[bytes] = hiredis.pack_command(("EXEC",))
CRLF: Final = b"\r\n"

_SHORT_LENGTHS: Final = 2048
_LENGTHS: Final = tuple(b"$%d\r\n" % n for n in range(_SHORT_LENGTHS))


def command(*arguments: Argument) -> bytes:
    """Encode one command as a RESP array of bulk strings."""
    # The stub of hiredis declares a tuple of length 1 instead of one of any length.
    packed: bytes = hiredis.pack_command(arguments)  # type: ignore[arg-type]
    return packed


def xadd_prefix(stream: bytes, fields: int = 1) -> bytes:
    """Return ``XADD <stream> * _`` of an entry with this many fields, up to the payload's length
    line.
    """
    return b"*%d\r\n$4\r\nXADD\r\n$%d\r\n%b\r\n$1\r\n*\r\n$1\r\n_\r\n" % (
        3 + 2 * fields,
        len(stream),
        stream,
    )


def xdel(stream: bytes, ids: list[bytes]) -> bytes:
    """Encode ``XDEL <stream> <id> ...``; the general encoder takes twice as long."""
    if len(ids) == 1:
        (entry_id,) = ids
        return b"*3\r\n$4\r\nXDEL\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (
            len(stream),
            stream,
            len(entry_id),
            entry_id,
        )
    parts = [b"*%d\r\n$4\r\nXDEL\r\n" % (2 + len(ids)), length(len(stream)), stream, CRLF]
    append = parts.append
    for entry_id in ids:
        append(length(len(entry_id)))
        append(entry_id)
        append(CRLF)
    return b"".join(parts)


def length(size_bytes: int) -> bytes:
    """Return the length line of a bulk string."""
    return _LENGTHS[size_bytes] if size_bytes < _SHORT_LENGTHS else b"$%d\r\n" % size_bytes


def info(reply: bytes | str) -> dict[str, str]:
    """Parse INFO's answer into values by name."""
    text = reply if isinstance(reply, str) else reply.decode(errors="replace")
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
