"""The documentation in the console: every page links to it, and all of its links work."""

from __future__ import annotations

import re
from urllib.parse import urljoin

import pytest
from django.test import Client

from relay.access.matrix import Role
from relay.dashboard.views.documents import marked_up
from tests.relay.dashboard.conftest import SignIn

pytestmark = pytest.mark.django_db

START = "/docs/README.md"


def test_every_page_links_to_the_documents(sign_in: SignIn) -> None:
    client = sign_in(Role.VIEWER)
    for path in ("/console/twins/", "/api/docs/", START):
        assert f'href="{START}">Documentation</a>' in client.get(path).content.decode()


def test_all_links_of_the_documents_lead_somewhere(sign_in: SignIn) -> None:
    client, seen, new = sign_in(Role.VIEWER), set(), {START}
    while new:
        path = new.pop()
        seen.add(path)
        answer = client.get(path)
        assert answer.status_code == 200, path
        if not path.endswith(".md"):
            continue
        (text,) = re.findall(r"<pre.*?</pre>", answer.content.decode(), re.DOTALL)
        targets = (link.partition("#")[0] for link in re.findall(r'href="([^"]+)', text))
        new |= {urljoin(path, each) for each in targets if each and "://" not in each} - seen
    assert {"/docs/operate/console.md", "/docs/reference/openapi.json"} < seen
    assert "/docs/images/overview.png" in seen and all(each.startswith("/docs/") for each in seen)


def test_markdown_is_text() -> None:
    shown = marked_up("# Use <b>\n[it](../a.md#b) & [out](../../x.md)\n")
    assert shown == (
        "<strong>Use &lt;b&gt;</strong>\n"
        '<a class="c-link" href="../a.md#b">it</a> &amp; [out](../../x.md)\n'
    )


def test_other_files_are_not_sent(sign_in: SignIn) -> None:
    client = sign_in(Role.OWNER)
    names = ("none.md", "..%2fpyproject.toml", "%2fetc/passwd", "operate", "operate/%00", "x" * 300)
    for path in names:
        assert client.get(f"/docs/{path}").status_code == 404, path
    assert Client().get(START).headers["Location"] == f"/admin/login/?next={START}"
