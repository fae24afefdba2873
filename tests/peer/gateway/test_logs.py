"""Log lines, in text and JSON, from a separate process."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta

PROGRAM = """
import logging, sys
from peer.gateway import logs
logs.set_up(int(sys.argv[1]), sys.argv[2])
log = logging.getLogger("peer.test")
log.debug("small")
log.info("twin %d is here", 7, extra={"twin": 7, "relays": ("a", "b")})
logging.getLogger("websockets.client").debug("> GET /?token")
try:
    1 / 0
except ZeroDivisionError:
    log.exception("two\\nlines %s", "\\x1b[2J \\u202e \\u00e9")
"""


def lines(debug: int, log_format: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(debug), log_format],
        capture_output=True,
        text=True,
        check=True,
    )
    assert not done.stdout
    return done.stderr.splitlines()


def test_text_is_one_line_for_a_record() -> None:
    first, second, *traceback = lines(0, "text")
    assert first.endswith(" INFO peer.test: twin 7 is here")
    assert second.endswith(r" ERROR peer.test: two\nlines \x1b[2J \u202e é")
    assert traceback[-1] == "ZeroDivisionError: division by zero"


def test_json_is_one_object_for_a_record() -> None:
    info, error = map(json.loads, lines(0, "json"))
    told = datetime.fromisoformat(info.pop("time"))
    assert abs(datetime.now(UTC) - told) < timedelta(minutes=1)
    assert info == {
        "level": "info",
        "logger": "peer.test",
        "message": "twin 7 is here",
        "twin": 7,
        "relays": ["a", "b"],
    }
    assert error["message"] == "two\nlines \x1b[2J \u202e \u00e9"
    assert "ZeroDivisionError" in error["traceback"]


def test_debugging_shows_ours_and_no_frames() -> None:
    text = "\n".join(lines(2, "text"))
    assert "DEBUG peer.test: small" in text
    assert "token" not in text
