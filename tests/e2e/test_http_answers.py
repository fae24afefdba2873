"""HTTP answers to a client before, or instead of, the upgrade.

uvicorn can answer HTTP in place of the upgrade; daphne cannot, and answers every refusal with 403
without a text. A refusal must stay cheap and must not contain the token.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
import time
from email.utils import parsedate_to_datetime

import pytest

from proto.identity import signing
from tests.support.identities import Twin
from tests.support.raw_http import UPGRADE_HEADERS, exchange, upgrade
from tests.support.relay_process import RelayProcess
from tests.support.rmb_client import connect, session
from tests.support.waiting import eventually
from tests.support.world import (
    BEYOND_TWIN,
    FIRST,
    TWINS,
    UNKNOWN_TWIN,
    fresh_twins,
    recorded_tokens,
)

DAPHNE_REFUSAL = 403


def _expected(relay: RelayProcess, status: int) -> int:
    return status if relay.server == "uvicorn" or status == 101 else DAPHNE_REFUSAL


async def test_a_good_token_is_upgraded(any_relay: RelayProcess) -> None:
    (twin,) = fresh_twins(1)
    answer = await upgrade(any_relay.port, f"/?{twin.token()}")
    assert answer.status == 101
    assert "sec-websocket-extensions" not in answer.headers


@pytest.mark.parametrize("path", ["/", "/ws", "/any/path/at.all", "/ready"])
async def test_any_path_is_accepted(any_relay: RelayProcess, path: str) -> None:
    (twin,) = fresh_twins(1)
    assert (await upgrade(any_relay.port, f"{path}?{twin.token()}")).status == 101


async def test_without_a_query_400(any_relay: RelayProcess) -> None:
    answer = await upgrade(any_relay.port, "/")
    assert answer.status == _expected(any_relay, 400)
    if any_relay.server == "uvicorn":
        assert b"missing jwt" in answer.body


async def test_a_bare_question_mark_is_an_empty_token_401(relay: RelayProcess) -> None:
    answer = await upgrade(relay.port, "/?")
    assert answer.status == 401
    assert answer.body.startswith(b"invalid jwt: ")


async def test_answers_tell_the_time(relay: RelayProcess) -> None:
    """Answers contain the time, so that a client can find out that its clock is wrong."""
    (twin,) = fresh_twins(1)
    late = await upgrade(relay.port, f"/?{twin.token('x', now=int(time.time()) - 902)}")
    found = re.fullmatch(
        rb"invalid jwt: token expired (\d+) s ago by this relay's clock", late.body
    )
    assert found is not None and abs(int(found[1]) - 602) <= 10
    for answer in (late, await upgrade(relay.port, f"/?{twin.token()}")):
        assert abs(parsedate_to_datetime(answer.headers["date"]).timestamp() - time.time()) <= 10


def _bad_tokens() -> dict[str, str]:
    """Return one token for each kind of defect."""
    twin, other = TWINS[FIRST], TWINS[FIRST + 1]
    header, claims, signature = twin.token("x").split(".")
    _, other_claims, other_signature = other.token("x").split(".")
    return {
        "garbage": "garbage",
        "not base64": "%%%.%%%.%%%",
        "two parts": f"{header}.{claims}",
        "no signature": f"{header}.{claims}.",
        "expired": twin.token("x", now=int(time.time()) - 400),
        "signature of another twin": f"{header}.{claims}.{other_signature}",
        "claims of another twin": f"{header}.{other_claims}.{signature}",
        "key of another type": Twin(twin.id, key_type=signing.KeyType.ED25519).token("x"),
    }


BAD_TOKENS = sorted(_bad_tokens())


@pytest.mark.parametrize("kind", BAD_TOKENS)
async def test_a_bad_token_401(any_relay: RelayProcess, kind: str) -> None:
    token = _bad_tokens()[kind]
    answer = await upgrade(any_relay.port, f"/?{token}")
    assert answer.status == _expected(any_relay, 401)
    if any_relay.server == "uvicorn":
        assert answer.body.startswith(b"invalid jwt: ")
        assert token.encode() not in answer.body
        assert len(answer.body) < 500


@pytest.mark.parametrize("twin", [UNKNOWN_TWIN, BEYOND_TWIN], ids=["unknown", "beyond"])
async def test_an_unknown_twin_401(any_relay: RelayProcess, twin: Twin) -> None:
    answer = await upgrade(any_relay.port, f"/?{twin.token()}")
    assert answer.status == _expected(any_relay, 401)
    if any_relay.server == "uvicorn":
        assert answer.body == b"twin not found %d" % twin.id


@pytest.mark.parametrize(
    "entry", recorded_tokens(), ids=lambda entry: f"{entry['made_by']}-{entry['what']}"
)
async def test_recorded_tokens_get_the_answer_of_the_reference(
    relay: RelayProcess, entry: dict
) -> None:
    answer = await upgrade(relay.port, f"/?{entry['token']}")
    assert answer.status == entry["reference_status"], answer.body


async def test_a_failed_look_up_500(start_relay) -> None:
    relay = start_relay()
    with contextlib.closing(sqlite3.connect(relay.database_path())) as database:
        database.execute("ALTER TABLE relay_twins_twin RENAME TO out_of_reach")
    answer = await upgrade(relay.port, f"/?{fresh_twins(1)[0].token()}")
    assert answer.status == 500
    assert b"Traceback" not in answer.body and b"sqlite" not in answer.body.lower()


async def test_metrics_200(any_relay: RelayProcess) -> None:
    answer = await exchange(any_relay.port, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain")
    assert b"relay_worker_connections" in answer.body


@pytest.mark.parametrize(
    "request_line",
    ["GET / HTTP/1.1", "GET /nothing HTTP/1.1", "GET /?token HTTP/1.1", "DELETE / HTTP/1.1"],
)
async def test_anything_else_404(any_relay: RelayProcess, request_line: str) -> None:
    answer = await exchange(any_relay.port, f"{request_line}\r\nHost: x\r\n\r\n".encode())
    assert answer.status == 404


async def test_above_the_capacity_503_and_counted(start_relay) -> None:
    relay = start_relay(settings={"relay.workers": "1", "relay.user_per_worker": "2"})
    one, two, three = fresh_twins(3)
    async with session(relay.url, one):
        leaving = await connect(relay.url, two)
        assert (await upgrade(relay.port, f"/?{three.token()}")).status == 503
        await eventually(lambda: relay.counted("relay_handshakes_refused_total", reason="capacity"))
        await leaving.close()
        async with session(relay.url, three) as client:
            await client.barrier()


async def test_refusals_are_counted_by_reason(relay: RelayProcess) -> None:
    def refused() -> float:
        return relay.counted("relay_handshakes_refused_total", reason="unauthorized")

    before = refused()
    for _ in range(3):
        assert (await upgrade(relay.port, "/?garbage")).status == 401
    await eventually(lambda: refused() == before + 3)


async def test_a_request_without_an_upgrade_header_is_not_a_session(relay: RelayProcess) -> None:
    (twin,) = fresh_twins(1)
    plain = UPGRADE_HEADERS.replace("Upgrade: websocket\r\n", "")
    request = f"GET /?{twin.token()} HTTP/1.1\r\n{plain}\r\n"
    assert (await exchange(relay.port, request.encode())).status in (400, 404)
