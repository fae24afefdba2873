"""A batch with messages of local sessions and of partner relays, as Redis and the worker see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import hiredis
import pytest

from proto.rmb.types_pb2 import Envelope
from relay.queues.batch import Batch, QueuePolicy, encode
from relay.queues.charging import Held
from relay.queues.destination import Destination


@dataclass
class _Origin:
    mark: bytes | None
    gone: bool = False
    key: Any = (7, None)

    def not_stored(self) -> None: ...

    def refuse_stored(self, envelope: Envelope, reason: Any) -> None: ...


def _message(number: int) -> bytes:
    return Envelope(uid=f"{number}").SerializeToString()


HERE = _Origin(None)
ORIGINS = [HERE, _Origin(b"one"), None, _Origin(b"two", gone=True), _Origin(b""), HERE]


def dropped(destination: Destination, count: int) -> None:
    """Ignore the call: this batch drops nothing."""


def told(name: str, held: Held, at: float) -> None:
    """Ignore the call: these tests do not check what is charged."""


def _encoded(origins: list[_Origin | None]) -> tuple[Batch, list[list[bytes]]]:
    batch = Batch()
    batch.mixed = True
    destination = Destination((8, None))
    batch.items = [(destination, _message(n), origin) for n, origin in enumerate(origins)]
    payload = encode(batch, "boot", 1, QueuePolicy(), 0.0, dropped, told)
    reader = hiredis.Reader()
    reader.feed(payload if isinstance(payload, bytes) else b"".join(payload))
    commands = []
    while (command := reader.gets()) is not False:
        commands.append(command)
    return batch, commands


def test_messages_of_other_relays_go_by_one_script() -> None:
    batch, commands = _encoded(ORIGINS)
    added = [command[-1] for command in commands if command[0] == b"XADD"]
    assert added == [_message(n) for n in (0, 2, 5)]
    # The other script charges the messages that wait.
    script, _ = [command for command in commands if command[0] == b"EVAL"]
    assert script[2:6] == [b"3", b"federation:taken:", b"stream:8", b"stream:8"]
    assert script[-4:] == [b"one", _message(1), b"", _message(4)], (
        "the one whose client has gone is left out"
    )
    assert batch.commands == len(commands) - 2, "all between MULTI and EXEC"


@pytest.mark.parametrize(
    ("reply", "ids"),
    [
        ([b"id 1", None], [b"id 0", b"id 1", b"id 2", None, None, b"id 5"]),
        ("error", [b"id 0", "error", b"id 2", None, "error", b"id 5"]),
    ],
)
def test_replies_in_the_order_of_the_items(reply: Any, ids: list[Any]) -> None:
    batch, _ = _encoded(ORIGINS)
    replies = [b"id 0", b"id 2", b"id 5", reply, "a handler's", "OK"]
    assert batch.in_order(replies) == [*ids, "a handler's", "OK"]


def test_nobody_waits_for_any_of_them() -> None:
    batch, commands = _encoded([_Origin(b"one", gone=True)])
    assert [command[0] for command in commands] == [b"MULTI", b"SET", b"EXEC"]
    assert batch.in_order(["OK"]) == [None, "OK"]
