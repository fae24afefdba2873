"""Errors of a connection to Redis."""

from __future__ import annotations


class LinkLost(ConnectionError):
    """The reply will not come because the connection ended. It is not known whether the request was
    executed.
    """
