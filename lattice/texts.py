"""Texts of others in ours: of nats-py's errors, and of the senders of messages."""

from __future__ import annotations


def said(error: Exception) -> str:
    """Return the text of an error of nats-py, or its class if the text is empty."""
    return str(error).removeprefix("nats: ") or type(error).__name__


def cut(text: str, most: int) -> str:
    """Return the beginning of a text in printable characters."""
    shown = text[:most]
    return shown if shown.isprintable() else ascii(shown)[1:-1][:most]
