"""Where operators' calls go and with which token: checks of what a user typed."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

PATH: Final = "/calls"
_SCHEMES: Final = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
_TOKEN: Final = re.compile(r"[!-~]+")


def calls_url(text: str) -> str:
    """The websocket of an operator site.

    Raises:
        ValueError: it is no URL of one; the text does not repeat it.
    """
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"invalid: {error}") from None
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not have a user name or a password")
    scheme = _SCHEMES.get(parts.scheme)
    is_plain = text.isascii() and text.isprintable() and " " not in text
    if scheme is None or not parts.hostname or "?" in text or "#" in text or not is_plain:
        raise ValueError("must be https://host or http://host:port")
    if port == 0:
        raise ValueError("the port must be from 1 to 65535")
    path = parts.path.rstrip("/")
    return f"{scheme}://{parts.netloc}{path if path.endswith(PATH) else path + PATH}"


def check_token(text: str) -> str:
    """The token without the space around it.

    Raises:
        ValueError: it is blank, or cannot stand in a header; the text does not repeat it.
    """
    token = text.strip()
    if not token:
        raise ValueError("the API token is empty")
    if not _TOKEN.fullmatch(token):
        raise ValueError("the API token must be one line of ASCII characters without spaces")
    return token
