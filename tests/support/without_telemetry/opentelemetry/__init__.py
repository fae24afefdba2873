"""Substitute that hides the library, for processes that run as without the extra `otel`.

Most installations run without it. If the library is installed, redis-py imports it for metrics that
are not used, which takes an eighth of a start.
"""

from __future__ import annotations

raise ImportError("this process runs as without the extra otel")
