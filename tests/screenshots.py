"""`make screenshots`: take the pictures of the documents in a real browser, from real relays.

Starts the relays of `tests.support.imagined_grid` in a temporary folder, lets their twins exchange
messages for a while, opens the console in Chromium and writes PNGs into `docs/images`. Existing
installations are not touched.

    python -m tests.screenshots [folder for the pictures]
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from playwright.async_api import Browser, expect

from tests.support.imagined_grid import (
    BROKEN,
    FOLLOWED_UID,
    SISTER,
    Stage,
    followed,
    imagined_grid,
    place,
)
from tests.support.operator_browser import Scheme, View, open_tab, running_browser
from tests.support.relay_process import ROOT
from tests.support.waiting import eventually

IMAGES = ROOT / "docs" / "images"
# Seconds until charts, rates and figures of sessions show the traffic of the twins.
TALK_S = 75.0
SHOWN_TIMEOUT_S = 60.0
MAX_BYTES = 250_000
"""Maximum size of a picture: pictures are loaded by browsers, and kept in the repository."""


@dataclass(frozen=True)
class Shot:
    """One picture: the page to open, the size of the window, and the state to wait for.

    `ready` returns when the window shows what the picture is to show.
    """

    name: str
    path: str
    width: int
    height: int
    scheme: Scheme = "light"
    ready: Callable[[View], Awaitable[None]] | None = None
    lattice: bool = False


async def live(view: View) -> None:
    """Wait until the websocket has delivered figures."""
    await expect(view.page.locator("[data-live]")).to_have_text("live")


async def charts_drawn(view: View) -> None:
    """Wait until the charts show lines."""
    await live(view)
    await view.page.locator(".uplot canvas").first.wait_for()
    # Wait for one more frame, so that drawing has finished.
    await view.page.evaluate("new Promise(done => document.addEventListener('console:tick', done))")


async def charts_in_sight(view: View) -> None:
    """Wait for the charts, and scroll to them so that they fill the window."""
    await charts_drawn(view)
    await view.page.locator("#charts").evaluate("charts => charts.scrollIntoView()")


async def put_together(view: View) -> None:
    """Combine the notes of both relays, and wait until those of the partner relay are shown."""
    await view.page.get_by_role("button", name="Put together").click()
    await view.page.get_by_text(place(SISTER)).first.wait_for()


async def runbook_open(view: View) -> None:
    """Open the runbook of the first alarm."""
    await live(view)
    await view.page.locator(".c-page details > summary").first.click()


MESSAGE = f"/console/traces/message/{FOLLOWED_UID}/"

SHOTS = (
    Shot("overview", "/console/", 1400, 1000, ready=charts_drawn),
    Shot("overview-phone", "/console/", 400, 860, "dark", charts_drawn),
    Shot("charts-dark", "/console/", 1400, 860, "dark", charts_in_sight),
    Shot("relays-dark", "/console/relays/", 1400, 780, "dark", live),
    Shot("relays-phone", "/console/relays/", 400, 860, ready=live),
    Shot("message", MESSAGE, 1400, 640, ready=put_together),
    Shot("sessions", "/console/sessions/", 1400, 760, ready=live),
    Shot("sessions-phone", "/console/sessions/", 400, 860, ready=live),
    Shot("queues-dark", "/console/queues/", 1400, 740, "dark", live),
    Shot("alarms", "/console/alarms/", 1400, 760, ready=runbook_open),
    Shot("analytics", "/console/analytics/", 1400, 860, ready=live),
    Shot("analytics-phone", "/console/analytics/sessions/", 400, 860, "dark", live),
    Shot("alarms-phone", "/console/alarms/", 400, 860, "dark", live),
    Shot("lattice", "/console/lattice/calls/", 1400, 700, ready=live, lattice=True),
)


async def take(folder: Path, images: Path) -> None:
    """Take every picture."""
    images.mkdir(parents=True, exist_ok=True)
    async with imagined_grid(folder) as scene, running_browser() as browser:
        # As delivered, the alarm fires only after half a minute.
        scene.command("rmb_alarms", "set", "partner_down", "--hold", "5")
        await asyncio.gather(asyncio.sleep(TALK_S), asyncio.to_thread(scene.analyse, 7))
        part = folder / "part.json"
        part.write_text(await followed(scene))

        def fires() -> bool:
            return BROKEN in scene.command("rmb_alarms", "list")

        await eventually(fires, SHOWN_TIMEOUT_S, "an alarm of the relay that fails")
        for shot in SHOTS:
            await _take(browser, scene, shot, part, images / f"{shot.name}.png")


async def _take(browser: Browser, scene: Stage, shot: Shot, part: Path, target: Path) -> None:
    site = scene.lattice_site if shot.lattice else scene.site
    async with open_tab(browser, site, width=shot.width, scheme=shot.scheme) as view:
        await view.page.set_viewport_size({"width": shot.width, "height": shot.height})
        await view.sign_in()
        assert await view.open(shot.path) == 200
        if shot.path == MESSAGE:
            await view.page.set_input_files("input[name=noted]", part)
        if shot.ready is not None:
            await shot.ready(view)
        await view.page.screenshot(path=target, animations="disabled")
        assert not view.problems, view.problems
    size = target.stat().st_size
    assert size <= MAX_BYTES, f"{target.name} has {size} bytes"
    print(f"{target.name}: {size / 1024:.0f} KiB", flush=True)


def main() -> int:
    """Take all pictures and write them into the folder."""
    images = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(take(Path(folder), images))
    return 0


if __name__ == "__main__":
    sys.exit(main())
