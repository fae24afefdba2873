"""The site's database on PostgreSQL: a relay's whole life, and a database that fails."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from tests.support.devchain import running_devchain
from tests.support.identities import Twin, twin, twins_csv
from tests.support.on_chain import chain_relay, let_in, wait_for_follower
from tests.support.postgres_server import PostgresServer
from tests.support.redis_servers import RedisServer
from tests.support.relay_process import RelayProcess, run_command
from tests.support.rmb_client import connect, session
from tests.support.waiting import eventually

# History is written every two seconds; changes of twins are live within one.
WRITTEN_TIMEOUT_S = 60.0
TWINS = [twin(number) for number in range(41_001, 41_006)]

KEEP_MINUTES = """
import json
from relay.history import keeping
hour = 1_800_000_000
seconds = [(at, {"sessions": at // 60 % 2 + 1.0}) for at in range(hour, hour + 3660, 10)]
def read(low, high):
    return [(at, values) for at, values in seconds if low <= at <= high]
keeping.Point.objects.filter(at__gte=hour).delete()
keeping.roll_up_minutes(read, hour - 60, hour + 1000)
for _ in range(2):
    keeping.roll_up_minutes(read, hour, hour + 3603)
    keeping.roll_up_hours(hour - 7200, hour + 3603)
minutes = keeping.stored(60, hour, hour + 7200)
hours = keeping.stored(3600, hour, hour + 7200)
print(json.dumps({60: len(minutes), 3600: [[at, values["sessions"]] for at, values in hours]}))
"""

_databases = itertools.count()


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    """Return the URL of a database with empty tables."""
    return postgres.make_migrated_database(f"relay{next(_databases)}")


def _manage(folder: Path, database: str, *arguments: str) -> str:
    settings = {"database.url": database, "redis.url": "redis://127.0.0.1:1"}
    done = run_command(folder, *arguments, settings=settings)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def _fill(folder: Path, database: str, twins: list[Twin]) -> None:
    source = folder / "twins.csv"
    source.write_text(twins_csv(twins))
    _manage(folder, database, "rmb_twin", "import", str(source))


def _rows(relay: RelayProcess, postgres: PostgresServer, number: int) -> list[Any]:
    name = relay.settings["database.url"].rpartition("/")[2]
    with postgres.connect(name) as connection:
        return connection.execute(
            "SELECT sid, closed_at IS NULL, close_reason, messages_in FROM relay_sessions_session"
            " WHERE twin = %s ORDER BY epoch",
            (number,),
        ).fetchall()


async def test_a_relay_on_postgresql(
    start_relay: Any, postgres: PostgresServer, database: str, tmp_path: Path
) -> None:
    one, two, three, late, _ = TWINS
    _fill(tmp_path, database, [one, two, three])
    relay = start_relay(settings={"database.url": database}, processes=2, operator_site=True)
    assert f"PostgreSQL 127.0.0.1/{database.rpartition('/')[2]}" in relay.log()
    async with (
        session(relay.url, one, "nul\0and\N{SNOWMAN}") as sender,
        session(relay.url, two) as receiver,
    ):
        await sender.request(receiver.key, b"hello")
        assert (await receiver.receive()).plain == b"hello"
        await eventually(lambda: _rows(relay, postgres, one.id), WRITTEN_TIMEOUT_S)
        assert _rows(relay, postgres, one.id)[0][:2] == ("nul\ufffdand\N{SNOWMAN}", True)

        # A twin that is added while the relay runs, and one that is removed.
        settings = {"database.url": database, "redis.url": relay.redis_url}
        account = f"0x{late.account.hex()}"
        added = run_command(
            relay.folder, *("rmb_twin", "add", str(late.id), account, "--relays", "localhost"),
            settings=settings,
        )  # fmt: skip
        assert added.returncode == 0, added.stderr
        async with session(relay.url, late) as client:
            await client.barrier()
        removed = run_command(relay.folder, "rmb_twin", "remove", str(three.id), settings=settings)
        assert removed.returncode == 0, removed.stderr

        async def refused() -> bool:
            try:
                await (await connect(relay.url, three)).abort()
            except InvalidStatus:
                return True
            return False

        await eventually(refused, 2)
        assert relay.get("/admin/login/", admin=True)[0] == 200

    def closed() -> bool:
        ((_, still_open, reason, received),) = _rows(relay, postgres, one.id)
        return (still_open, reason, received) == (False, "client_close", 1)

    await eventually(closed, WRITTEN_TIMEOUT_S, "the end in the history")
    listed = _manage(tmp_path, database, "rmb_twin", "list", "--json")
    assert {int(entry["id"]) for entry in json.loads(listed)} == {one.id, two.id, late.id}
    # The history of figures: a minute is stored once, whichever worker is first, and hours are made
    # of minutes.
    kept = _manage(tmp_path, database, "shell", "-v", "0", "-c", KEEP_MINUTES)
    assert json.loads(kept.splitlines()[-1]) == {"60": 60, "3600": [[1_800_000_000, 1.5]]}


async def test_the_mirror_of_the_chain_on_postgresql(
    start_server: Any, postgres: PostgresServer, database: str, tmp_path: Path
) -> None:
    one, two, late, *_ = TWINS
    with running_devchain(tmp_path / "chain", (one, two), block_time_s=0.25) as chain:
        relay = chain_relay(tmp_path / "relay", start_server(), chain, database__url=database)
        name = database.rpartition("/")[2]

        def mirrored() -> dict[int, tuple[str, str]]:
            with postgres.connect(name) as connection:
                rows = connection.execute("SELECT id, relays, source FROM relay_twins_twin")
                return {number: (relays, source) for number, relays, source in rows}

        try:
            wait_for_follower(relay.start())
            local = (one.relays, "chain")
            await eventually(lambda: mirrored() == {one.id: local, two.id: local})
            chain.put_twin(late)
            chain.put_twin(one, "b1.example_a1.example")
            moved = ("a1.example_b1.example", "chain")
            await eventually(
                lambda: mirrored() == {one.id: moved, two.id: local, late.id: local}, 10
            )
            assert await let_in(relay, late)
            chain.stop()
            assert await let_in(relay, two), "the mirror knows it"
        finally:
            relay.show_new_log()
            relay.stop()


async def test_a_database_that_goes_away(
    start_relay: Any, postgres: PostgresServer, database: str, tmp_path: Path
) -> None:
    one, two, *_ = TWINS
    _fill(tmp_path, database, [one, two])
    relay = start_relay(settings={"database.url": database})
    async with session(relay.url, two) as receiver:
        async with session(relay.url, one, "first") as sender:
            await sender.request(receiver.key, b"before")
            await receiver.receive()
        postgres.stop()
        try:
            # Both twins are cached: the sessions do not notice.
            async with session(relay.url, one, "second") as sender:
                await sender.request(receiver.key, b"meanwhile")
                assert (await receiver.receive()).plain == b"meanwhile"
        finally:
            postgres.start()

        def written() -> bool:
            found = {sid: still_open for sid, still_open, *_ in _rows(relay, postgres, one.id)}
            return found == {"first": False, "second": False}

        await eventually(written, WRITTEN_TIMEOUT_S, "what waited for the database")
    assert "Traceback" not in relay.log()


def test_tables_are_the_operators(
    valkey: RedisServer, postgres: PostgresServer, tmp_path: Path
) -> None:
    database = postgres.make_database("without_tables")
    done = run_command(
        tmp_path,
        *("runrelay", "--domain", "localhost", "--twins", "registry", "--listen", "127.0.0.1:0"),
        settings={"database.url": database, "redis.url": valkey.url, "admin.listen": ""},
    )
    assert done.returncode == 2
    assert "manage.py migrate" in done.stderr
    assert "Traceback" not in done.stderr
