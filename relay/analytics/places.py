"""Where this installation keeps the files of analytics."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings

from relay.analytics.lake import Lake


def configured() -> Lake:
    """The lake of the configuration; nothing is made before something is written into it."""
    chosen = settings.RMB.analytics.dir
    folder = Path(chosen).expanduser() if chosen else settings.RMB.data_dir / "analytics"
    return Lake(folder.absolute())
