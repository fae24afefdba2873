"""A client of the relay's REST API: two modules, the standard library only, Python 3.11 or newer.

    from relay_api import RelayApi

    api = RelayApi("https://relay.example", token=open("token").read())
    for session in api.sessions(twin=7):
        print(session.key, session.messages_in)
    api.ban(7, reason="noise")

Lists are iterators over all pages. A refused request raises an `ApiError` that names the fields.
Requests that are lost or answered with 429 or 503 are repeated; every POST has an
`Idempotency-Key`, so it runs only once. `events` continues after the last event when it reconnects.
"""

from __future__ import annotations

import dataclasses
import http.client
import json
import ssl
import time
import types
import typing
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final, TypeVar

from .resources import (
    AuditEntry,
    Event,
    Letter,
    Limit,
    PastSession,
    Queue,
    Relay,
    Session,
    Twin,
)

__all__ = [
    "ApiError",
    "AuditEntry",
    "Event",
    "Letter",
    "Limit",
    "PastSession",
    "Queue",
    "Relay",
    "RelayApi",
    "Session",
    "Twin",
    "UnreachableError",
]

RETRIES: Final = 5
LONGEST_WAIT_S: Final = 60.0
FIRST_WAIT_S: Final = 0.5
TIMEOUT_S: Final = 30.0
STREAM_TIMEOUT_S: Final = 45.0
"""Silence after which a stream is dead: the relay sends something every 15 s."""
MAX_EVENT_BYTES: Final = 1 << 20

LOST: Final = (OSError, http.client.IncompleteRead, http.client.BadStatusLine)
"""Errors of an incomplete answer: URLError, time-outs, broken connections."""

Found = TypeVar("Found")


class ApiError(Exception):
    """The relay refused a request.

    Attributes:
        status: HTTP status.
        detail: reason, in one sentence.
        fields: error messages by field name.
    """

    def __init__(self, status: int, detail: str, fields: Mapping[str, str] | None = None) -> None:
        super().__init__(f"{status}: {detail}")
        self.status = status
        self.detail = detail
        self.fields = dict(fields or {})


class UnreachableError(Exception):
    """The relay could not be reached, even after all retries."""


class RelayApi:
    """The API of one relay's operator site."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        ca_file: str | None = None,
        timeout_s: float = TIMEOUT_S,
        retries: int = RETRIES,
    ) -> None:
        """Create a client.

        Args:
            url: URL of the operator site, without a path.
            token: an API token, as `manage.py rmb_token create` prints it.
            ca_file: certificates to trust instead of the system's.
            timeout_s: time-out of one request, in seconds.
            retries: maximum number of times that a refused or lost request is repeated.
        """
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise ValueError("url: must begin with http:// or https://")
        self._base = f"{url.rstrip('/')}/api/v1"
        self._token = token.strip()
        self._timeout_s = timeout_s
        self._retries = retries
        context = ssl.create_default_context(cafile=ca_file)
        self._opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))

    # Any request

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        etag: str = "",
        content: bytes | None = None,
        media_type: str = "application/json",
    ) -> Any:
        """Send a request, for operations without a method here.

        Args:
            path: path below `/api/v1`.
            query: query parameters; values that are None are skipped.
            body: value that is sent as JSON.
            etag: make the change only if the resource still has this ETag.
            content: bytes that are sent unchanged, instead of a body.
            media_type: media type of the content.

        Returns:
            The JSON value of the answer; None if it has none.

        Raises:
            ApiError: the relay refused it.
            UnreachableError: the relay did not answer.
        """
        headers = {"If-Match": etag} if etag else {}
        if method == "POST":
            headers["Idempotency-Key"] = str(uuid.uuid4())
        if body is not None:
            content = json.dumps(body).encode()
        if content is not None:
            headers["Content-Type"] = media_type
        document, _ = self._send(method, path, query or {}, content, headers)
        return document

    def pages(self, path: str, **query: Any) -> Iterator[dict[str, Any]]:
        """Generate the items of a list over all its pages."""
        cursor = None
        while True:
            page = self.request("GET", path, query={**query, "cursor": cursor})
            yield from page["items"]
            cursor = page["next"]
            if cursor is None:
                return

    # Sessions and queues

    def sessions(self, **filters: Any) -> Iterator[Session]:
        """List open sessions; filters such as `twin=7`, `worker=...`, `order="-messages_in"`."""
        return self._all(Session, "/sessions", filters)

    def history(self, **filters: Any) -> Iterator[PastSession]:
        """List open and past sessions."""
        return self._all(PastSession, "/sessions/history", filters)

    def kick(self, key: str, *, epoch: int | None = None, reason: str = "") -> None:
        """End session `<twin>`, `<twin>:<sid>` or `sbd:<key>`; with `epoch` one connection only."""
        body = {"key": key, "epoch": epoch, "reason": reason}
        self.request("POST", "/sessions/kick", body=body)

    def kick_twin(self, twin: int, *, reason: str = "") -> int:
        """End all sessions of a twin and return their number."""
        answer = self.request("POST", f"/twins/{twin}/kick", body={"reason": reason})
        return int(answer["sessions"])

    def queues(self, **filters: Any) -> Iterator[Queue]:
        """List the queues that hold messages."""
        return self._all(Queue, "/queues", filters)

    def purge_queue(self, key: str, up_to: str | None = None) -> int:
        """Delete the queue of a session that is not connected; return the number of messages."""
        body = {"key": key, "up_to": up_to}
        return int(self.request("POST", "/queues/purge", body=body)["purged"])

    # Twins and limits

    def twins(self, **filters: Any) -> Iterator[Twin]:
        """List the twins that this relay knows."""
        return self._all(Twin, "/twins", filters)

    def twin(self, twin: int) -> Twin:
        """Get one twin."""
        return self._one(Twin, f"/twins/{twin}")

    def put_twin(
        self,
        twin: int,
        account: str,
        pk: str | None = None,
        relays: tuple[str, ...] = (),
        *,
        etag: str = "",
    ) -> Twin:
        """Add a twin, or replace it."""
        body = {"account": account, "pk": pk, "relays": list(relays)}
        return _read(Twin, self.request("PUT", f"/twins/{twin}", body=body, etag=etag))

    def delete_twin(self, twin: int, *, etag: str = "") -> None:
        """Remove a twin."""
        self.request("DELETE", f"/twins/{twin}", etag=etag)

    def import_twins(self, csv: str, *, keep_going: bool = False) -> dict[str, Any]:
        """Add and change twins from the text of a CSV file; return the result."""
        found: dict[str, Any] = self.request(
            "POST",
            "/twins/import",
            query={"keep_going": str(keep_going).lower()},
            content=csv.encode(),
            media_type="text/csv",
        )
        return found

    def limits(self, **filters: Any) -> Iterator[Limit]:
        """List the twins with a limit of their own, a ban or a note."""
        return self._all(Limit, "/limits", filters)

    def limit(self, twin: int) -> Limit:
        """Get the limits, ban and note of a twin."""
        return self._one(Limit, f"/limits/{twin}")

    def put_limit(
        self,
        twin: int,
        count: int | None,
        size: int | None,
        *,
        note: str = "",
        unknown: bool = False,
        etag: str = "",
    ) -> Limit:
        """Set the limits of a twin: messages and bytes a minute.

        The relay refuses a twin that it does not know, unless `unknown` is true.
        """
        body = {"count": count, "size": size, "note": note, "unknown": unknown}
        return _read(Limit, self.request("PUT", f"/limits/{twin}", body=body, etag=etag))

    def ban(
        self, twin: int, *, reason: str = "", until: datetime | None = None, unknown: bool = False
    ) -> Limit:
        """Ban a twin; `until` needs a time zone.

        The relay refuses a twin that it does not know, unless `unknown` is true.
        """
        ends = until.isoformat() if until else None
        body = {"reason": reason, "until": ends, "unknown": unknown}
        return _read(Limit, self.request("POST", f"/limits/{twin}/ban", body=body))

    def lift_ban(self, twin: int) -> Limit:
        """Lift the ban of a twin."""
        return _read(Limit, self.request("POST", f"/limits/{twin}/lift-ban"))

    # Partner relays

    def relays(self, **filters: Any) -> Iterator[Relay]:
        """List partner relays."""
        return self._all(Relay, "/relays", filters)

    def relay(self, domain: str) -> Relay:
        """Get the decisions about a partner relay."""
        return self._one(Relay, f"/relays/{_quoted(domain)}")

    def act_on_relay(self, domain: str, verb: str) -> Relay:
        """Reset, pause, resume, block, unblock, trust or distrust a relay."""
        path = f"/relays/{_quoted(domain)}/{_quoted(verb)}"
        return _read(Relay, self.request("POST", path))

    def dead_letters(self) -> Iterator[Letter]:
        """List dead letters, the latest first."""
        return self._all(Letter, "/dead-letters", {})

    def requeue(self, entry: str) -> str:
        """Send a dead letter again; return its new id in the outbox."""
        path = f"/dead-letters/{_quoted(entry)}/requeue"
        return str(self.request("POST", path)["entry"])

    def requeue_all(self, domain: str) -> int:
        """Send the dead letters of a relay again, at most 1000; return their number."""
        return int(self.request("POST", f"/relays/{_quoted(domain)}/requeue")["count"])

    # Audit log and events

    def audit(self, **filters: Any) -> Iterator[AuditEntry]:
        """List the audit log, the latest entry first; filters such as `since=` as ISO texts."""
        return self._all(AuditEntry, "/audit", filters)

    def events(self, path: str, last_id: str = "") -> Iterator[Event]:
        """Follow a stream, such as `/alarms/events`, for ever; reconnect when it breaks.

        Raises:
            ApiError: the relay refuses it.
            UnreachableError: the relay could not be reached again.
        """
        failures = 0
        while True:
            try:
                for event in self._stream(path, last_id):
                    failures, last_id = 0, event.id or last_id
                    yield event
                # It ended cleanly: an hour is over, the relay restarts, or Redis is unavailable.
                time.sleep(FIRST_WAIT_S)
                continue
            except ApiError as error:
                if error.status not in (429, 503):
                    raise
            except LOST as error:
                if failures >= self._retries:
                    raise UnreachableError(str(error)) from error
            failures += 1
            time.sleep(_pause(failures, None))

    # Internals

    def _all(self, kind: type[Found], path: str, filters: Mapping[str, Any]) -> Iterator[Found]:
        return (_read(kind, each) for each in self.pages(path, **filters))

    def _one(self, kind: type[Found], path: str) -> Found:
        document, headers = self._send("GET", path, {}, None, {})
        return _read(kind, {**document, "etag": headers.get("ETag", "")})

    def _open(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any],
        content: bytes | None,
        headers: Mapping[str, str],
        timeout_s: float,
    ) -> Any:
        given = {name: value for name, value in query.items() if value is not None}
        address = f"{self._base}{path}"
        if given:
            address += f"?{urllib.parse.urlencode(given)}"
        request = urllib.request.Request(address, content, method=method)
        # A redirect must not keep this header, as it could lead to another host.
        request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        for name, value in headers.items():
            request.add_header(name, value)
        return self._opener.open(request, timeout=timeout_s)

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any],
        content: bytes | None,
        headers: Mapping[str, str],
    ) -> tuple[Any, Mapping[str, str]]:
        for failures in range(1, self._retries + 2):
            last = failures > self._retries
            try:
                with self._open(method, path, query, content, headers, self._timeout_s) as answer:
                    text = answer.read()
                    return (json.loads(text) if text else None), answer.headers
            except urllib.error.HTTPError as error:
                refused, wait = _refusal(error), error.headers.get("Retry-After")
                if last or not (error.code in (429, 503) or (error.code == 409 and wait)):
                    raise refused from None
                time.sleep(_pause(failures, wait))
            except LOST as error:
                if last:
                    raise UnreachableError(str(error)) from error
                time.sleep(_pause(failures, None))
        raise AssertionError("the last try returns or raises")

    def _stream(self, path: str, last_id: str) -> Iterator[Event]:
        headers = {"Accept": "text/event-stream"}
        if last_id:
            headers["Last-Event-ID"] = last_id
        try:
            answer = self._open("GET", path, {}, None, headers, STREAM_TIMEOUT_S)
        except urllib.error.HTTPError as error:
            raise _refusal(error) from None
        with answer:
            event: dict[str, str] = {}
            while line := answer.readline(MAX_EVENT_BYTES):
                text = line.decode().rstrip("\r\n")
                if not text:
                    if "data" in event:
                        data = json.loads(event["data"])
                        yield Event(event.get("id", ""), event.get("event", "message"), data)
                    event = {}
                elif not text.startswith(":"):
                    name, _, value = text.partition(":")
                    event[name] = value.removeprefix(" ")


def _refusal(error: urllib.error.HTTPError) -> ApiError:
    try:
        with error:
            text = error.read()
    except LOST:
        text = b""  # it is refused in any case
    try:
        problem = json.loads(text)
        fields = {each["field"]: each["message"] for each in problem.get("errors", ())}
        return ApiError(error.code, problem["detail"], fields)
    except (ValueError, TypeError, KeyError, AttributeError):
        return ApiError(error.code, error.reason or "no reason given")


def _pause(failures: int, wait: str | None) -> float:
    if wait is not None and wait.isdecimal():
        return min(float(wait), LONGEST_WAIT_S)
    return min(FIRST_WAIT_S * 2.0 ** (failures - 1), LONGEST_WAIT_S)


def _quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="")


def _read(kind: type[Found], document: Mapping[str, Any]) -> Found:
    """Create a dataclass from JSON; unknown fields of newer relays are ignored."""
    hints = typing.get_type_hints(kind)
    values = {
        field.name: _value(hints[field.name], document[field.name])
        for field in dataclasses.fields(kind)  # type: ignore[arg-type]
        if field.name in document
    }
    return kind(**values)


def _value(hint: Any, value: Any) -> Any:
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    return datetime.fromisoformat(value) if datetime in kinds and value is not None else value
