"""The twins that every relay of the tests knows.

Twins below 1000 are those of the recorded tokens (released clients' own test keys); the others have
the test keys of `tests.support.identities`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.identities import TEST_DOMAIN, Twin, twin, twins_csv

VECTORS = Path(__file__).parents[1] / "interop" / "vectors"

FIRST = 1001
FRESH = range(FIRST, 2200)
AWAY = range(2200, 2350)
"""Numbers of twins that never sign in."""
UNKNOWN = range(2350, 2900)
"""Numbers below the highest known one that belong to no twin."""
TWINS = {number: twin(number) for number in (*FRESH, *AWAY)}
NO_RELAY_TWIN = twin(3000, "")
ELSEWHERE_DOMAIN = "elsewhere.example"
ELSEWHERE_TWIN = twin(3001, ELSEWHERE_DOMAIN)
BOTH_TWIN = twin(3002, f"{ELSEWHERE_DOMAIN}_{TEST_DOMAIN}")
PORT_DOMAIN_TWIN = twin(3003, f"127.0.0.1:8080_{ELSEWHERE_DOMAIN}")
URL_DOMAIN_TWIN = twin(3004, "ws:/127.0.0.1:9100")
CAPITALS_TWIN = twin(3005, TEST_DOMAIN.upper() + ".")
UNUSABLE_TWIN = twin(3006, "wss://relay.example.com_a..b")
HOST_DOMAIN_TWIN = twin(3007, "127.0.0.1")
UNKNOWN_TWIN = twin(2900)  # as `UNKNOWN`
BEYOND_TWIN = twin(399_999)  # above the highest known one

_numbers = iter(FRESH)


def fresh_twins(count: int) -> list[Twin]:
    """Return twins that no other test of this process used, so that relays can be shared."""
    return [TWINS[next(_numbers)] for _ in range(count)]


def recorded_tokens() -> list[dict[str, Any]]:
    """Return tokens with the HTTP answer of the reference relay, long-lived or never valid."""
    recorded = json.loads((VECTORS / "rmb_jwts.json").read_text())
    entries = recorded["jwts"] if isinstance(recorded, dict) else recorded
    return [entry for entry in entries if entry.get("reference_status") is not None]


def all_twins_csv() -> str:
    """Return the input for `manage.py rmb_twin import`."""
    names = (PORT_DOMAIN_TWIN, URL_DOMAIN_TWIN, HOST_DOMAIN_TWIN, CAPITALS_TWIN)
    special = (NO_RELAY_TWIN, ELSEWHERE_TWIN, BOTH_TWIN, UNUSABLE_TWIN, *names)
    text = twins_csv([*TWINS.values(), *special])
    accounts = {}
    for entry in recorded_tokens():
        claims = entry.get("claims")
        number = claims.get("sub") if isinstance(claims, dict) else None
        if isinstance(number, int) and 0 < number < FIRST and entry.get("pubkey"):
            accounts[number] = entry["pubkey"]
    rows = [f"{number},0x{account},,{TEST_DOMAIN}\n" for number, account in accounts.items()]
    return text + "".join(rows)
