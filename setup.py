"""What `pyproject.toml` cannot say: a build of the hot path goes into the wheel.

The wheel is then for one version of Python and one platform. Without a build that fits, or with
RMB_COMPILED=0, it has the Python sources only, and is for all.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from setuptools import Distribution, setup

sys.path.insert(0, str(Path.cwd()))

from hotpath import compiled


class Relay(Distribution):
    """The distribution, with or without a build of the hot path."""

    def parse_config_files(self, *arguments: Any, **options: Any) -> None:
        """Add the present build to what `pyproject.toml` names."""
        super().parse_config_files(*arguments, **options)
        if compiled.in_use():
            own: dict[str, Any] = self.package_data
            build = (compiled.read_manifest() or {})["build"]
            own["hotpath"] = [f"_compiled/{compiled.MANIFEST}", f"_compiled/{build}/**/*"]

    def has_ext_modules(self) -> bool:
        """Whether the wheel is for one platform."""
        return compiled.in_use()


setup(distclass=Relay)
