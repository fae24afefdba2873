"""How the site writes dates: as in logs, so that one can be looked up in the other (UTC)."""

from __future__ import annotations

DATE_FORMAT = "Y-m-d"
DATETIME_FORMAT = "Y-m-d H:i:s"
TIME_FORMAT = "H:i:s"
