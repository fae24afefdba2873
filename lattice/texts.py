"""Clean-up of foreign texts that are shown: errors of nats-py, and fields of received messages."""

from __future__ import annotations


def said(error: Exception) -> str:
    """Return the text of an error of nats-py, or its class name if the text is empty."""
    return str(error).removeprefix("nats: ") or type(error).__name__


def cut(text: str, most: int) -> str:
    """Return at most `most` characters of a text, escaped if any is not printable."""
    shown = text[:most]
    return shown if shown.isprintable() else ascii(shown)[1:-1][:most]
