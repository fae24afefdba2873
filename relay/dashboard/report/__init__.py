"""The monthly report, for readers without access to the console: one HTML file, or a PDF.

`content` collects the results of the jobs; `html` and `pdf` each write the same contents.
"""

from __future__ import annotations

from typing import Final

FORMS: Final = ("html", "pdf")
