"""The report as one HTML file, which contains its styles and drawings and loads nothing else."""

from __future__ import annotations

from django.template.loader import render_to_string

from relay.dashboard.report.content import Report


def write(report: Report) -> bytes:
    """Return the HTML file."""
    return render_to_string("relay_dashboard/report.html", {"report": report}).encode()
