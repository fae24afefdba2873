"""Long answers are sent while they are generated."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest
from django.http import FileResponse, HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.test import AsyncRequestFactory, RequestFactory

from rmbsite import streaming

LINE = b"x" * 1023 + b"\n"
LINES = 1000


def answer_of(request: HttpRequest, answer: HttpResponseBase) -> HttpResponseBase:
    return streaming.in_parts(lambda request: answer)(request)


async def test_the_first_bytes_do_not_wait_for_the_last() -> None:
    made = 0

    def rows() -> Iterator[bytes]:
        nonlocal made
        for _ in range(LINES):
            made += 1
            yield LINE

    answer = answer_of(AsyncRequestFactory().get("/"), StreamingHttpResponse(rows()))
    assert isinstance(answer, StreamingHttpResponse)
    parts = aiter(answer)
    first = await anext(parts)
    assert made == len(first) / len(LINE) == streaming.ENOUGH_BYTES / len(LINE)
    rest = [part async for part in parts]
    assert (made, first + b"".join(rest)) == (LINES, LINE * LINES)


async def test_a_file_is_closed_behind() -> None:
    with tempfile.TemporaryFile() as file:
        file.write(LINE * LINES)
        file.seek(0)
        answer = answer_of(AsyncRequestFactory().get("/"), FileResponse(file))
        assert isinstance(answer, FileResponse) and answer["Content-Length"] == f"{1024 * LINES}"
        assert b"".join([part async for part in answer]) == LINE * LINES
        answer.close()
        assert file.closed


async def test_an_error_on_the_way_is_not_an_end() -> None:
    def rows() -> Iterator[bytes]:
        yield LINE * 100
        raise OSError("gone")

    answer = answer_of(AsyncRequestFactory().get("/"), StreamingHttpResponse(rows()))
    assert isinstance(answer, StreamingHttpResponse)
    parts = aiter(answer)
    assert await anext(parts)
    with pytest.raises(OSError, match="gone"):
        await anext(parts)


def test_what_is_left_as_it_is() -> None:
    """Short answers, asynchronous ones, and all answers of a synchronous server are unchanged."""

    async def ticks() -> object:
        yield b"tick"

    short = HttpResponse("short")
    assert answer_of(AsyncRequestFactory().get("/"), short) is short
    live = StreamingHttpResponse(ticks())
    before = live._iterator  # type: ignore[attr-defined]
    assert answer_of(AsyncRequestFactory().get("/"), live)._iterator is before  # type: ignore[attr-defined]
    plain = answer_of(RequestFactory().get("/"), StreamingHttpResponse([b"a", b"b"]))
    assert list(plain) == [b"a", b"b"]  # type: ignore[call-overload]
