"""Makes texts from outside safe to show: they cannot move a cursor or break a line.

Clients choose uid, command, tags and session id, partner relays the texts of their errors, and
anyone who tries to sign in a user name. Terminals, e-mail headers and log lines get such texts only
through this module.
"""

from __future__ import annotations


def shown(text: str, limit: int | None = None) -> str:
    """Return a text on one line.

    Args:
        text: Text of any origin.
        limit: Maximum number of characters; a longer text is cut and ends with an ellipsis. None:
            not cut.

    Returns:
        The text, with all unprintable characters escaped.
    """
    line = text if text.isprintable() else repr(text)[1:-1]
    return line if limit is None or len(line) <= limit else f"{line[: limit - 1]}…"
