"""The import of all twins: its pages, continuing after a kill, and starting over after a flush."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from proto.chain.twin import Twin as ChainTwin
from relay.ops.lease import Lease
from relay.ops.redis_client import client
from relay.queues import keys
from relay.twins import chain_import, chain_state, mirror, tasks
from relay.twins.chain_state import Import
from relay.twins.models import Twin
from tests.relay.twins.conftest import UseChain
from tests.support.devchain import Devchain, running_devchain
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)

TWINS = 1200
PAGES = 3


class Killed(Exception):
    """A stand-in for the end of the process: no code after it runs."""


@pytest.fixture
def large(tmp_path: Path, site_redis: RedisServer, use_chain: UseChain) -> Iterator[Devchain]:
    """Run a node with enough twins to fill three pages."""
    with running_devchain(tmp_path / "chain", made_up_twins=TWINS) as node:
        node.new_blocks(3)
        use_chain(node.url)
        chain_import.want()
        yield node


def state() -> Import:
    return chain_state.read(client()).imported


def test_all_twins_come_in_pages(large: Devchain) -> None:
    told: list[int] = []
    assert state().needed
    assert chain_import.import_twins(lambda progress: told.append(progress.twins))
    assert told == [500, 1000, TWINS]
    done = state()
    assert not done.needed and not done.running and not done.leased
    assert (done.twins, done.newest_id, done.error) == (TWINS, TWINS, "")
    assert Twin.objects.filter(source=Twin.Source.CHAIN).count() == TWINS
    assert 0 < done.began <= done.ended


def test_a_killed_import_goes_on_where_it_was(large: Devchain) -> None:
    def die(progress: Import) -> None:
        raise Killed

    with pytest.raises(Killed):
        chain_import.import_twins(die)
    stopped = state()
    assert stopped.running and stopped.needed and stopped.twins == 500
    pages = large.requests("state_getKeysPaged")
    assert chain_import.import_twins()
    # Two pages, and the empty page after the last one.
    assert large.requests("state_getKeysPaged") == pages + PAGES
    assert state().twins == TWINS == Twin.objects.count()
    assert state().height == stopped.height


def test_a_flush_meanwhile_begins_it_again(large: Devchain) -> None:
    flushed: list[int] = []

    def flush_once(progress: Import) -> None:
        if not flushed:
            flushed.append(progress.twins)
            mirror.mark_stale(large.new_blocks())
            chain_import.want()

    assert chain_import.import_twins(flush_once)
    assert state().number == state().wanted == 2
    assert Twin.objects.filter(stale_since__isnull=True).count() == TWINS


def test_a_node_behind_the_flush_is_not_believed(large: Devchain) -> None:
    """The import rejects a node whose block precedes the flush.

    A twin may have changed between that block and the flush, and the import would miss the change.
    """
    client().hset(keys.CHAIN, "flushed", large.new_blocks() + 2)
    assert not chain_import.import_twins()
    assert "behind block" in state().error and state().needed
    assert Twin.objects.count() == 0
    large.new_blocks(2)
    assert chain_import.import_twins()
    assert Twin.objects.count() == TWINS


def test_twins_of_another_chain_are_dropped(large: Devchain) -> None:
    mirror.keep_read([ChainTwin(90_000, bytes(range(32)), b"gone.example")], 0)
    mirror.mark_stale(0)
    assert chain_import.import_twins()
    assert not Twin.objects.filter(id=90_000).exists()


def test_a_chain_that_is_away_is_waited_for(
    large: Devchain, caplog: pytest.LogCaptureFixture
) -> None:
    large.stop()
    assert not chain_import.import_twins()
    assert not chain_import.import_twins()
    assert "no chain node answered" in state().error
    assert caplog.text.count("the import of twins waits for the chain") == 1
    large.start()
    assert chain_import.import_twins()
    assert state().error == ""


def test_one_import_at_a_time(large: Devchain) -> None:
    other = Lease(client(), keys.CHAIN_IMPORT_LEASE)
    assert other.take()
    assert state().leased
    assert not chain_import.import_twins()
    assert Twin.objects.count() == 0


def test_the_watch_starts_what_should_run(chain: Devchain, started: list[str]) -> None:
    tasks.watch()
    assert started == ["chain.follow"], "an import is not wanted before the first block"
    started.clear()
    chain_import.want()
    client().set(keys.CHAIN_LEASE, "somebody")
    tasks.watch()
    assert started == ["chain.import_twins"]
    started.clear()
    client().set(keys.CHAIN_IMPORT_LEASE, "somebody")
    tasks.watch()
    assert started == []


def test_the_watch_without_redis(no_redis: None, started: list[str]) -> None:
    tasks.watch()
    assert started == []
