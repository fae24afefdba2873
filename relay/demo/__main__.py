"""The story of `make demo`: run with the relay of `make run` beside it."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from relay.server.child import child_environment, module_command
from relay.server.embedded import RUNTIME_FILE

STEP_TIMEOUT_S: Final = 30.0


class DemoError(Exception):
    """The demo cannot continue; the text is shown to the user."""


class Player:
    """The parent's handle of one actor process."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self._name = name
        self._process = process
        self._outcomes: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._listener = asyncio.create_task(self._listen())

    async def do(self, what: str, **details: str) -> dict[str, Any]:
        """Send an order to the actor and return its outcome.

        Raises:
            DemoError: The actor failed, or did not answer within `STEP_TIMEOUT_S`.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, **details}).encode() + b"\n")
        try:
            outcome = await asyncio.wait_for(self._outcomes.get(), STEP_TIMEOUT_S)
        except TimeoutError:
            raise DemoError(f"{self._name} did not {what} in {STEP_TIMEOUT_S:g} s") from None
        if outcome is None:
            raise DemoError(f"{self._name} ended unexpectedly")
        if "error" in outcome:
            raise DemoError(f"{self._name} could not {what}: {outcome['error']}")
        return outcome

    async def leave(self) -> None:
        """Close the actor's input, on which it signs out and exits, and wait for it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()
        await self._listener

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            kind, _, text = line.decode().strip().partition(" ")
            if kind == "SAY":
                print(f"  {self._name:6} {text}", flush=True)
            elif kind == "DONE":
                self._outcomes.put_nowait(json.loads(text))
        self._outcomes.put_nowait(None)


@contextlib.asynccontextmanager
async def player(data_dir: Path, url: str, name: str) -> AsyncIterator[Player]:
    """Start an actor process; it ends with the block."""
    process = await asyncio.create_subprocess_exec(
        *module_command("relay.demo.actor", [str(data_dir), url, name]),
        env=child_environment(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    found = Player(name, process)
    try:
        yield found
    finally:
        await found.leave()


async def tell(data_dir: Path, url: str) -> None:
    """Run all steps of the demo."""
    async with (
        player(data_dir, url, "alice") as alice,
        player(data_dir, url, "bob") as bob,
        player(data_dir, url, "carol") as carol,
    ):
        print(f"1. Two twins at {url} exchange end-to-end encrypted requests.")
        await bob.do("sign in")
        await alice.do("sign in")
        for text in ("hello", "how are you?"):
            uid = (await alice.do("send", to="bob", text=text))["uid"]
            await alice.do("await answer", uid=uid)
        uid = (await bob.do("send", to="alice", text="and you?"))["uid"]
        await bob.do("await answer", uid=uid)

        print(
            "2. Messages wait for a third twin that is disconnected; it reconnects and reads them."
        )
        await carol.do("sign in")
        await carol.do("sign out")
        letters = [
            (await alice.do("send", to="carol", text=text))["uid"]
            for text in ("first letter", "second letter", "third letter")
        ]
        await carol.do("sign in")
        for uid in letters:
            await alice.do("await answer", uid=uid)
    print("Done: all messages arrived, in order, and encrypted end to end.")


def find_relay(data_dir: Path) -> str:
    """Return the address of the relay that runs on a data folder.

    Raises:
        DemoError: No relay runs on it, or the relay does not listen on TCP.
    """
    hint = f"no relay runs on {data_dir}: start one with `make run` in another terminal"
    try:
        runtime = json.loads((data_dir / RUNTIME_FILE).read_text())
        os.kill(runtime["pid"], 0)
    except (OSError, ValueError, KeyError):
        raise DemoError(hint) from None
    url: str = runtime["relay_url"]
    if not url.startswith("ws"):
        raise DemoError(f"the demo needs a relay on TCP, not {url}")
    return url


def main() -> int:
    """Run the demo; return 0 if every step succeeded."""
    parser = argparse.ArgumentParser(prog="rmb demo", description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("data"), metavar="DIR")
    data_dir = parser.parse_args().data.expanduser().absolute()
    try:
        asyncio.run(tell(data_dir, find_relay(data_dir)))
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
