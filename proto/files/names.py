"""Allowed names of files, and of the command to call on a file's arrival.

A name must be one component of a path on any common system. It cannot leave the folder that the
file is stored in, be hidden in it, or look like another name to a reader.
"""

from __future__ import annotations

import unicodedata
from typing import Final

from proto.files.bounds import MAX_COMMAND_BYTES, MAX_NAME_BYTES
from proto.files.errors import FileCode, RefusedError

FORBIDDEN: Final = frozenset('/\\:*?"<>|')
"""Path separators, and characters reserved by Windows: folders are shared and copied."""

_INVISIBLE: Final = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
"""Unicode categories: control and format characters (such as those that reverse the text
direction), surrogates, private use, unassigned, line and paragraph separators."""

_DEVICES: Final = frozenset(
    ("con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10)))
)
"""Names that open a device on Windows, whatever their suffix."""

_OWN_PREFIXES: Final = frozenset(
    ("rmb", "file", "system", "backlog", "module", "processing", "committed", "dead", "seen")
)
"""First parts of commands, and of Redis keys after `msgbus.`, that the peer itself uses."""


def check_name(name: str) -> None:
    """Raise a RefusedError with the reason if this cannot be the name of a file."""
    problem = _problem(name)
    if problem is not None:
        raise RefusedError(FileCode.BAD_REQUEST, f"file name {problem}")


def check_command(command: str) -> None:
    """Raise a RefusedError if this cannot be a command to call on arrival."""
    if not 0 < len(command) <= MAX_COMMAND_BYTES:
        problem = f"has {len(command)} characters, 1 to {MAX_COMMAND_BYTES} are allowed"
    elif not all("!" <= character <= "~" for character in command):
        problem = "must be printable ASCII without spaces"
    elif command.partition(".")[0] in _OWN_PREFIXES:
        problem = "is one of the peer's own"
    else:
        return
    raise RefusedError(FileCode.BAD_REQUEST, f"cmd {problem}")


def _problem(name: str) -> str | None:
    if not name:
        return "is empty"
    if any(unicodedata.category(character) in _INVISIBLE for character in name):
        return "has a character that can't be seen"
    size_bytes = len(name.encode())  # surrogates are refused above
    if size_bytes > MAX_NAME_BYTES:
        return f"has {size_bytes} bytes, at most {MAX_NAME_BYTES} are allowed"
    bad = FORBIDDEN.intersection(name)
    if bad:
        return f"has the character {min(bad)!r}"
    if name[0] == ".":
        return "begins with a dot"
    if name != name.strip() or name[-1] == ".":
        return "begins or ends with white space, or ends with a dot"
    if name.partition(".")[0].strip().lower() in _DEVICES:
        return "is a device on Windows"
    if unicodedata.normalize("NFC", name) != name:
        return "is not in normal form (NFC)"
    return None
