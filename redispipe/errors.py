"""Errors of a connection to Redis."""

from __future__ import annotations


class LinkLost(ConnectionError):
    """The reply will not come: the connection ended first. Whether it was executed is unknown."""
