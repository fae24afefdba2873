"""Tests of the follower against a test node with every kind of fault."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from chain import bounds
from chain.client import Twins
from chain.head import Head
from chain.rotation import Rotation
from proto.chain.headers import from_hex
from tests.chain.following import WAIT_S, following
from tests.support.devchain import Devchain, as_json, running_devchain
from tests.support.identities import twin
from tests.support.redis_servers import free_port
from tests.support.waiting import wait_until


def _head(devchain: Devchain) -> Head:
    """Return the newest block of the node."""
    block_hash = devchain.call("chain_getBlockHash")
    number = devchain.call("chain_getHeader", [block_hash])["number"]
    return Head(int(number, 16), from_hex("hash", block_hash, 32))


def test_changes_are_told_as_they_happen(devchain: Devchain) -> None:
    with following(devchain.url) as running:
        running.wait_for_head(0)
        devchain.put_twin(twin(3), "r1.example_r2.example", pk=b"0x41414141")
        mirror = running.wait_for_head(1)
        kept = mirror.kept[3][0]
        assert kept is not None
        assert (kept.relay, kept.pk) == (b"r1.example_r2.example", b"0x41414141")
        assert kept.account == twin(3).account
    assert mirror.flushes == [0]


def test_heads_that_are_not_announced(devchain: Devchain) -> None:
    devchain.set(announce_every=3)
    with following(devchain.url) as running:
        running.wait_for_head(0)
        for number in range(7):
            devchain.put_twin(twin(1), f"r{number}.example")
        devchain.new_blocks(2)
        mirror = running.wait_for_head(9)
    assert [relay for _, relay, _ in mirror.changed] == [b"r%d.example" % n for n in range(7)]
    assert mirror.flushes == [0]


@pytest.mark.parametrize(("missed", "flushes"), [(1, 0), (600, 0), (601, 1), (5000, 1)])
def test_catching_up(devchain: Devchain, missed: int, flushes: int) -> None:
    start = _head(devchain)
    devchain.put_twin(twin(1), "first.example")
    if missed > 2:
        devchain.new_blocks(missed - 2)
    if missed > 1:
        devchain.put_twin(twin(2), "last.example")
    with following(devchain.url, start=start) as running:
        mirror = running.wait_for_head(missed)
        devchain.put_twin(twin(3), "live.example")
        running.wait_for_head(missed + 1)
    assert len(mirror.flushes) == flushes
    told = [number for number, _, _ in mirror.changed]
    assert told == ([3] if flushes else [1, 2, 3] if missed > 1 else [1, 3])


def test_blocks_made_faster_than_they_are_told(devchain: Devchain) -> None:
    with following(devchain.url) as running:
        running.wait_for_head(0)
        devchain.new_blocks(200, every=True)
        devchain.put_twin(twin(1), "last.example")
        mirror = running.wait_for_head(201)
        assert running.follower.progress.blocks == 201
    assert mirror.flushes == [0]


def test_a_node_that_discarded_the_state(devchain: Devchain) -> None:
    start = _head(devchain)
    devchain.put_twin(twin(1), "missed.example")
    devchain.new_blocks(299)
    devchain.set(states_kept=256)
    with following(devchain.url, start=start) as running:
        mirror = running.wait_for_head(300)
        devchain.put_twin(twin(2), "live.example")
        running.wait_for_head(301)
    assert mirror.flushes == [300]
    assert [number for number, _, _ in mirror.changed] == [2]


def test_a_stall_ends_with_another_connection(devchain: Devchain) -> None:
    with following(devchain.url, stall_s=0.5) as running:
        running.wait_for_head(0)
        devchain.set(mute_heads=True)
        devchain.put_twin(twin(1), "unheard.example")
        # The first head on the new connection is the block that was not announced on the old one.
        mirror = running.wait_for_head(1)
        assert "no new block" in running.follower.progress.last_error
        assert running.follower.progress.connections > 1
    assert mirror.flushes == [0]
    assert mirror.changed == [(1, b"unheard.example", 1)]


def test_a_fork(devchain: Devchain) -> None:
    with following(devchain.url) as running:
        running.wait_for_head(0)
        devchain.put_twin(twin(1), "stays.example")
        devchain.put_twin(twin(1), "fork.example")
        devchain.put_twin(twin(10), "fork.example")
        mirror = running.wait_for_head(3)
        devchain.fork(depth=2, reinclude=False)
        running.wait(lambda mirror, progress: progress.forks == 1)
        running.wait_for_head(4)
        assert mirror.kept[10][0] is None
        kept = mirror.kept[1][0]
        assert kept is not None
        assert kept.relay == b"stays.example"
        devchain.put_twin(twin(1), "after.example")
        running.wait_for_head(5)
        assert mirror.changed[-1][1] == b"after.example"
    assert mirror.flushes == [0]


def test_a_fork_deeper_than_what_is_remembered(devchain: Devchain) -> None:
    with following(devchain.url) as running:
        running.wait_for_head(0)
        devchain.new_blocks(100)
        running.wait_for_head(100)
        devchain.fork(depth=90)
        mirror = running.wait_for_head(101)
    assert mirror.flushes == [0, 101]


def test_a_dropped_connection(devchain: Devchain) -> None:
    with following(devchain.url) as running:
        running.wait_for_head(0)
        for number in range(3):
            devchain.drop_connections()
            devchain.put_twin(twin(1), f"r{number}.example")
            running.wait_for_head(number + 1)
        assert running.follower.progress.connections >= 3
        mirror = running.mirror
    assert [relay for _, relay, _ in mirror.changed] == [b"r%d.example" % n for n in range(3)]
    assert mirror.flushes == [0]


def test_slow_answers(devchain: Devchain) -> None:
    devchain.set(delay_s=0.3)
    with following(devchain.url) as running:
        running.wait_for_head(0)
        devchain.put_twin(twin(1), "slow.example")
        mirror = running.wait_for_head(1)
    assert mirror.flushes == [0]


def test_a_twin_updated_while_a_look_up_is_in_flight(devchain: Devchain) -> None:
    rotation = Rotation([devchain.url])
    answers: list[Twins] = []
    look_up = threading.Thread(target=lambda: answers.append(rotation.twins([1])))
    with following(devchain.url) as running:
        running.wait_for_head(0)
        devchain.set(held=["state_queryStorageAt"])
        look_up.start()
        wait_until(lambda: devchain.requests("state_queryStorageAt") == 1, WAIT_S)
        devchain.put_twin(twin(1), "new.example")
        mirror = running.wait_for_head(1)
        devchain.set(held=[])
        look_up.join()
        ((head, found),) = answers
        assert (head.height, found[1].relay) == (0, b"localhost")
        mirror.looked_up(1, found[1], head.height)
        kept = mirror.kept[1][0]
        assert kept is not None
        assert kept.relay == b"new.example"
    rotation.close()


@pytest.mark.parametrize("method", ["state_getStorage", "chain_subscribeNewHeads"])
def test_errors_of_the_node(devchain: Devchain, method: str) -> None:
    with following(devchain.url) as running:
        running.wait_for_head(0)
        devchain.set(failing=[method])
        devchain.put_twin(twin(1), "later.example")
        devchain.drop_connections()
        running.wait(lambda _, progress: "Internal error" in progress.last_error)
        devchain.set(failing=[])
        mirror = running.wait_for_head(1)
    assert mirror.changed == [(1, b"later.example", 1)]
    assert mirror.flushes == [0]


def test_an_answer_that_never_comes(devchain: Devchain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "CALL_S", 0.5)
    with following(devchain.url) as running:
        running.wait_for_head(0)
        devchain.set(held=["state_getStorage"])
        devchain.put_twin(twin(1), "late.example")
        running.wait(lambda _, progress: "no answer in time" in progress.last_error)
        devchain.set(held=[])
        mirror = running.wait_for_head(1)
    assert mirror.changed == [(1, b"late.example", 1)]
    assert mirror.flushes == [0]


def test_a_restart_of_the_node(devchain: Devchain) -> None:
    with following(devchain.url) as running:
        running.wait_for_head(0)
        devchain.put_twin(twin(1), "before.example")
        devchain.kill()
        running.wait(lambda _, progress: progress.url == "")
        devchain.start()
        devchain.put_twin(twin(1), "after.example")
        mirror = running.wait_for_head(2)
    assert [relay for _, relay, _ in mirror.changed] == [b"before.example", b"after.example"]
    assert mirror.flushes == [0]


def test_the_next_node_takes_over(devchain: Devchain, tmp_path: Path) -> None:
    dead = f"ws://127.0.0.1:{free_port()}"
    with (
        running_devchain(tmp_path / "other", [twin(1)]) as other,
        following(dead, devchain.url, other.url) as running,
    ):
        running.wait(lambda _, progress: progress.url == devchain.url)
        devchain.put_twins([as_json(twin(number), "many.example") for number in range(1, 10)])
        running.wait_for_head(1)
        devchain.stop()
        running.wait(lambda _, progress: progress.url == other.url)
        # It is a different chain, so all known twins are stale.
        other.new_blocks(2)
        mirror = running.wait(lambda mirror, _: len(mirror.flushes) == 2)
        assert mirror.stale == set(range(1, 10))
