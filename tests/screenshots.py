"""`make screenshots`: the pictures of the README, taken in a real browser on a real relay.

Starts an embedded relay in a folder of its own under a name from the documentation range, lets
twins of several kinds connect and talk, opens the operator site in Chromium and writes PNGs into
`docs/images`. Nothing of an existing installation is touched.

    python -m tests.screenshots [folder for the pictures]
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.identities import Twin, twin, twins_csv
from tests.support.operator_browser import OPERATOR, Scheme, open_browser
from tests.support.redis_servers import free_port
from tests.support.relay_process import ROOT, command_environment, eventually, run_command
from tests.support.rmb_client import RmbClient, connect

IMAGES = ROOT / "docs" / "images"
DOMAIN = "relay.example.com"
PARTNER = "relay.example.net"
START_TIMEOUT_S = 60.0
# Figures of sessions follow into the database every ten seconds.
FIGURES_TIMEOUT_S = 30.0

# Twins of users, nodes and farms of an imagined grid, with test keys.
TWINS = [
    twin(number, relays)
    for number, relays in (
        (1207, DOMAIN),
        (2415, f"{DOMAIN}_{PARTNER}"),
        (2981, DOMAIN),
        (3306, DOMAIN),
        (4012, PARTNER),
        (4711, DOMAIN),
        (5150, f"{PARTNER}_{DOMAIN}"),
        (5813, DOMAIN),
        (6029, DOMAIN),
        (7348, DOMAIN),
    )
]
# Sessions: twin, session id, program.
SESSIONS = (
    (1207, None, "rmb-peer/1.5"),
    (2415, None, "rmb-peer/1.5"),
    (2981, "dashboard-7f3a", "Node.js/20"),
    (2981, "dashboard-c09e", "Node.js/20"),
    (3306, "deployer", "Go-http-client/1.1"),
    (4711, None, "rmb-peer/1.5"),
    (5150, "farmerbot", "Go-http-client/1.1"),
    (5813, "monitoring", "Go-http-client/1.1"),
    (6029, None, "rmb-peer/1.5"),
)


@dataclass(frozen=True)
class Shot:
    """One picture; its height follows the page."""

    name: str
    path: str
    width: int
    scheme: Scheme = "light"
    height: int = 620


SHOTS = (
    Shot("live-sessions", "/console/sessions/", 1400),
    Shot("twins-dark", "/console/twins/", 1400, "dark"),
    Shot("phone", "/console/sessions/", 400, height=800),
)


@dataclass(frozen=True)
class Stage:
    """A relay with something to see."""

    site: str
    url: str
    password: str
    clients: list[RmbClient]


@contextlib.asynccontextmanager
async def stage(folder: Path) -> AsyncIterator[Stage]:
    """Start the relay, fill it, and stop it at the end."""
    site, url = f"http://127.0.0.1:{free_port()}", f"ws://127.0.0.1:{free_port()}"
    log_path = folder / "relay.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, str(ROOT / "manage.py"), "runrelay", "--embedded"),
                *("--data", str(folder / "data"), "--domain", DOMAIN, "--processes", "2"),
                *("--listen", url.removeprefix("ws://")),
                *("--admin-listen", site.removeprefix("http://")),
            ],
            cwd=folder,
            env=command_environment(folder, {}),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    clients: list[RmbClient] = []
    try:

        def password() -> str:
            assert process.poll() is None, log_path.read_text()
            told = re.search(rf"{OPERATOR}, password (\S+)", log_path.read_text())
            return told[1] if told else ""

        found = await eventually(password, START_TIMEOUT_S, "the relay to be ready")
        _import(folder, TWINS)
        clients += await _talk(url)
        yield Stage(site, url, found, clients)
    finally:
        for client in clients:
            await client.abort()
        process.terminate()
        process.wait()


def _import(folder: Path, twins: list[Twin]) -> None:
    source = folder / "twins.csv"
    source.write_text(twins_csv(twins))
    done = run_command(folder, "rmb_twin", "import", str(source))
    assert done.returncode == 0, done.stderr


async def _talk(url: str) -> list[RmbClient]:
    """Connect everybody; each sends some requests to the next one."""
    by_number = {each.id: each for each in TWINS}
    clients = [
        await connect(url, by_number[number], sid, user_agent_header=program)
        for number, sid, program in SESSIONS
    ]
    for position, sender in enumerate(clients):
        receiver = clients[(position + 1) % len(clients)]
        count = 7 + 13 * position % 31
        for _ in range(count):
            await sender.request(receiver.key, b"status?")
        await receiver.receive_many(count)
    return clients


async def take(folder: Path, images: Path) -> None:
    """Take every picture."""
    images.mkdir(parents=True, exist_ok=True)
    async with stage(folder) as scene:
        for shot in SHOTS:
            async with open_browser(scene.site, width=shot.width, scheme=shot.scheme) as view:
                await view.sign_in(OPERATOR, scene.password)
                await view.page.set_viewport_size({"width": shot.width, "height": shot.height})

                async def complete(path: str = shot.path) -> bool:
                    await view.open(path)
                    figures = await view.page.locator('td[data-label="in"]').all_inner_texts()
                    return all(figure.strip() not in ("", "0") for figure in figures)

                await eventually(complete, FIGURES_TIMEOUT_S, "figures on the page")
                target = images / f"{shot.name}.png"
                await view.page.screenshot(path=target, animations="disabled")
                assert not view.problems, view.problems
                print(f"{target.name}: {target.stat().st_size / 1024:.0f} KiB")


def main() -> int:
    """Write the pictures."""
    images = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(take(Path(folder), images))
    return 0


if __name__ == "__main__":
    sys.exit(main())
