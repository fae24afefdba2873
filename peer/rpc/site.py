"""URL, token and certificates for calls to an operator site: checks of user input."""

from __future__ import annotations

import os
import re
import ssl
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

PATH: Final = "/calls"
"""Path of the websocket at the operator site."""
TOKEN_VARIABLE: Final = "RMB_TOKEN"
_SCHEMES: Final = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
_TOKEN: Final = re.compile(r"[!-~]+")


def calls_url(text: str) -> str:
    """Return the URL of the websocket of an operator site.

    Raises:
        ValueError: the URL is invalid; the text does not repeat it.
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


def read_token(file: str | None) -> str:
    """Return the API token from a file or from the variable `TOKEN_VARIABLE`, without outer space.

    Args:
        file: path of the file, in which `~` is the home folder.

    Raises:
        ValueError: there is no usable token; the text says where it was looked for, and does not
            repeat it.
    """
    name, text = TOKEN_VARIABLE, os.environ.get(TOKEN_VARIABLE)
    if file is not None:
        name = f"--token-file {file}"
        try:
            text = Path(os.path.expanduser(file)).read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            raise ValueError(f"{name}: {error}") from None
    if text is None:
        raise ValueError(f"the API token is missing: use --token-file, or set {TOKEN_VARIABLE}")
    token = text.strip()
    if not token:
        raise ValueError(f"{name}: the API token is empty")
    if not _TOKEN.fullmatch(token):
        raise ValueError(
            f"{name}: the API token must be one line of ASCII characters without spaces"
        )
    return token


def trusting(ca: str | None) -> ssl.SSLContext | None:
    """Return a context that trusts the certificates in a file; None stands for the system's.

    Raises:
        ValueError: the file cannot be used.
    """
    try:
        return ssl.create_default_context(cafile=os.path.expanduser(ca)) if ca else None
    except OSError as error:
        raise ValueError(f"--ca {ca}: {error}") from None
