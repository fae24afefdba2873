"""The report of a month, for people who open no console: one HTML file, or a PDF.

`content` gathers what the jobs found; `html` and `pdf` write the same of it, each by itself.
"""

from __future__ import annotations

from typing import Final

FORMS: Final = ("html", "pdf")
