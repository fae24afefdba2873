"""Private files of the data folder: other users cannot read them; no reader sees half a file."""

from __future__ import annotations

import threading
from pathlib import Path

from relay.server import private_file


def test_it_is_private_and_nothing_else_stays(tmp_path: Path) -> None:
    path = tmp_path / "runtime.json"
    for text in ("short\n", "x" * 1000):
        private_file.write(path, text)
        assert path.read_text() == text
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_reader_sees_the_old_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "alice.toml"
    texts = ("a" * 5_000, "b" * 5_000)
    private_file.write(path, texts[0])
    seen: set[str] = set()
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            seen.add(path.read_text())

    reader = threading.Thread(target=read)
    reader.start()
    for round_number in range(500):
        private_file.write(path, texts[round_number % 2])
    over.set()
    reader.join()
    assert seen and seen <= set(texts)
