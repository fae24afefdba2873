"""The report as one HTML file: styles and drawings are in it, and it asks for nothing else."""

from __future__ import annotations

from django.template.loader import render_to_string

from relay.dashboard.report.content import Report


def write(report: Report) -> bytes:
    """The file."""
    return render_to_string("relay_dashboard/report.html", {"report": report}).encode()
