"""Tests of pages that work without the database or a session."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import HttpResponse
from django.template.loader import render_to_string
from django.test import Client


@pytest.mark.parametrize("name", ["400", "403", "403_csrf", "404", "500"])
def test_they_need_nothing(name: str) -> None:
    text = render_to_string(f"{name}.html")  # without a request or a database
    assert "<h1>" in text and "/static/relay_dashboard/plain.css" in text


def test_a_page_that_is_not_there() -> None:
    answer = Client().get("/nowhere")
    assert answer.status_code == 404
    assert b"There is no such page" in answer.content


def test_the_database_does_not_answer() -> None:
    """A request gets a plain error page if the database does not answer.

    Tests that do not request the database have none, so every query raises.
    """
    client = Client(raise_request_exception=False)
    client.cookies["rmb_operator"] = "a session's key"
    answer = client.get("/console/")
    assert answer.status_code == 500
    assert b"/ready" in answer.content and b"Traceback" not in answer.content


ADVICE = (b"DEBUG", b"ALLOWED_HOSTS", b"settings.")
"""Texts of Django's own error pages about settings that this site does not have."""


class Lines(logging.Handler):
    """Handler that collects log lines with tracebacks, after the loggers' filters."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text += f"{self.format(record)}\n"


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler = Lines()
    logging.getLogger().addHandler(handler)
    yield handler
    logging.getLogger().removeHandler(handler)


def check(answer: HttpResponse, status: int, told: bytes, lines: Lines) -> None:
    assert answer.status_code == status
    assert told in answer.content and b"plain.css" in answer.content
    for text in (answer.content, lines.text.encode()):
        assert b"Traceback" not in text
        assert not [each for each in ADVICE if each in text]


@pytest.mark.parametrize("path", ["/console/", "/live", "/api/v1/me"])
def test_a_foreign_host(path: str, lines: Lines) -> None:
    check(Client().get(path, headers={"host": "evil.example"}), 400, b"admin.hosts", lines)
    assert "unknown host name evil.example refused" in lines.text


@pytest.mark.parametrize("host", ["a b", "evil.example'x", "[::1", "e" * 300])
def test_a_host_that_is_none(host: str, lines: Lines) -> None:
    check(Client().get("/live", headers={"host": host}), 400, b"admin.hosts", lines)
    assert len(lines.text) < 500


def test_a_form_from_elsewhere(lines: Lines) -> None:
    client = Client(enforce_csrf_checks=True)
    check(client.post("/admin/login/"), 403, b"no cookie", lines)
    client.cookies["csrftoken"] = 32 * "x"
    check(client.post("/admin/login/"), 403, b"out of date", lines)


@pytest.mark.parametrize(
    "form",
    [
        {f"field{number}": "x" for number in range(1001)},
        {f"file{number}": SimpleUploadedFile("a", b"") for number in range(101)},
        {"field": "x" * (2621440 + 1)},
    ],
    ids=["fields", "files", "bytes"],
)
def test_a_form_that_is_too_large(form: dict[str, object], lines: Lines) -> None:
    client = Client(enforce_csrf_checks=True)
    client.cookies["csrftoken"] = 32 * "x"
    check(client.post("/admin/login/", form), 400, b"too large", lines)
