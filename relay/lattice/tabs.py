"""Parts that the pages of the lattice share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from relay.lattice.models import DIRECTIONS

TAG: Final = "lattice"
VIEW: Final = "lattice.view"
"""Action (permission) to see everything but policies."""


def tabs() -> dict[str, str]:
    """Return the titles of the pages that are shown as tabs, by name."""
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
    """Return the names of call directions in the console."""
    return {name: text.capitalize() for name, text in DIRECTIONS}


def at(seconds: float) -> datetime:
    """Convert seconds since 1970 to a time."""
    return datetime.fromtimestamp(seconds, UTC)
