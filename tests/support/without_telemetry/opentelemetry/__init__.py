"""Stands before the library where a process is to run as without the extra `otel`.

So do most installations. Where the library is, redis-py imports it for metrics nobody asked for,
which takes an eighth of a start.
"""

from __future__ import annotations

raise ImportError("this process runs as without the extra otel")
