"""The cache of twins, and the sources file and chain; `test_rest_twins` tests the registry."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from peer import twins
from peer.errors import TwinsAwayError
from peer.twin_sources.chain import ChainTwins
from peer.twin_sources.file import LOOK_S, FileTwins
from peer.twins import Twin, TwinCache, open_source
from tests.support.devchain import Devchain, running_devchain
from tests.support.identities import twin, twins_csv
from tests.support.redis_servers import free_port
from tests.support.waiting import eventually


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Source:
    """Knows the twins it is given; answers when `open` is set."""

    def __init__(self, *known: int) -> None:
        self.known = {number: Twin(number, bytes(32), None, ()) for number in known}
        self.asked: list[int] = []
        self.away = False
        self.closed = False
        self.open = asyncio.Event()
        self.open.set()

    async def by_id(self, twin_id: int) -> Twin | None:
        self.asked.append(twin_id)
        await self.open.wait()
        if self.away:
            raise TwinsAwayError("gone")
        return self.known.get(twin_id)

    async def by_account(self, account: bytes) -> Twin | None:
        raise NotImplementedError

    async def aclose(self) -> None:
        self.closed = True


async def test_a_twin_is_asked_for_once_while_it_is_fresh() -> None:
    source, clock = Source(7), Clock()
    cache = TwinCache(source, clock=clock)
    assert cache.peek(7) is None
    for _ in range(3):
        assert await cache.get(7) == source.known[7]
    assert cache.peek(7) == source.known[7]
    clock.now_s += twins.FRESH_S
    assert cache.peek(7) is None
    await cache.get(7)
    assert source.asked == [7, 7]


async def test_misses_of_one_twin_are_one_question() -> None:
    source = Source(7)
    source.open.clear()
    cache = TwinCache(source)
    waiting = [asyncio.create_task(cache.get(7)) for _ in range(10)]
    await asyncio.sleep(0)
    waiting[0].cancel()  # one that gives up takes nothing from the others
    source.open.set()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(found[0], asyncio.CancelledError)
    assert found[1:] == [source.known[7]] * 9
    assert source.asked == [7]


async def test_a_twin_that_does_not_exist_is_believed_shortly() -> None:
    source, clock = Source(), Clock()
    cache = TwinCache(source, clock=clock)
    assert await cache.get(7) is None
    assert await cache.get(7) is None
    assert source.asked == [7]
    source.known[7] = Twin(7, bytes(32), None, ())
    clock.now_s += twins.UNKNOWN_S
    assert await cache.get(7) == source.known[7]


async def test_an_old_answer_is_used_while_the_source_is_away() -> None:
    source, clock = Source(7), Clock()
    cache = TwinCache(source, clock=clock)
    await cache.get(7)
    source.away = True
    clock.now_s += twins.FRESH_S
    assert await cache.get(7) == source.known[7]
    assert await cache.get(7) == source.known[7], "not asked again at once"
    assert source.asked == [7, 7]
    clock.now_s += twins.RETRY_S
    source.away = False
    source.known[7] = Twin(7, bytes(range(32)), None, ())
    assert await cache.get(7) == source.known[7]
    source.away = True
    with pytest.raises(TwinsAwayError, match="gone"):
        await cache.get(8)


async def test_a_twin_that_was_not_there_may_be_there_now() -> None:
    """A twin that did not exist may exist now: while the source is unavailable, its look-up fails.

    Its messages then wait for the source, and are not refused as those of an unknown twin.
    """
    source, clock = Source(), Clock()
    cache = TwinCache(source, clock=clock)
    assert await cache.get(7) is None
    source.away = True
    assert await cache.get(7) is None, "asked a moment ago"
    clock.now_s += twins.UNKNOWN_S
    with pytest.raises(TwinsAwayError, match="gone"):
        await cache.get(7)


async def test_what_is_forgotten_is_asked_anew() -> None:
    source = Source(7)
    cache = TwinCache(source)
    await cache.get(7)
    cache.forget(7)
    cache.forget(8)  # never known: nothing to forget
    assert cache.peek(7) is None
    source.away = True
    assert await cache.get(7) == source.known[7], "of use while the source is away"
    assert source.asked == [7, 7]


async def test_an_answer_from_before_it_was_forgotten_is_not_fresh() -> None:
    source = Source(7)
    older, newer = source.known[7], Twin(7, bytes(range(32)), None, ())
    source.open.clear()
    cache = TwinCache(source)
    before = asyncio.create_task(cache.get(7))
    await eventually(lambda: source.asked)
    cache.forget(7)
    source.open.set()
    assert await before == older, "who asked before has what there was"
    assert cache.peek(7) is None
    source.known[7] = newer
    assert await cache.get(7) == newer
    assert cache.peek(7) == newer
    assert source.asked == [7, 7]


@pytest.mark.parametrize("found", [True, False])
async def test_an_answer_that_comes_after_a_newer_one_is_left(found: bool) -> None:
    source = Source(*([7] if found else ()))
    newer = Twin(7, bytes(range(32)), None, ())
    source.open.clear()
    cache = TwinCache(source)
    before = asyncio.create_task(cache.get(7))
    await eventually(lambda: source.asked)
    cache.forget(7)
    cache.put(newer)
    source.open.set()
    assert await before == source.known.get(7)
    assert cache.peek(7) == newer


async def test_the_cache_is_bounded_and_the_oldest_goes() -> None:
    source = Source(*range(1, 6))
    cache = TwinCache(source, capacity=3)
    for number in (1, 2, 3):
        await cache.get(number)
    cache.put(source.known[1])  # young again
    await cache.get(4)
    assert [number for number in range(1, 6) if cache.peek(number)] == [1, 3, 4]


async def test_closing_ends_what_is_looked_up() -> None:
    source = Source(7)
    source.open.clear()
    cache = TwinCache(source)
    waiting = asyncio.create_task(cache.get(7))
    await asyncio.sleep(0)
    await cache.aclose()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert source.closed


# A file.


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "twins.csv"
    file.write_text(twins_csv([twin(7, "a.example_b.example"), twin(8, "")]))
    return file


async def test_a_file_has_twins_by_id_and_by_account(path: Path) -> None:
    source = FileTwins(path)
    seven = Twin(7, twin(7).account, twin(7).encryption_key.public, ("a.example", "b.example"))
    assert await source.by_id(7) == seven
    assert await source.by_account(twin(7).account) == seven
    assert (await source.by_id(8) or seven).relays == ()
    assert await source.by_id(9) is None
    assert await source.by_account(bytes(32)) is None


def test_a_file_with_an_account_that_anybody_can_sign_for(path: Path) -> None:
    path.write_text(f"id,account,pk,relays\n7,0x{'00' * 32},,\n")
    with pytest.raises(TwinsAwayError, match="line 2: account: anybody can sign for this account"):
        FileTwins(path)


async def test_a_file_is_read_again_when_it_changed(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    source = FileTwins(path, clock)

    def replace(text: str) -> None:
        draft = path.with_suffix(".new")
        draft.write_text(text)
        os.replace(draft, path)

    replace(twins_csv([twin(7, "c.example"), twin(9)]))
    assert await source.by_id(9) is None, "looked at once a second at most"
    clock.now_s += LOOK_S
    assert (await source.by_id(7)).relays == ("c.example",)  # type: ignore[union-attr]
    assert await source.by_id(9) is not None
    assert await source.by_id(8) is None
    # A file that is invalid or still being written changes nothing; nor does a missing file.
    replace("id,account,pk,relays\n7,x\n")
    clock.now_s += LOOK_S
    assert await source.by_id(9) is not None
    assert "line 2: 2 fields, not 4" in caplog.text
    path.unlink()
    clock.now_s += LOOK_S
    assert await source.by_id(9) is not None
    replace(twins_csv([twin(8)]))
    clock.now_s += LOOK_S
    assert await source.by_id(9) is None


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "the header must be id,account,pk,relays"),
        ("twin,account\n", "the header must be id,account,pk,relays"),
        ("id,account,pk,relays\n0,0x00,,\n", "line 2: id: not from 1 to 4294967295"),
        ("id,account,pk,relays\n7,0x00,,\n", "line 2: account: not 0x and 64 hexadecimal digits"),
        (f"id,account,pk,relays\n7,0x{'07' * 32},0x02,\n", "line 2: pk: not 0x and 66"),
        ("id,account,pk,relays\n7,5Grw\n", "line 2: 2 fields, not 4"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(path: Path, text: str, wrong: str) -> None:
    path.write_text(text)
    with pytest.raises(TwinsAwayError) as caught:
        FileTwins(path)
    assert str(caught.value).startswith(f"twins file {path}: ")
    assert wrong in str(caught.value)


def test_a_source_is_chosen_by_how_it_is_named(path: Path) -> None:
    assert isinstance(open_source(str(path)), FileTwins)
    with pytest.raises(ValueError, match="give a file, the URL"):
        open_source(None)
    with pytest.raises(TwinsAwayError, match="No such file"):
        open_source("nowhere.csv")


# The chain.

OURS = twin(301)


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Devchain]:
    """Start a node with 300 twins that it generates, and one of this test's."""
    with running_devchain(tmp_path_factory.mktemp("chain"), made_up_twins=300) as node:
        node.put_twin(OURS, "a.example_b.example")
        yield node


async def test_many_twins_of_the_chain_are_few_questions(chain: Devchain) -> None:
    source = ChainTwins([chain.url])
    before = chain.requests("state_queryStorageAt")
    found = await asyncio.gather(*(source.by_id(number) for number in range(1, 303)))
    assert [each.id for each in found if each is not None] == list(range(1, 302))
    assert chain.requests("state_queryStorageAt") - before <= 3
    domains = ("a.example", "b.example")
    assert found[300] == Twin(301, OURS.account, OURS.encryption_key.public, domains)
    assert await source.by_account(OURS.account) == found[300]
    assert await source.by_account(bytes(32)) is None
    await source.aclose()


async def test_a_twin_of_the_chain_that_anybody_can_sign_for_does_not_exist(
    chain: Devchain,
) -> None:
    chain.put_twins([{"id": 302, "account": f"0x{'00' * 32}"}])
    source = ChainTwins([chain.url])
    assert await source.by_id(302) is None
    assert await source.by_account(bytes(32)) is None
    await source.aclose()


async def test_who_waits_for_one_twin_twice_gets_it_twice(chain: Devchain) -> None:
    source = ChainTwins([chain.url])
    first, second = await asyncio.gather(source.by_id(7), source.by_id(7))
    assert first == second is not None
    await source.aclose()


async def test_a_chain_that_is_away_is_not_an_absent_twin() -> None:
    source = ChainTwins([f"ws://127.0.0.1:{free_port()}"])
    answers = await asyncio.gather(source.by_id(7), source.by_id(8), return_exceptions=True)
    assert [type(each) for each in answers] == [TwinsAwayError] * 2
    with pytest.raises(TwinsAwayError, match="no chain node answered"):
        await source.by_account(twin(7).account)
    await source.aclose()
