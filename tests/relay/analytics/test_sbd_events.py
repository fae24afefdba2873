"""Events recorded for SBD: each packet once, with the keys of both ends, up to Parquet."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from proto.sbd.errors import DropReason
from proto.sbd.frames import path_of_key
from relay.analytics import journal as journals
from relay.analytics import lost_sessions, places, records
from relay.analytics.conversion import convert
from relay.analytics.journal import Journal, Rhythm
from relay.analytics.lake import Lake
from relay.analytics.lost_sessions import Lost
from relay.analytics.places import Places
from relay.analytics.records import OTHER
from relay.analytics.sbd_events import ROWS_AT_ONCE, SbdEvents
from relay.analytics.segments import OPEN_SUFFIX, recover
from relay.analytics.uids import sbd_session_uid
from relay.analytics.writer import BUFFER_RECORDS, SegmentWriter
from relay.sbd.options import EndReason, SbdOptions
from relay.sbd.switch import Switch
from tests.relay.analytics import segment_files as made
from tests.support.recorded import Row, as_signed, rows, rows_of

NOW = 1_800_000_000.0
NOW_US = 1_800_000_000_000_000
ALICE, BOB, CAROL = (bytes([number]) * 32 for number in (1, 2, 3))
TEXTS = {key: path_of_key(key) for key in (ALICE, BOB, CAROL)}


class Socket:
    """A socket, as far as a connection uses it."""

    remote = "192.0.2.1"

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.waiting_bytes = 0

    def send_messages(self, messages: list[bytes]) -> None:
        self.sent += messages

    def buffered_bytes(self) -> int:
        return self.waiting_bytes

    def abort(self) -> None:
        pass


class Scene:
    """The switch of the only worker, and its journal.

    Attributes:
        now: Unix time, in seconds.
    """

    def __init__(self, folder: Path) -> None:
        self.now = NOW
        self.folder = folder
        writer = SegmentWriter(Places(folder), "a.example", "worker-0")
        self.journal = Journal(writer, lambda: self.now, Rhythm(flush_s=3600, segment_s=3600))
        self.journal.start()
        self.switch = Switch(SbdOptions(), asyncio.get_running_loop())
        self.switch.recorder = SbdEvents("boot", self.journal)

    def open(self, key: bytes) -> tuple[Any, Any]:
        socket: Any = Socket()
        connection = self.switch.open(key, bytes(32), socket, "192.0.2.1")
        connection.opened_at = self.now
        return connection, socket

    def connect(self, key: bytes, epoch: int = 0) -> Any:
        connection, _ = self.open(key)
        connection.epoch = epoch
        self.switch.authenticated(connection)
        return connection

    async def rows(self) -> list[Row]:
        await self.journal.close()
        return rows(self.folder)


@pytest.fixture
async def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def told(found: list[Row], *kinds: str) -> Counter[tuple[Any, ...]]:
    return Counter(
        (row.kind, row.reason, row.source_key, row.destination_key, row.size_bytes)
        for row in found
        if row.kind in kinds
    )


async def test_each_packet_has_one_row_and_a_lost_one_a_second(scene: Scene) -> None:
    alice, bob = scene.connect(ALICE), scene.connect(BOB)
    scene.switch.forward(alice, [BOB + b"one", CAROL + b"nobody", BOB, ALICE + bytes(500)])
    scene.switch.forward(bob, [ALICE + b"two"])
    found = await scene.rows()
    packets = [row for row in found if not row.kind.startswith("session")]
    assert {row.protocol for row in found} == {"sbd"}
    assert {(row.at_us, row.uid, row.session, row.latency_us, row.remote) for row in packets} == {
        (NOW_US, 0, "", None, None)
    }
    assert told(found, "accepted", "delivered", "dropped") == Counter(
        [
            ("accepted", "none", TEXTS[ALICE], TEXTS[BOB], 35),
            ("accepted", "none", TEXTS[ALICE], TEXTS[BOB], 32),
            ("accepted", "none", TEXTS[ALICE], TEXTS[CAROL], 38),
            ("accepted", "none", TEXTS[ALICE], TEXTS[ALICE], 532),
            ("accepted", "none", TEXTS[BOB], TEXTS[ALICE], 35),
            ("dropped", "absent", TEXTS[ALICE], TEXTS[CAROL], 38),
        ]
    )


async def test_connections_have_two_rows_once_their_key_is_proven(scene: Scene) -> None:
    refused, _ = scene.open(CAROL)
    refused.end(DropReason.BAD_SIGNATURE)
    alice = scene.connect(ALICE)
    scene.now += 2
    newer = scene.connect(ALICE, epoch=77)
    scene.now += 1
    newer.closed(1000, None)
    opened = [row for row in await scene.rows() if row.kind == "session_open"]
    closed = {row.uid: row for row in rows(scene.folder) if row.kind == "session_close"}
    assert [row.at_us for row in opened] == [NOW_US, NOW_US + 2_000_000]
    uids = [as_signed(sbd_session_uid("boot", ALICE, epoch)) for epoch in (NOW_US, 77)]
    assert [row.uid for row in opened] == uids
    ends = [(closed[row.uid].reason, closed[row.uid].latency_us) for row in opened]
    assert ends == [("replaced", 2_000_000), ("client_close", 1_000_000)]
    assert {(row.source_key, row.destination_key, row.source) for row in opened} == {
        (TEXTS[ALICE], None, None)
    }
    assert len(closed) == 2 and alice.ended


async def test_what_a_slow_reader_does_not_get_is_lost_with_its_connection(scene: Scene) -> None:
    alice = scene.connect(ALICE)
    bob, socket = scene.open(BOB)
    scene.switch.authenticated(bob)
    socket.waiting_bytes = SbdOptions().receiver_bytes + 1
    scene.switch.forward(alice, [BOB + b"x"])
    scene.switch.stop()
    found = await scene.rows()
    assert told(found, "dropped") == {("dropped", "slow_reader", TEXTS[ALICE], TEXTS[BOB], 33): 1}
    ends = {row.source_key: row.reason for row in found if row.kind == "session_close"}
    assert ends == {TEXTS[BOB]: "slow_reader", TEXTS[ALICE]: "drained"}


async def test_more_packets_at_once_than_a_buffer_has_rows(scene: Scene) -> None:
    alice, count = scene.connect(ALICE), BUFFER_RECORDS + ROWS_AT_ONCE + 1
    scene.switch.forward(alice, [CAROL] * count)
    found = await scene.rows()
    assert told(found, "accepted", "dropped") == {
        ("accepted", "none", TEXTS[ALICE], TEXTS[CAROL], 32): count,
        ("dropped", "absent", TEXTS[ALICE], TEXTS[CAROL], 32): count,
    }
    assert scene.journal.counts()[: len(records.KINDS)] == [
        {"accepted": count, "dropped": count, "session_open": 1}.get(kind, 0)
        for kind in records.KINDS
    ]


async def test_numbers_of_keys_are_those_of_their_segment(scene: Scene, tmp_path: Path) -> None:
    scene.journal._rhythm = Rhythm(flush_s=3600, segment_bytes=1)
    alice, bob = scene.connect(ALICE), scene.connect(BOB)
    scene.journal.flush()  # closes the segment
    scene.switch.forward(bob, [CAROL])
    scene.journal.flush()
    scene.switch.forward(alice, [BOB])
    found = await scene.rows()
    assert len(list(tmp_path.glob("segments/*.seg"))) == 3
    assert told(found, "accepted") == {
        ("accepted", "none", TEXTS[BOB], TEXTS[CAROL], 32): 1,
        ("accepted", "none", TEXTS[ALICE], TEXTS[BOB], 32): 1,
    }


async def test_keys_are_bounded(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "MAX_KEYS", 4)
    alice = scene.connect(ALICE)
    scene.switch.forward(alice, [BOB, CAROL, bytes([4]) * 32, BOB])
    found = told(await scene.rows(), "accepted")
    assert {target: count for (*_, target, _), count in found.items()} == {TEXTS[BOB]: 2, OTHER: 2}


async def test_sessions_of_a_dead_worker_end_with_its_segment(scene: Scene) -> None:
    scene.connect(ALICE)
    scene.connect(BOB).closed(1000, None)
    await scene.journal.close()
    (path,) = scene.folder.glob("segments/*.seg")
    path.rename(path.with_name(path.name.removesuffix(".seg") + OPEN_SUFFIX))
    found = recover(path.with_name(path.name.removesuffix(".seg") + OPEN_SUFFIX))
    assert found is not None and found.path is not None
    ends = {row.source_key: row for row in rows_of(found.path) if row.kind == "session_close"}
    assert {key: row.reason for key, row in ends.items()} == {
        TEXTS[ALICE]: "worker_lost",
        TEXTS[BOB]: "client_close",
    }
    assert ends[TEXTS[ALICE]].protocol == "sbd"


def test_the_end_of_a_lost_session_finds_its_opening(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "configured", lambda: Places(tmp_path))
    lost = [
        Lost("boot", ALICE, 17, NOW_US, NOW_US + 5),
        Lost("boot", (7, "x"), 1, NOW_US, NOW_US + 7),
    ]
    lost_sessions.record(settings.RMB, lost)
    sbd, rmb = rows(tmp_path)
    assert sbd.uid == as_signed(sbd_session_uid("boot", ALICE, 17))
    assert (sbd.kind, sbd.reason, sbd.source_key, sbd.latency_us, sbd.at_us) == (
        *("session_close", "worker_lost"),
        *(TEXTS[ALICE], 5, NOW_US + 5),
    )
    assert (rmb.source, rmb.session, rmb.source_key) == (7, "x", None)


async def test_parquet_has_keys_beside_twins(scene: Scene) -> None:
    scene.switch.forward(scene.connect(ALICE), [BOB])
    scene.journal.put(records.Kind.ACCEPTED, NOW_US, 5, 7, 9, "phone")
    await scene.journal.close()
    lake = Lake(scene.folder)
    (path,) = scene.folder.glob("segments/*.seg")
    convert(lake, path)
    names = ("protocol", "src_twin", "dst_twin", "src_session", "src_key", "dst_key", "uid")
    found = [tuple(row[name] for name in names) for row in made.rows(lake)]
    uid = as_signed(sbd_session_uid("boot", ALICE, NOW_US))
    assert found == [
        ("sbd", None, None, "", TEXTS[ALICE], None, uid),
        ("sbd", None, None, "", TEXTS[ALICE], TEXTS[BOB], 0),
        ("sbd", None, None, "", TEXTS[ALICE], TEXTS[BOB], 0),
        ("rmb", 7, 9, "phone", None, None, 5),
    ]
    assert sorted(row["kind"] for row in made.rows(lake)) == [
        *("accepted", "accepted", "dropped", "session_open"),
    ]


def test_reasons_of_ends_have_numbers() -> None:
    assert all(reason in records.REASON_CODE for reason in (*EndReason, *DropReason))
