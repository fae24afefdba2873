"""Tests of a chain stored in a file: restarts, torn lines and damage."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from chain.devchain import calls, journal
from chain.devchain.errors import ChainFullError, JournalError
from chain.devchain.journal import FileJournal
from chain.devchain.ledger import Ledger
from chain.devchain.node import Node
from proto.chain import storage
from proto.chain.twin import Twin
from tests.chain.devchain.chains import BOB, new_node, signed

REMARK = calls.REMARK + b"\0"
ACCOUNT = b"\7" * 32


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chain.jsonl"


def _begin(path: Path) -> Node:
    file = FileJournal(path)
    assert file.load() is None
    node = new_node([Twin(1, ACCOUNT, b"a.example.com")], file)
    file.append(node.ledger.genesis)
    return node


def _end(node: Node) -> None:
    assert isinstance(node._journal, FileJournal)
    node._journal.close()


def _resume(path: Path) -> Node:
    file = FileJournal(path)
    ledger = file.load()
    assert ledger is not None
    return new_node(journal=file, ledger=ledger)


def _load(path: Path) -> None:
    with contextlib.closing(FileJournal(path)) as file:
        file.load()


def test_a_chain_goes_on_where_it_was(path: Path) -> None:
    node = _begin(path)
    node.submit(signed(node, BOB, REMARK))
    node.make_block()
    node.put_twins([Twin(2, BOB.account, None, (), b"\2")], told=True)
    node.make_blocks(5)
    node.fork(3, 4, reinclude=True)
    left = node.ledger.at(3)
    _end(node)
    again = _resume(path)
    assert again.ledger.best.hash == node.ledger.best.hash
    assert left is not None and again.ledger.block(left.hash) is not None
    for key in (storage.twin_key(1), storage.twin_key(2), storage.account_key(BOB.account)):
        assert again.state().get(key) == node.state().get(key)
    for number in range(node.ledger.best.number + 1):
        old, new = node.ledger.at(number), again.ledger.at(number)
        assert old is not None and new is not None
        assert (old.header, old.extrinsics, old.changes) == (
            new.header,
            new.extrinsics,
            new.changes,
        )
    block = again.make_block()
    assert block.number == node.ledger.best.number + 1
    _end(again)
    third = _resume(path)
    assert third.ledger.best.hash == block.hash
    _end(third)


def test_a_torn_line_is_cut_off(path: Path) -> None:
    node = _begin(path)
    node.make_blocks(3)
    _end(node)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][:-10])
    again = _resume(path)
    assert again.ledger.best.number == 2
    again.make_block()
    _end(again)
    third = _resume(path)
    assert third.ledger.best.number == 3
    _end(third)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda lines: [*lines[:2], "garbage"], "line 3: not JSON"),
        (lambda lines: [*lines[:2], "[]"], "line 3: not a block of format 1"),
        (lambda lines: ['{"format":2}', *lines], "line 1: not a block of format 1"),
        (lambda lines: [lines[0], *lines[2:]], "line 2: its parent is not above it"),
        (lambda lines: [lines[0], lines[1].replace("0x", "0y", 1)], "line 2: header"),
        (lambda lines: [lines[0], lines[1].replace('"changes":{', '"changes":{"zz":null,')], "2"),
        (lambda lines: [lines[0], lines[1].replace('"extrinsics":[', '"extrinsics":[5,')], "2"),
        (lambda lines: [lines[0], '{"format":1,"header":' + "[" * 100_000], "line 2: not JSON"),
    ],
)
def test_damage_is_named(path: Path, damage: object, problem: str) -> None:
    node = _begin(path)
    node.make_blocks(3)
    _end(node)
    lines = path.read_text().splitlines()
    path.write_text("\n".join(damage(lines)) + "\n")  # type: ignore[operator]
    with pytest.raises(JournalError, match=problem):
        _load(path)


def test_missing_parts_are_named(path: Path) -> None:
    node = _begin(path)
    _end(node)
    line = json.loads(path.read_text())
    for name in ("extrinsics", "changes", "header"):
        path.write_text(json.dumps({**line, name: None}) + "\n")
        with pytest.raises(JournalError, match=name):
            _load(path)


def test_one_process_at_a_time(path: Path) -> None:
    first = FileJournal(path)
    with pytest.raises(JournalError, match="another node has it open"):
        FileJournal(path)
    first.close()
    FileJournal(path).close()


def test_files_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="Is a directory"):
        FileJournal(tmp_path)
    with pytest.raises(JournalError, match="No such file"):
        FileJournal(tmp_path / "missing" / "chain.jsonl")


def test_a_full_disk_is_told() -> None:
    full = FileJournal(Path("/dev/full"))
    node = new_node()
    full.append(node.ledger.genesis)
    with pytest.raises(JournalError, match="/dev/full"):
        full.flush()
    with pytest.raises(JournalError, match="/dev/full"):
        for _ in range(100):
            full.append(node.ledger.genesis)
    full.close()


def test_a_file_of_too_many_blocks_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = _begin(path)
    node.make_blocks(3)
    _end(node)

    def full(self: Ledger, count: int) -> None:
        raise ChainFullError("full")

    monkeypatch.setattr(journal.Ledger, "check_room", full)
    with pytest.raises(JournalError, match="line 2: full"):
        _load(path)
