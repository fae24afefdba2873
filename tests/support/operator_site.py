"""The operator site of a running relay, used as programs do: with a token, and requests by hand."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.support.relay_process import RelayProcess, run_command

OPERATOR = "olga"


class Answer(NamedTuple):
    """An HTTP answer."""

    status: int
    headers: Mapping[str, str]
    text: str

    def json(self) -> Any:
        return json.loads(self.text)


class OperatorSite:
    """Client with the token of an owner."""

    def __init__(self, relay: RelayProcess) -> None:
        self.relay = relay
        self.url = f"http://127.0.0.1:{relay.admin_port}"
        account = ("--username", OPERATOR, "--email", f"{OPERATOR}@relay.example")
        self._command("createsuperuser", "--noinput", *account)
        self.token = self.new_token("owner")

    def new_token(self, role: str) -> str:
        """Return another token."""
        made = ("--account", OPERATOR, "--label", "test", "--role", role)
        return self._command("rmb_token", "create", *made).strip()

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        token: str | None = None,
    ) -> Answer:
        """Send one request below `/api/v1`; a body is sent as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.relay.admin_port, timeout=60)
        sent = {"Authorization": f"Bearer {self.token if token is None else token}"}
        content = None
        if body is not None:
            content = json.dumps(body)
            sent["Content-Type"] = "application/json"
        try:
            connection.request(method, f"/api/v1{path}", content, {**sent, **(headers or {})})
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read().decode())
        finally:
            connection.close()

    def _command(self, *arguments: str) -> str:
        done = run_command(self.relay.folder, *arguments, settings=self.relay.settings)
        assert done.returncode == 0, done.stderr
        return done.stdout
