"""`relay.sessions.history` and `services`: rows of sessions, which a thread writes."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError
from django.utils import timezone

from proto.rmb.reasons import SessionReason
from relay.ops import keyset
from relay.sessions import history as module
from relay.sessions import services
from relay.sessions.history import SessionHistory, SessionOpened, SessionProgress
from relay.sessions.models import Peer, Session
from tests.support.in_database import in_database
from tests.support.postgres_server import PostgresServer

# On PostgreSQL the history closes a connection that is in a transaction.
pytestmark = pytest.mark.django_db(transaction=True)

SINCE = 1_700_000_000.0
END = SINCE + 60


@pytest.fixture
def history() -> SessionHistory:
    return SessionHistory("boot", 3, clock=lambda: END)


def opened(twin: int, sid: str | None = None, epoch: int = 1) -> SessionOpened:
    return SessionOpened((twin, sid), epoch, SINCE, "192.0.2.1", "client/1")


def row(twin: int = 7) -> Session:
    return Session.objects.get(twin=twin)


def test_a_session_from_its_beginning_to_its_end(history: SessionHistory) -> None:
    history.opened(opened(7, "phone"))
    assert history.flush()
    assert (row().key, row().epoch, row().worker, row().slot) == ((7, "phone"), 1, "boot", "3")
    assert row().opened_at == datetime.fromtimestamp(SINCE, UTC)
    assert (row().remote, row().user_agent, row().closed_at) == ("192.0.2.1", "client/1", None)
    history.progress([SessionProgress((7, "phone"), 1, 1, 2, 30, 40, 5, 6)])
    assert history.flush()
    assert (row().messages_in, row().messages_out) == (1, 2)
    assert (row().bytes_in, row().bytes_out, row().backlog, row().drops) == (30, 40, 5, 6)
    assert row().closed_at is None
    history.closed(SessionProgress((7, "phone"), 1, 9), SessionReason.IDLE)
    assert history.flush()
    assert (row().messages_in, row().messages_out, row().close_reason) == (9, 0, "idle")
    assert row().closed_at == datetime.fromtimestamp(END, UTC)


def test_what_carries_a_session(history: SessionHistory) -> None:
    history.opened(opened(7))
    history.opened(opened(8)._replace(connection=3, stream=2**62 - 1))
    history.flush()
    assert (row().connection, row().stream) == (None, None)
    assert (row(8).connection, row(8).stream) == (3, 2**62 - 1)


def test_a_short_session_is_one_write(history: SessionHistory) -> None:
    history.opened(opened(7))
    history.progress([SessionProgress((7, None), 1, 1)])
    history.closed(SessionProgress((7, None), 1, 2), SessionReason.CLIENT_CLOSE)
    history.flush()
    assert (row().messages_in, row().close_reason) == (2, "client_close")


def test_no_sid_and_an_empty_one_are_two_sessions(history: SessionHistory) -> None:
    for sid in (None, "", "a"):
        history.opened(opened(7, sid))
    history.flush()
    history.closed(SessionProgress((7, ""), 1), SessionReason.IDLE)
    history.flush()
    ended = {each.key: bool(each.closed_at) for each in Session.objects.all()}
    assert ended == {(7, None): False, (7, ""): True, (7, "a"): False}


def test_a_row_is_written_twice_without_harm(history: SessionHistory) -> None:
    for count in (1, 2):
        history.opened(opened(7))
        history.progress([SessionProgress((7, None), 1, count)])
        history.flush()
    assert row().messages_in == 2


def test_a_session_of_an_sbd_client(history: SessionHistory) -> None:
    """One batch has sessions of SBD clients and twins; each connection of a key has its own row."""
    client = Peer("sbd", "k" * 43)
    for epoch in (5, 6):
        history.opened(SessionOpened(client, epoch, SINCE, "192.0.2.1"))
    history.opened(opened(7, epoch=5))
    assert history.flush()
    history.opened(SessionOpened(client, 5, SINCE, "192.0.2.1"))  # the answer was lost
    history.progress([SessionProgress(client, 6, 1, 2, 30, 40, drops=3)])
    history.closed(SessionProgress(client, 5, 9), "replaced")
    assert history.flush()
    first, second = Session.objects.filter(protocol="sbd").order_by("epoch")
    assert first.key == second.key == client and first.key_text == f"sbd:{client.name}"
    assert (first.twin, first.messages_in, first.close_reason) == (None, 9, "replaced")
    assert (second.messages_out, second.bytes_in, second.drops) == (2, 30, 3)
    assert second.closed_at is None and first.closed_at is not None
    assert (row().protocol, row().peer, row().closed_at) == ("rmb", "", None)
    assert services.mark_worker_lost("boot") == 2
    second.refresh_from_db()
    assert second.close_reason == SessionReason.WORKER_LOST
    history.progress([SessionProgress(client, 6, 2)])  # its worker is alive after all
    history.flush()
    second.refresh_from_db()
    assert (second.messages_in, second.closed_at) == (2, None)


@pytest.mark.parametrize("order", ["twin", "-twin"])
def test_sbd_clients_on_postgresql(
    history: SessionHistory, postgres: PostgresServer, tmp_path: Path, order: str
) -> None:
    """Pages include all rows on PostgreSQL, which sorts NULLs at the other end."""
    with in_database(postgres.make_migrated_database(f"peers{len(order)}"), tmp_path):
        for number in range(1, 4):
            history.opened(opened(number))
            history.opened(SessionOpened(Peer("sbd", f"k{number}"), number, SINCE))
        assert history.flush()
        for same in ("\0", "\ufffd"):  # stored as the same text: one row, in one statement
            history.opened(SessionOpened((9, same), 1, SINCE))
        assert history.flush()
        assert Session.objects.filter(twin=9).delete()[0] == 1
        history.opened(SessionOpened(Peer("sbd", "k1"), 1, SINCE))
        history.closed(SessionProgress(Peer("sbd", "k2"), 2, 5), "kicked")
        assert history.flush()
        found: list[str] = []
        cursor = ""
        while True:
            page = keyset.page(
                Session.objects.all(), {"twin": "twin"}, order=order, limit=2, cursor=cursor,
                nullable=["twin"],
            )  # fmt: skip
            found += [each.key_text for each in page.items]
            cursor = page.next
            if not cursor:
                break
        peers = ["sbd:k1", "sbd:k2", "sbd:k3"]
        if order == "twin":
            assert found == ["1", "2", "3", *peers]
        else:
            assert found == [*reversed(peers), "3", "2", "1"]
        assert Session.objects.get(peer="k2").messages_in == 5


@pytest.mark.parametrize(
    "fields",
    [
        {"twin": None},
        {"twin": 0},
        {"twin": 7, "peer": "k"},
        {"twin": None, "peer": "k"},
        {"protocol": "sbd", "twin": 7, "peer": "k"},
        {"protocol": "sbd", "twin": None},
    ],
    ids=str,
)
def test_rows_of_neither_a_twin_nor_another_client_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(IntegrityError):
        Session.objects.create(epoch=1, worker="boot", opened_at=timezone.now(), **fields)


def test_text_no_database_takes(history: SessionHistory) -> None:
    history.opened(SessionOpened((7, "a\0b"), 1, SINCE, "x" * 500, "\0" * 500))
    history.flush()
    history.closed(SessionProgress((7, "a\0b"), 1), SessionReason.IDLE)
    history.flush()
    assert row().sid == "a\ufffdb"
    assert row().close_reason == "idle"


def test_many_rows_go_in_several_transactions(
    history: SessionHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH_ROWS", 10)
    for twin in range(1, 36):
        history.opened(opened(twin))
    for twin in range(1, 36, 2):
        history.progress([SessionProgress((twin, None), 1, twin)])
    assert history.flush()
    assert Session.objects.count() == 35
    assert row(35).messages_in == 35


def test_what_the_database_refuses_waits(
    history: SessionHistory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "BATCH_ROWS", 2)
    for twin in (1, 2, 3, 4, 5):
        history.opened(opened(twin))
    write = SessionHistory._write
    calls = []

    def sometimes(self: SessionHistory, part: dict) -> None:  # type: ignore[type-arg]
        calls.append(len(part))
        if len(calls) == 2:
            # A report that arrives during the write is newer than the values being written.
            history.closed(SessionProgress((3, None), 1, 8), SessionReason.IDLE)
            raise OperationalError("database is locked")
        write(self, part)

    monkeypatch.setattr(SessionHistory, "_write", sometimes)
    assert not history.flush()
    assert "put off: database is locked" in caplog.text
    assert Session.objects.count() == 2
    assert history.flush()
    assert Session.objects.count() == 5
    assert (row(3).messages_in, row(3).close_reason) == (8, "idle")


def test_what_waits_is_bounded(history: SessionHistory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 2)
    for twin in (1, 2, 3):
        history.opened(opened(twin))
    history.progress([SessionProgress((1, None), 1, 5)])
    assert history.dropped == 1
    history.flush()
    assert Session.objects.count() == 2
    assert row(1).messages_in == 5


@pytest.mark.django_db(transaction=True)
def test_the_thread_writes_what_waits_when_it_is_stopped() -> None:
    history = SessionHistory("boot", 0)
    history.start()
    history.opened(opened(7))
    history.stop()
    assert row().key == (7, None)
    assert "history" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.django_db(transaction=True)
def test_a_defect_does_not_end_the_thread(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "FLUSH_S", 0.01)
    failed = threading.Event()
    write = SessionHistory._write

    def once(self: SessionHistory, part: dict) -> None:  # type: ignore[type-arg]
        if not failed.is_set():
            failed.set()
            raise ZeroDivisionError
        write(self, part)

    monkeypatch.setattr(SessionHistory, "_write", once)
    history = SessionHistory("boot", 0)
    history.start()
    history.opened(opened(1))
    assert failed.wait(10)
    history.opened(opened(2))
    history.stop()
    assert row(2).key == (2, None)
    assert "session history failed" in caplog.text


# Rows of workers that died, and old rows


def test_a_lost_worker_and_one_that_was_taken_for_lost(history: SessionHistory) -> None:
    history.opened(opened(7))
    history.flush()
    assert services.workers_with_open_rows() == {"boot"}
    assert services.mark_worker_lost("other") == 0
    assert services.mark_worker_lost("boot") == 1
    assert row().close_reason == SessionReason.WORKER_LOST
    assert services.workers_with_open_rows() == set()
    # The worker is alive after all: its next report reopens the row.
    history.progress([SessionProgress((7, None), 1, 1)])
    history.flush()
    assert (row().closed_at, row().close_reason) == (None, "")


def test_old_rows_are_removed(history: SessionHistory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "MAX_PRUNED", 3)
    for twin in range(1, 8):
        history.opened(opened(twin))
        if twin != 7:
            history.closed(SessionProgress((twin, None), 1), SessionReason.IDLE)
    history.flush()
    now = datetime.fromtimestamp(END, UTC) + timedelta(days=30)
    assert services.prune(30, now) == 0
    later = now + timedelta(seconds=1)
    assert [services.prune(30, later) for _ in range(3)] == [3, 3, 0]
    assert row(7).closed_at is None
