"""Tests of look-ups over several nodes, of which some are dead, mute or lie."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from chain import bounds
from chain.errors import ChainAwayError
from chain.rotation import Rotation
from tests.chain.following import following
from tests.chain.scripted_node import by_method, scripted_node
from tests.support.devchain import Devchain, running_devchain
from tests.support.identities import twin
from tests.support.redis_servers import free_port
from tests.support.waiting import wait_until


def _dead() -> str:
    return f"ws://127.0.0.1:{free_port()}"


@pytest.fixture
def mute() -> Iterator[str]:
    """Listen for connections and never send anything."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"ws://127.0.0.1:{listener.getsockname()[1]}"


def test_a_twin_that_is_there_and_one_that_is_not(devchain: Devchain) -> None:
    rotation = Rotation([devchain.url])
    devchain.new_blocks(3)
    found = rotation.twin(4)
    assert found is not None
    assert (found.twin.id, found.twin.account, found.height) == (4, twin(4).account, 3)
    assert rotation.twin(99) is None
    assert rotation.twin(0) is None
    assert rotation.twin_by_account(twin(4).account) == found
    assert rotation.twin_by_account(bytes(32)) is None
    assert rotation.last_twin_id() == 9
    assert rotation.head().height == 3
    assert sorted(rotation.twins([1, 2, 99]).found) == [1, 2]
    rotation.close()
    assert rotation.twin(4) == found
    rotation.close()


def test_dead_nodes_are_passed_over_once(devchain: Devchain) -> None:
    dead, deaf = _dead(), _dead()
    rotation = Rotation([dead, deaf, devchain.url])
    assert rotation.twin(1) is not None
    # The node that works remains the first choice.
    assert rotation.url == devchain.url
    assert rotation.twin(2) is not None
    assert devchain.counts()["accepted"] == 2  # one of them is the connection of the test
    rotation.close()


def test_all_dead_is_not_the_same_as_no_such_twin() -> None:
    rotation = Rotation([_dead(), _dead()])
    start = time.monotonic()
    with pytest.raises(ChainAwayError, match=r"no chain node answered: ws://.* refused; ws://"):
        rotation.twin(1)
    assert time.monotonic() - start < 5
    rotation.close()


def test_a_mute_node_costs_one_attempt(devchain: Devchain, mute: str) -> None:
    rotation = Rotation([mute, devchain.url], attempt_s=0.3)
    start = time.monotonic()
    assert rotation.twin(1) is not None
    assert 0.3 <= time.monotonic() - start < 5
    start = time.monotonic()
    assert rotation.twin(2) is not None
    assert time.monotonic() - start < 0.3
    rotation.close()


def test_all_attempts_end_in_time(mute: str) -> None:
    rotation = Rotation([mute], look_up_s=0.5, attempt_s=0.4)
    start = time.monotonic()
    with pytest.raises(ChainAwayError, match="no connection within"):
        rotation.twin(1)
    assert 0.5 <= time.monotonic() - start < 2
    rotation.close()


def test_at_most_two_attempts_for_each_node() -> None:
    asked = []

    def answer(*params: object) -> str:
        asked.append(params)
        return "nonsense"

    with ExitStack() as stack:
        script = by_method(state_queryStorageAt=answer)
        urls = [stack.enter_context(scripted_node(script)) for _ in range(3)]
        rotation = Rotation(urls)
        with pytest.raises(ChainAwayError, match="not the storage values"):
            rotation.twin(1)
        assert len(asked) == 6
        # For a short time, further look-ups do not try all nodes again.
        with pytest.raises(ChainAwayError, match="not the storage values"):
            rotation.twin(1)
        assert len(asked) == 6
        rotation.close()


def test_it_is_asked_again_after_a_pause() -> None:
    now = 100.0
    asked = []

    def answer(*params: object) -> None:
        asked.append(params)

    with scripted_node(by_method(state_queryStorageAt=answer)) as url:
        rotation = Rotation([url], clock=lambda: now)
        for _ in range(2):
            with pytest.raises(ChainAwayError):
                rotation.twin(1)
            now += bounds.AWAY_PAUSE_S
        assert len(asked) == 4
        rotation.close()


def test_a_lying_node_is_left(devchain: Devchain) -> None:
    with scripted_node(by_method(state_queryStorageAt=[{"block": 1}])) as liar:
        rotation = Rotation([liar, devchain.url])
        assert rotation.twin(1) is not None
        assert rotation.url == devchain.url
        rotation.close()


@pytest.mark.parametrize("fault", [{"failing": ["*"]}, {"held": ["*"]}, {"refuse": True}])
def test_a_fault_moves_on_and_ends(devchain: Devchain, tmp_path: Path, fault: dict) -> None:
    with running_devchain(tmp_path / "other", [twin(1), twin(50)]) as other:
        rotation = Rotation([devchain.url, other.url], attempt_s=0.5)
        assert rotation.twin(50) is None
        if fault.pop("refuse", False):
            devchain.set(refuse_connections=True)
            devchain.drop_connections()
        else:
            devchain.set(**fault)
        assert rotation.twin(50) is not None
        assert rotation.url == other.url
        other.stop()
        devchain.set(failing=[], held=[], refuse_connections=False)
        assert rotation.twin(50) is None
        rotation.close()


def test_a_node_that_comes_back(devchain: Devchain, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "chain.rotation")
    rotation = Rotation([devchain.url])
    assert rotation.twin(1) is not None
    devchain.kill()
    with pytest.raises(ChainAwayError):
        rotation.twin(1)
    devchain.start()

    def back() -> bool:
        with suppress(ChainAwayError):
            assert rotation.twin(1) is not None
            return True
        return False

    wait_until(back)
    rotation.close()
    # Each is logged once, however many look-ups there were.
    failed, answers = caplog.records
    assert failed.getMessage().startswith("chain node failed")
    assert answers.getMessage().startswith("chain node answers again")


def test_a_node_that_is_stuck_is_left(
    devchain: Devchain, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A node that answers only from an old block is replaced by one that is further ahead.

    One of the two other nodes is stuck as well.
    """
    now = 100.0
    with ExitStack() as stack:
        stuck, good = (
            stack.enter_context(running_devchain(tmp_path / name, [twin(1), twin(50)]))
            for name in ("stuck", "good")
        )
        rotation = Rotation([devchain.url, stuck.url, good.url], clock=lambda: now)
        devchain.new_blocks(2)
        assert rotation.twin(50) is None
        now += bounds.STILL_S
        devchain.new_blocks(1)
        assert rotation.twin(50) is None, "it has a new block"
        now += bounds.STILL_S - 1
        assert rotation.twin(50) is None
        assert rotation.url == devchain.url
        now += 1
        assert rotation.twin(50) is None, "the next one is no further"
        assert rotation.url == devchain.url
        good.new_blocks(9)
        assert rotation.twin(50) is None, "for a while"
        now += bounds.STILL_S
        found = rotation.twin(50)
        assert found is not None and found.height == 9
        assert rotation.url == good.url
        # If all nodes are stuck, the one that is furthest ahead stays in use.
        for _ in range(4):
            now += bounds.STILL_S
            assert rotation.twin(50) == found
            assert rotation.url == good.url
        assert [record.getMessage() for record in caplog.records] == [
            f"chain node left, stuck at block 3: {devchain.url}"
        ]
        rotation.close()


def test_an_answer_outlives_the_nodes_it_is_compared_with(
    devchain: Devchain, mute: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node's answer is used even if none of the nodes it is compared with answers in time."""
    rotation = Rotation([devchain.url, f"{mute}/a", f"{mute}/b"], look_up_s=0.5, attempt_s=0.4)
    assert rotation.twin(1) is not None
    monkeypatch.setattr(bounds, "STILL_S", 0.0)
    assert rotation.twin(1) is not None
    monkeypatch.undo()
    assert rotation.twin(1) is not None
    assert rotation.url == devchain.url
    rotation.close()


def test_a_node_that_is_behind_is_passed_over(devchain: Devchain, tmp_path: Path) -> None:
    with running_devchain(tmp_path / "other", [twin(1), twin(50)]) as other:
        rotation = Rotation([devchain.url, other.url])
        rotation.floor = other.new_blocks(3)
        assert sorted(each.id for page in rotation.pages() for each in page.twins) == [1, 50]
        assert rotation.url == other.url
        rotation.floor += 1
        with pytest.raises(ChainAwayError, match="at block 3, behind block 4"):
            rotation.twin(50)
        rotation.close()


def test_pages_go_on_with_another_node(tmp_path: Path) -> None:
    with (
        running_devchain(tmp_path / "a", made_up_twins=1200) as first,
        running_devchain(tmp_path / "b", made_up_twins=1200) as second,
    ):
        rotation = Rotation([first.url, second.url])
        pages = rotation.pages()
        found = [next(pages)]
        first.kill()
        found += pages
        assert [len(page.twins) for page in found] == [500, 500, 200]
        ids = sorted(each.id for page in found for each in page.twins)
        assert ids == list(range(1, 1201))
        # A later run continues where this one ended.
        (rest,) = rotation.pages(found[1].next_key)
        assert rest == found[2]
        assert list(rotation.pages(rest.next_key)) == []
        rotation.close()


def test_threads_take_turns(devchain: Devchain) -> None:
    rotation = Rotation([devchain.url])
    wrong: list[object] = []

    def ask() -> None:
        for number in range(1, 10):
            found = rotation.twin(number)
            if found is None or found.twin.id != number:
                wrong.append(found)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert devchain.counts()["accepted"] == 2
    rotation.close()


def test_who_waits_for_others_waits_no_longer_than_a_look_up(devchain: Devchain) -> None:
    rotation = Rotation([devchain.url], look_up_s=0.3)
    devchain.set(held=["*"])
    with rotation._lock, pytest.raises(ChainAwayError, match="other look-ups"):
        rotation.twin(1)
    rotation.close()


def test_who_had_no_time_left_does_not_call_the_chain_away(devchain: Devchain) -> None:
    """A look-up that spent its time waiting for others does not mark the chain as unavailable."""
    times = iter((0.0, 0.0, 12.0))
    rotation = Rotation([devchain.url], clock=lambda: next(times, 12.0))
    with pytest.raises(ChainAwayError, match="other look-ups have been waiting"):
        rotation.twin(1)
    assert rotation.twin(1) is not None
    rotation.close()


@pytest.mark.parametrize("urls", [[], ["tcp://x"], ["wss://"]])
def test_addresses_are_checked(urls: list[str]) -> None:
    with pytest.raises(ValueError, match="chain node"):
        Rotation(urls)


@pytest.mark.parametrize(
    "url",
    [
        "tcp://user:hidden@node.example",
        "wss://user:hidden@",
        "wss://user:hidden\u2100@node.example",
        "wss://user:hid/den@node.example",
        "user:hidden@node.example",
    ],
)
def test_an_error_of_an_address_repeats_no_secret(url: str) -> None:
    with pytest.raises(ValueError, match="chain node") as told:
        Rotation([url])
    assert "hid" not in str(told.value)


def test_secrets_in_an_address_are_shown_nowhere(
    devchain: Devchain, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    dead = f"ws://user:hidden@127.0.0.1:{free_port()}/hidden?key=hidden"
    good = f"ws://user:hidden@{devchain.url.removeprefix('ws://')}/hidden"
    rotation = Rotation([dead, good])
    rotation.twin(1)
    assert rotation.url == devchain.url
    with following(dead, good) as running:
        running.wait(lambda _, progress: progress.url == devchain.url)
        assert "hidden" not in running.follower.progress.last_error
    devchain.set(held=["*"])
    with pytest.raises(ChainAwayError) as told:
        rotation.twin(2)
    assert "hidden" not in str(told.value)
    rotation.close()
    assert "refused" in caplog.text and "hidden" not in caplog.text
