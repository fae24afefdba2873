"""Texts of strangers as operators may see them: nothing in them moves a cursor or breaks a line.

Clients choose uid, command, tags and session id, other relays the texts of their errors, and who
tries to sign in a name. Terminals, mail headers and log lines get them through here.
"""

from __future__ import annotations


def shown(text: str, limit: int | None = None) -> str:
    """A text on one line.

    Args:
        text: of any origin.
        limit: most characters; what is longer is cut and ends with an ellipsis. None: not cut.

    Returns:
        It, with everything that is not to be printed escaped.
    """
    line = text if text.isprintable() else repr(text)[1:-1]
    return line if limit is None or len(line) <= limit else f"{line[: limit - 1]}…"
