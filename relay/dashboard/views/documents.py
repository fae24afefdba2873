"""The documentation of this release: its Markdown as text, with headings and links marked up."""

from __future__ import annotations

import mimetypes
import re
import sysconfig
from pathlib import Path
from typing import Final

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from relay.access.errors import NotFound
from relay.dashboard.pages import page, render

FOLDERS: Final = (
    Path(__file__).parents[3] / "docs",
    Path(sysconfig.get_path("data"), "share", "doc", "rmb-relay-platform"),
)
"""Folders of the documentation in a checkout, and in an installed package."""

_LINK: Final = re.compile(r"!?\[([^\]]+)\]\((?!\.\./\.\./)([^)\s]+)\)")
"""A link, except for links out of the folder, such as the one to the changelog."""

_HEADING: Final = re.compile(r"^#+ +(.+)$", re.MULTILINE)


@page()
def document(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show a page of the documentation, or send a file that a page links to."""
    folder = next((each for each in FOLDERS if each.is_dir()), FOLDERS[0]).resolve()
    file = _file_of(folder, name)
    if file is None:
        raise NotFound(f"the documentation has no page {name:.100}")
    if file.suffix != ".md":
        kind, _ = mimetypes.guess_type(file.name)
        return HttpResponse(file.read_bytes(), content_type=kind or "text/plain")
    text = file.read_text()
    found = _HEADING.search(text)
    context = {"text": marked_up(text)}
    title = found[1] if found else name
    return render(request, "relay_dashboard/document.html", title, context)


def _file_of(folder: Path, name: str) -> Path | None:
    """Return a file of the folder; None if it does not exist or is outside."""
    try:
        file = (folder / name).resolve()
        return file if file.is_relative_to(folder) and file.is_file() else None
    except (OSError, ValueError):  # the name is invalid
        return None


def marked_up(text: str) -> SafeString:
    """Return Markdown as HTML text with its headings and links marked up."""
    shown = _HEADING.sub(r"<strong>\1</strong>", escape(text))
    return mark_safe(_LINK.sub(r'<a class="c-link" href="\2">\1</a>', shown))
