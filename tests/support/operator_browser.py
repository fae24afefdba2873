"""A real browser on the operator site: Chromium through Playwright.

The browser comes from the system (`make system-deps`), never from Playwright's own downloads. It
can connect only to loopback, and every request to another host is recorded in `View.problems`, as
are errors of the console and answers of 400 and above.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import (
    Browser,
    ConsoleMessage,
    Page,
    Request,
    Response,
    StorageState,
    WebSocket,
    async_playwright,
)

from tests.support.relay_process import ROOT, command_environment

Scheme = Literal["light", "dark"]

OPERATOR = "operator"
PASSWORD = "password of a test operator"
FACTOR = "/admin/account/second-factor/"
HEIGHT = 900
TIMEOUT_MS = 15_000

# Number of the object in a path: of pages that differ only in it, one is tested.
_NUMBER = re.compile(r"/\d+/")

_UNREADABLE = r"""() => {
    const found = [];
    for (const element of document.querySelectorAll("*")) {
        for (const { name, value } of element.attributes) {
            if (!value || !/^(x-(?!cloak|for|ref|sort|teleport|transition)|@|:)/.test(name)) {
                continue;
            }
            const told = `${name}="${value}"`;
            try {
                Alpine.evaluateRaw(element, `false && (${value.trim().replace(/;$/, "")})`);
            } catch (error) {
                found.push(`${told}: ${error.message}`);
            }
            if (/^(x-on|@)/.test(name)) {
                const code = value.replace(/'[^']*'|"[^"]*"/g, "''");
                const names = code.match(/(?<![.\w$])[a-z_]\w*/gi);
                const known = Alpine.$data(element);
                const lacking = (names ?? []).filter(
                    (each) => !(each in known) && !["true", "false"].includes(each),
                );
                found.push(...lacking.map((each) => `${told}: ${each} is not known`));
            }
        }
    }
    return found;
}"""


_BARRIERS = """async (rules) => {
    // The others' findings are minor or moderate, and cost a fifth of the time.
    const { rules: all, tagExclude } = axe._audit;
    const grave = all.filter(
        ({ enabled, impact, tags }) =>
            enabled &&
            ["serious", "critical"].includes(impact) &&
            !tags.some((tag) => tagExclude.includes(tag)),
    );
    const values = rules.length ? rules : grave.map((rule) => rule.id);
    const options = { resultTypes: ["violations"], preload: false };
    const { passes, violations } = await axe.run({ ...options, runOnly: { type: "rule", values } });
    return [passes.length + violations.length, violations];
}"""

_TWO_FRAMES = """() => new Promise((done) => {
    requestAnimationFrame(() => requestAnimationFrame(() => done()));
})"""
"""Script that waits for two frames, after which the layout follows the size of the window."""

_HIDDEN_CELLS = """() => [...document.querySelectorAll(".c-table tbody td:not(.c-row-actions)")]
    .filter((cell) => {
        const text = document.createRange();
        text.selectNodeContents(cell);
        let right = text.getBoundingClientRect().right;
        for (const cut of cell.querySelectorAll(".c-cut")) {
            right = Math.min(right, cut.getBoundingClientRect().right);
        }
        const buttons = cell.closest("tr").querySelector(".c-row-actions");
        const beside = buttons && buttons.getBoundingClientRect();
        const line = cell.getBoundingClientRect();
        const covers = beside && beside.top < line.bottom && beside.bottom > line.top;
        const frame = cell.closest(".c-table-scroll").getBoundingClientRect();
        const end = covers ? Math.min(beside.left, frame.right) : frame.right;
        return line.width > 0 && right > end + 1;
    })
    .map((cell) => `${cell.closest("section").id}: ${cell.dataset.label}`)"""


def find_chromium() -> str | None:
    """Return the system's browser, if possible one without windows, which takes half the time."""
    names = ("chromium-headless-shell", "chromium", "chromium-browser")
    return next(filter(None, map(shutil.which, names)), None)


def add_operator(folder: Path) -> None:
    """Let OPERATOR with PASSWORD sign in to the site whose data is in `folder/data`."""
    subprocess.run(
        [
            *(sys.executable, str(ROOT / "manage.py"), "createsuperuser", "--no-input"),
            *("--username", OPERATOR, "--email", ""),
        ],
        cwd=folder,
        env={**command_environment(folder, {}), "DJANGO_SUPERUSER_PASSWORD": PASSWORD},
        check=True,
        capture_output=True,
    )


def add_second_operator(database: Path) -> str:
    """Let another operator sign in, also with PASSWORD; return the name."""
    name = "careful"
    with sqlite3.connect(database, timeout=60) as connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(auth_user)")]
        copied = [column for column in columns if column not in ("id", "username")]
        listed = ", ".join(copied)
        connection.execute(
            f"INSERT INTO auth_user (username, {listed})"
            f" SELECT ?, {listed} FROM auth_user WHERE username = ?",
            (name, OPERATOR),
        )
    connection.close()
    return name


@dataclass
class View:
    """One tab.

    Attributes:
        problems: descriptions of all problems since the tab was opened.
    """

    page: Page
    site: str
    problems: list[str] = field(default_factory=list)

    async def sign_in(self, name: str = OPERATOR, password: str = PASSWORD) -> None:
        """Sign in on the log-in page, and wait for the overview."""
        await self.give_password(name, password)
        await self.page.wait_for_url(f"{self.site}/console/")

    async def give_password(self, name: str, password: str = PASSWORD) -> None:
        """Do the first step of signing in, which is the only one without a second factor."""
        await self.page.goto(f"{self.site}/admin/login/")
        await self.page.fill("input[name=username]", name)
        await self.page.fill("input[name=password]", password)
        await self.page.click("form button[type=submit]")

    async def enter_code(self, code: str) -> None:
        """Send a code of the second factor."""
        await self.page.fill("input[name=code]", code)
        await self.page.locator("form:has(input[name=code]) button[type=submit]").first.click()

    async def sign_out(self) -> None:
        """Submit the form in the account's menu of any page; the menu need not be open."""
        form = self.page.locator("form[action$='/logout/']").first
        async with self.page.expect_navigation():
            await form.evaluate("form => form.requestSubmit()")

    async def cookies(self) -> StorageState:
        """Return the state with which another tab starts as this one is, such as signed in."""
        return await self.page.context.storage_state()

    async def open(self, path: str) -> int:
        """Go to a page of the site, wait until it is loaded, and return the status."""
        answer = await self.page.goto(f"{self.site}{path}", wait_until="load")
        assert answer is not None
        await self.page.evaluate("document.fonts.ready")
        return answer.status

    async def show(self, width: int, scheme: Scheme) -> None:
        """Change the width of the window and the colour scheme; wait until the page follows."""
        await self.page.set_viewport_size({"width": width, "height": HEIGHT})
        await self.page.emulate_media(color_scheme=scheme)
        await self.page.evaluate(_TWO_FRAMES)

    async def links(self, below: str = "/console/") -> list[str]:
        """Return the paths of the site that the page links to, in order, each kind once."""
        found = await self.page.eval_on_selector_all(
            "a[href]:not([download])",
            "links => links.map(link => new URL(link.getAttribute('href'), location))"
            ".map(url => url.origin + url.pathname)",
        )
        prefix = f"{self.site}{below}"
        kinds = {
            kind_of(link.removeprefix(self.site)): link.removeprefix(self.site)
            for link in reversed(found)
            if link.startswith(prefix)
        }
        return list(reversed(kinds.values()))

    async def overflow_px(self) -> int:
        """Return how far the page extends beyond the right edge of the window."""
        width: int = await self.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        return width

    async def hidden_cells(self) -> list[str]:
        """Return table cells whose text is hidden by the row's buttons or the table's edge."""
        found: list[str] = await self.page.evaluate(_HIDDEN_CELLS)
        return found

    async def heading(self) -> str:
        """Return the visible title of the page."""
        texts = await self.page.locator("h1:visible, h2:visible").all_inner_texts()
        return " ".join(text.strip() for text in texts).strip()

    async def barriers(self, *rules: str) -> list[str]:
        """Return accessibility problems of the page, by axe's serious rules.

        Args:
            rules: rules that are checked; all by default.
        """
        if not await self.page.evaluate("'axe' in window"):
            await self.page.evaluate(Axe().axe_script)
        looked_at, found = await self.page.evaluate(_BARRIERS, rules)
        assert looked_at >= (len(rules) or 20), "axe looked at nothing"
        return [
            f"{each['id']}: {node['html'][:200]}"
            for each in found
            if each["impact"] in ("serious", "critical")
            for node in each["nodes"]
        ]

    async def unreadable(self) -> list[str]:
        """Return expressions of the theme that its script cannot parse or resolve.

        Those of events would fail only when the event happens, so they are parsed without being
        evaluated.
        """
        found: list[str] = await self.page.evaluate(_UNREADABLE)
        return found

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((self.site, "data:", "blob:")):
            self.problems.append(f"request to another host: {request.url}")

    def _on_websocket(self, socket: WebSocket) -> None:
        if not socket.url.startswith(self.site.replace("http", "ws", 1)):
            self.problems.append(f"websocket to another host: {socket.url}")

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"console on {self.page.url}: {message.text}")

    def _on_response(self, response: Response) -> None:
        if response.status >= 400:
            self.problems.append(f"{response.status} for {response.url}")


def kind_of(path: str) -> str:
    """Return a path with the number of its object replaced, the same for all objects."""
    return _NUMBER.sub("/0/", path)


@contextlib.asynccontextmanager
async def running_browser() -> AsyncIterator[Browser]:
    """Run a browser without tabs. It takes longer to start than most pages do."""
    program = find_chromium()
    assert program, "browser tests need Chromium: make system-deps"
    async with async_playwright() as playwright:
        # As root the sandbox cannot be set up, and only our own pages are shown. Requests to other
        # hosts are blocked by a resolver rule, and not one by one: a tab whose requests are
        # intercepted has no cache, and loads every style and script again for each page.
        arguments = [
            "--disable-gpu",
            "--font-render-hinting=none",  # text as wide as in a browser with windows
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
        ]
        browser = await playwright.chromium.launch(executable_path=program, args=arguments)
        yield browser
        await browser.close()


@contextlib.asynccontextmanager
async def open_tab(
    browser: Browser,
    site: str,
    *,
    width: int,
    scheme: Scheme = "light",
    scale: float = 1,
    cookies: StorageState | None = None,
    scripts: bool = True,
) -> AsyncIterator[View]:
    """Open a tab on the site at `site`, without trailing slash.

    It shares nothing with other tabs of the browser, but starts with `cookies` (`View.cookies`).
    """
    context = await browser.new_context(
        viewport={"width": width, "height": HEIGHT},
        color_scheme=scheme,
        device_scale_factor=scale,
        reduced_motion="reduce",
        storage_state=cookies,
        java_script_enabled=scripts,
    )
    context.set_default_timeout(TIMEOUT_MS)
    page = await context.new_page()
    view = View(page, site)
    page.on("console", view._on_console)
    page.on("pageerror", lambda error: view.problems.append(f"script error: {error}"))
    page.on("request", view._on_request)
    page.on("response", view._on_response)
    page.on("websocket", view._on_websocket)
    yield view
    await context.close()
