"""schemathesis against a running site: every operation behaves as the document says.

The site has real data: twins, sessions, limits, partner relays, queued messages, dead letters,
tokens, audit entries. Streams of events are skipped: they do not end (`relay.trace.test_stream`).

It runs twice: over each operation by itself, and along the links of the document, so that a
resource that was created is read, changed and removed, and then no longer exists.
`RMB_TEST_SCHEMATHESIS_S=300` gives it time for many requests of each operation.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.e2e.conftest import StartRelay
from tests.relay.federation import stored
from tests.support.identities import twin
from tests.support.operator_site import OperatorSite
from tests.support.redis_servers import RedisServer
from tests.support.relay_process import RelayProcess
from tests.support.rmb_client import session

ALONE_S = int(os.environ.get("RMB_TEST_SCHEMATHESIS_S", "14"))
LINKED_S = max(6, ALONE_S // 2)
ELSEWHERE = "ignored_auth,negative_data_rejection"
LINKS = 90
"""Number of links in the document, at least."""
PROGRAM = Path(sys.executable).with_name("schemathesis")

# One worker: two threads that parse Python at once end in a SystemError of CPython 3.11.
CONFIG = """\
color = false
workers = 1

[checks.positive_data_acceptance]
# Beside its own defaults: opaque texts (cursors, accounts, ETags) that are none of ours.
expected-statuses = ["2xx", "3xx", "400", "401", "403", "404", "409", "412", "429", "5xx"]

[checks.negative_data_rejection]
expected-statuses = ["400", "401", "403", "404", "405", "409", "412", "413", "415", "422", "429"]
"""

# Operations with rules that JSON Schema cannot express: a value it allows may be refused with 422.
BEYOND_SCHEMA = (
    *(
        "put_relay",
        "put_twin",
        "patch_twin",
        "import_twin_file",
        "put_limit",
        "ban_twin",
        "ban_address",
        "lift_address_ban",
        "limit_sbd",
        "ban_sbd_key",
        "lift_sbd_key_ban",
        "create_token",
    ),
    *("add_receiver", "change_receiver", "put_alarm_rule", "add_silence", "start_trace"),
    *("get_queue", "list_queue_headers", "export_queue", "purge_queue", "move_queue"),
    *("get_history", "list_session_history", "list_audit", "export_audit"),
    *("create_account", "change_account", "set_account_password", "create_group", "change_group"),
    *("put_policy", "put_link", "delete_link", "call_operation"),
)


async def fill(relay: RelayProcess, server: RedisServer, site: OperatorSite) -> dict[str, Any]:
    """Create rows and entries of each kind; return the ids that addresses are built from."""
    async with session(relay.url, twin(1001)), session(relay.url, twin(1002)):
        pass
    dead = [stored.add_dead(server, stored.message()) for _ in range(5)]
    pending = stored.add_pending(server, stored.message())
    stored.add_partner(server, failures=2, last_error="503")
    for path, body in (
        ("/limits/7", {"count": 10, "size": 1000, "unknown": True}),
        ("/limits/8", {"note": "watch", "unknown": True}),
        ("/relays/c.example", {"note": "friends", "trusted": True}),
    ):
        assert site.ask("PUT", path, body).status == 200
    assert site.ask("POST", "/limits/9/ban", {"reason": "noise", "unknown": True}).status == 200
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    for path, body in (
        ("/accounts", {"username": "vera", "groups": ["viewer"]}),
        ("/groups", {"name": "night", "permissions": ["relay_sessions.kick_session"]}),
        ("/traces", {"kind": "twin", "subject": "7"}),
        ("/alarms/silences", {"rule": "disk", "subject": "*", "until": tomorrow.isoformat()}),
        (
            "/alarms/receivers",
            {"name": "pager", "kind": "webhook", "target": "https://hooks.example/x"},
        ),
    ):
        assert site.ask("POST", path, body).status in (200, 201), path
    victim = site.ask("POST", "/tokens", {"label": "victim", "role": "viewer"}).json()["id"]
    rows = site.ask("GET", "/sessions/history?limit=1").json()["items"]
    return {
        "twin": 7,
        "domain": "c.example",
        "session": rows[0]["id"] if rows else 1,
        "number": 1,
        "account": 1,
        "key": "relay.domains",
        "token": victim,
        "entry": dead[0],
        "pending": pending,
        "worker": next(iter(relay.worker_hashes())),
    }


def configuration(site: OperatorSite, known: dict[str, Any]) -> str:
    """Return the run's settings: real ids for the addresses, and what not to do to the relay."""
    document = site.ask("GET", "/openapi.json").json()
    parts = [CONFIG]
    for path, item in document["paths"].items():
        for method, operation in item.items():
            lines = list(_overrides(path, method, operation, known))
            if lines:
                name = f'include-operation-id = "{operation["operationId"]}"'
                parts += ["[[operations]]", name, *lines, ""]
    return "\n".join(parts)


def _overrides(
    path: str, method: str, operation: dict[str, Any], known: dict[str, Any]
) -> Iterator[str]:
    name = operation["operationId"]
    if any(
        "text/event-stream" in each.get("content", {}) for each in operation["responses"].values()
    ):
        yield "enabled = false"
        return
    fixed = {
        each["name"]: known[each["name"]]
        for each in operation["parameters"]
        if each["in"] == "path" and each["name"] in known
    }
    if "outbox" in path and "entry" in fixed:
        fixed["entry"] = known["pending"]
    # Any other resource may be changed or removed, but not this test's token.
    if fixed and (method == "get" or name == "revoke_token"):
        values = ", ".join(f"{key} = {json.dumps(value)}" for key, value in fixed.items())
        yield f"parameters = {{ {values} }}"
    if name in BEYOND_SCHEMA:
        yield "checks.positive_data_acceptance.enabled = false"
    if name == "import_twin_file":
        yield "checks.negative_data_rejection.enabled = false"  # any text is valid


def without_our_end(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document without the link that leads to revoking this test's token."""
    for name in ("list_tokens", "get_token"):
        for item in document["paths"].values():
            for operation in item.values():
                if operation["operationId"] == name:
                    operation["responses"]["200"].get("links", {}).pop("revoke_token", None)
    return document


async def test_the_api_does_what_its_document_says(start_relay: StartRelay, tmp_path: Path) -> None:
    relay = start_relay(
        operator_site=True,
        settings={"rest.requests_per_minute": "0", "rest.failures_per_minute": "0"},
    )
    assert relay.redis is not None
    site = OperatorSite(relay)
    known = await fill(relay, relay.redis, site)
    config = tmp_path / "schemathesis.toml"
    config.write_text(configuration(site, known))
    schema = tmp_path / "openapi.json"
    schema.write_text(json.dumps(without_our_end(site.ask("GET", "/openapi.json").json())))
    common = (
        *(str(PROGRAM), "--config-file", str(config), "run", str(schema), "--url", site.url),
        *("--header", f"Authorization: Bearer {site.token}", "--seed", "1"),
        *("--request-timeout", "10", "--warnings", "off", "--continue-on-failure"),
    )
    for phases, time_s, more in (
        ("coverage,fuzzing", ALONE_S, ("--max-examples", "12")),
        # The first run sends requests without permission, and wrong values: a link's number for a
        # path that is text counts as one.
        ("stateful", LINKED_S, ("--mode", "positive", "--exclude-checks", ELSEWHERE)),
    ):
        done = subprocess.run(
            [*common, "--phases", phases, "--max-time", str(time_s), *more],
            cwd=tmp_path,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
            capture_output=True,
            text=True,
            timeout=10 * time_s,
        )
        assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
    # How many links it follows depends on the speed; `relay.rest.test_links` follows all.
    selected = re.search(r"API Links: +\d+ covered / (\d+) selected", done.stdout)
    assert selected is not None and int(selected[1]) >= LINKS, done.stdout
    assert site.ask("GET", "/me").status == 200, "the token is still one"
    assert "Traceback" not in relay.log(), relay.log()[-5000:]
