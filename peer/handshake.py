"""Descriptions of why a websocket could not be opened, in the server's own words if it sent any."""

from __future__ import annotations

from http.client import responses
from typing import Final

from chain.errors import shortened

SWITCHING: Final = 101


def failure_of(error: BaseException) -> str:
    """Return what went wrong, as one line for a log."""
    response = getattr(error, "response", None)
    status = int(response.status) if response is not None else SWITCHING
    if status == SWITCHING:  # the status is not the reason
        return shortened(str(error) or type(error).__name__)
    body = getattr(error, "raw_body", None) or b""
    return refusal(status, body.decode("utf-8", "replace"))


def refusal(status: int, text: str) -> str:
    """Return what a server answered, as one line for a log."""
    text = text.strip() or responses.get(status, "")
    return shortened(f"refused with status {status}: {text or 'no text'}")
