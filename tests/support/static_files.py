"""The site's static files, looked for once by all test clients of a process.

Each new client sets up the middleware anew, and WhiteNoise looks at a hundred and eighty files of
the installed packages then: half of what a short test of a page takes.
"""

from __future__ import annotations

from typing import Any

from whitenoise.middleware import WhiteNoiseMiddleware


def look_once() -> None:
    """Have every later client take the files that the first one found."""
    found: dict[str, Any] = {}
    look = WhiteNoiseMiddleware.add_files_from_finders

    def take(self: WhiteNoiseMiddleware) -> None:
        if not found:
            look(self)
            found.update(self.files)
        self.files.update(found)

    WhiteNoiseMiddleware.add_files_from_finders = take  # type: ignore[method-assign]
