"""What the pages of the lattice have in common."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from relay.lattice.models import DIRECTIONS

TAG: Final = "lattice"
VIEW: Final = "lattice.view"
"""Of the actions: to see all but policies."""


def tabs() -> dict[str, str]:
    """Return the pages that stand side by side."""
    return {
        "lattice_hosts": "Hosts",
        "lattice_actors": "Actors",
        "lattice_providers": "Providers",
        "lattice_links": "Links",
        "lattice_calls": "Calls",
        "lattice_findings": "Findings",
        "lattice_policies": "Policies",
        "lattice_processes": "Processes",
    }


def directions() -> dict[str, str]:
    """Return what the console calls the directions of calls."""
    return {name: text.capitalize() for name, text in DIRECTIONS}


def at(seconds: float) -> datetime:
    """Return the time of seconds since 1970."""
    return datetime.fromtimestamp(seconds, UTC)
