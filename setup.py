"""Build step that `pyproject.toml` cannot express: the wheel includes a build of the hot path.

The wheel is then specific to a version of Python and a platform. Without a matching build, or with
RMB_COMPILED=0, it has only the Python sources and works everywhere.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from setuptools import Distribution, setup

sys.path.insert(0, str(Path.cwd()))

from hotpath import compiled


class Relay(Distribution):
    """Distribution with or without a build of the hot path."""

    def parse_config_files(self, *arguments: Any, **options: Any) -> None:
        """Add the current build to the package data of `pyproject.toml`."""
        super().parse_config_files(*arguments, **options)
        if compiled.in_use():
            own: dict[str, Any] = self.package_data
            build = (compiled.read_manifest() or {})["build"]
            own["hotpath"] = [f"_compiled/{compiled.MANIFEST}", f"_compiled/{build}/**/*"]

    def has_ext_modules(self) -> bool:
        """Return whether the wheel is specific to a platform."""
        return compiled.in_use()


setup(distclass=Relay)
