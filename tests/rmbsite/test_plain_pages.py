"""Pages that stand when the database or the account's session are what is away."""

from __future__ import annotations

import pytest
from django.template.loader import render_to_string
from django.test import Client


@pytest.mark.parametrize("name", ["403", "404", "500"])
def test_they_need_nothing(name: str) -> None:
    text = render_to_string(f"{name}.html")  # no request, no database
    assert "<h1>" in text and "/static/relay_dashboard/plain.css" in text


def test_a_page_that_is_not_there() -> None:
    answer = Client().get("/nowhere")
    assert answer.status_code == 404
    assert b"There is no such page" in answer.content


def test_the_database_does_not_answer() -> None:
    """Tests that do not ask for the database have none: every query raises."""
    client = Client(raise_request_exception=False)
    client.cookies["rmb_operator"] = "a session's key"
    answer = client.get("/console/")
    assert answer.status_code == 500
    assert b"/ready" in answer.content and b"Traceback" not in answer.content
