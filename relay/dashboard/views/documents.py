"""The documentation of this release: its Markdown, in which headings stand out and links work."""

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
"""Of a checkout, and of an installed package."""

_LINK: Final = re.compile(r"!?\[([^\]]+)\]\((?!\.\./\.\./)([^)\s]+)\)")
"""Not those that leave the folder, as the one to the changelog does."""

_HEADING: Final = re.compile(r"^#+ +(.+)$", re.MULTILINE)


@page()
def document(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show a page of the documentation, or send a file that one links to."""
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
    """Return a file of the folder; None: it has no such file."""
    try:
        file = (folder / name).resolve()
        return file if file.is_relative_to(folder) and file.is_file() else None
    except (OSError, ValueError):  # no file can have such a name
        return None


def marked_up(text: str) -> SafeString:
    """Return Markdown as text of a page, with its headings and links."""
    shown = _HEADING.sub(r"<strong>\1</strong>", escape(text))
    return mark_safe(_LINK.sub(r'<a class="c-link" href="\2">\1</a>', shown))
