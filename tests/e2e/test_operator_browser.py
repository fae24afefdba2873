"""The operator site in a browser, at the sizes of a desk and of a phone.

Every page must work without an error in the console, without a request to another host and without
a part that is out of reach to the right.
"""

from __future__ import annotations

import itertools
import re
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from allauth.mfa.totp.internal import auth
from playwright.async_api import Browser, StorageState, expect

from proto.sbd.frames import path_of_key
from tests.proto.sbd.pairs import Identity
from tests.support.operator_browser import (
    FACTOR,
    PASSWORD,
    Scheme,
    View,
    add_operator,
    add_second_operator,
    open_tab,
)
from tests.support.redis_servers import start_valkey
from tests.support.relay_process import RelayProcess
from tests.support.rmb_client import connect, session
from tests.support.sbd_client import RawClient
from tests.support.waiting import eventually
from tests.support.world import fresh_twins

# One loop for all tests, because they share one browser.
pytestmark = pytest.mark.asyncio(loop_scope="module")

DESK_PX = 1400
PHONE_PX = 400
# Sessions are written to the database every two seconds, heartbeats every second.
SHOWN_TIMEOUT_S = 60.0
# Seconds that an authenticator's code is valid, and for how long a code that is read must still be.
PERIOD_S = 30
CODE_GOOD_S = 10


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory, data_template: Path) -> Iterator[RelayProcess]:
    """Start a relay with two workers and an operator account."""
    template = tmp_path_factory.mktemp("operated")
    shutil.copytree(data_template, template / "data")
    add_operator(template)
    server = start_valkey(tmp_path_factory.mktemp("redis"))
    relay = RelayProcess(
        tmp_path_factory.mktemp("relay"),
        template / "data",
        server,
        processes=2,
        operator_site=True,
        settings={"sbd.enabled": "true", "sbd.idle_ms": "120000"},
    )
    try:
        yield relay.start()
    finally:
        relay.stop()
        server.remove()


def _site(relay: RelayProcess) -> str:
    return f"http://127.0.0.1:{relay.admin_port}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def signed_in(relay: RelayProcess, browser: Browser) -> StorageState:
    """Return the cookies of an operator."""
    async with open_tab(browser, _site(relay), width=DESK_PX) as view:
        await view.sign_in()
        assert not view.problems
        return await view.cookies()


@pytest_asyncio.fixture(loop_scope="module")
async def view(
    relay: RelayProcess, browser: Browser, signed_in: StorageState
) -> AsyncIterator[View]:
    """Open a tab at desk size; any problem in it fails the test."""
    async with open_tab(browser, _site(relay), width=DESK_PX, cookies=signed_in) as opened:
        yield opened
        assert not opened.problems


async def test_a_wrong_password_is_told(relay: RelayProcess, browser: Browser) -> None:
    async with open_tab(browser, _site(relay), width=PHONE_PX) as view:
        await view.open("/")  # leads to the sign-in
        await view.page.fill("input[name=username]", "operator")
        await view.page.fill("input[name=password]", "wrong")
        await view.page.click("form button[type=submit]")
        await view.page.get_by_text("Please enter the correct username and password").wait_for()
        assert not view.problems


ENTRANCE = ("/admin/login/",)
OWN_PAGES = ("/admin/password_change/", FACTOR, f"{FACTOR}totp/activate/")
LOOK = """() => {
    const style = (selector) => getComputedStyle(document.querySelector(selector));
    return [
        getComputedStyle(document.body).fontFamily,
        style(".c-panel, .c-account #content").color,
        getComputedStyle(document.querySelector("#main") ?? document.body).backgroundColor,
        document.documentElement.classList.contains("dark"),
    ];
}"""
"""Font, colours of text and background, and whether the page is dark."""


@pytest.mark.parametrize(("width", "scheme"), [(DESK_PX, "light"), (PHONE_PX, "dark")])
async def test_pages_of_signing_in_look_like_the_console(
    relay: RelayProcess, browser: Browser, signed_in: StorageState, width: int, scheme: Scheme
) -> None:
    """Sign-in pages look like the console, and the logo of each leads to the overview."""
    async with (
        open_tab(browser, _site(relay), width=width, scheme=scheme, cookies=signed_in) as view,
        open_tab(browser, _site(relay), width=width, scheme=scheme) as strange,
    ):
        await view.open("/admin/")
        assert view.page.url == f"{view.site}/console/", "there is no index of records"
        await view.open("/console/access/own/")
        console, buttons = await view.page.evaluate(LOOK), set[str]()
        for tab, paths in ((strange, ENTRANCE), (view, OWN_PAGES)):
            for path in paths:
                assert await tab.open(path) == 200, path
                assert await tab.page.evaluate(LOOK) == console, path
                assert await tab.overflow_px() <= 0, path
                assert not await tab.barriers("color-contrast"), path
                logo = tab.page.locator("a:has(.material-symbols-outlined:text-is('hub'))").first
                await tab.page.goto(f"{tab.site}{await logo.get_attribute('href')}")
                assert "/console/" in tab.page.url
                await tab.open(path)
                primary = tab.page.locator(".c-button.c-primary")
                if await primary.count():
                    paint = "button => getComputedStyle(button).backgroundColor"
                    buttons.add(await primary.first.evaluate(paint))
        assert len(buttons) == 1, buttons
        assert not view.problems and not strange.problems


async def test_the_frame_answers_clicks(relay: RelayProcess, view: View) -> None:
    """Menu and colours work: the theme's expressions are interpreted, not compiled."""
    page = view.page
    await view.open("/console/")
    menu, toggle = page.locator("#nav-sidebar"), page.get_by_text("dock_to_right")
    await toggle.first.click()
    await expect(menu).to_be_hidden()
    await page.reload()
    await expect(menu).to_be_hidden()
    await toggle.first.click()
    await expect(menu).to_be_visible()

    root, name = page.locator("html"), menu.get_by_text("operator", exact=True)
    await name.click()
    for label, pattern in (
        ("Dark", r"\bdark\b"),
        ("Light", r"\blight\b"),
        ("System", r"^(?!.*dark)"),
    ):
        await menu.get_by_text(label, exact=True).click()
        await expect(root).to_have_class(re.compile(pattern))
    await expect(menu.get_by_text("Log out")).to_be_visible()
    await page.locator("h1").click()
    await expect(menu.get_by_text("Log out")).to_be_hidden()
    await page.keyboard.press("Control+e")  # the theme's key for the other colours
    await expect(root).to_have_class(re.compile(r"\blight\b"))


async def test_the_frame_answers_taps(
    relay: RelayProcess, browser: Browser, signed_in: StorageState
) -> None:
    async with open_tab(browser, _site(relay), width=PHONE_PX, cookies=signed_in) as view:
        page = view.page
        await view.open("/console/")
        menu = page.locator("#nav-sidebar")
        await expect(menu).to_be_hidden()
        await page.get_by_text("dock_to_right").last.click()
        await expect(menu).to_be_visible()
        await menu.get_by_text("close", exact=True).click()
        await expect(menu).to_be_hidden()
        assert not view.problems


async def test_an_sbd_client_is_shown_and_kicked(
    relay: RelayProcess, browser: Browser, signed_in: StorageState
) -> None:
    (one,) = fresh_twins(1)
    identity = Identity(1)
    peer = path_of_key(identity.key)
    schemes: tuple[Scheme, ...] = ("light", "dark")
    async with session(relay.url, one, "laptop"), RawClient(relay.url, identity) as client:
        for width, scheme in itertools.product((DESK_PX, PHONE_PX), schemes):
            async with open_tab(
                browser, _site(relay), width=width, scheme=scheme, cookies=signed_in
            ) as view:
                await view.open("/console/sessions/")
                table = view.page.locator("#table-sessions")
                row = table.locator("tbody tr", has_text=peer)
                await row.wait_for(timeout=SHOWN_TIMEOUT_S * 1000)
                await expect(row).to_contain_text("SBD")
                await expect(table.locator("tbody tr", has_text="laptop")).to_contain_text("RMB")
                assert await view.overflow_px() <= 0
                assert not await view.hidden_cells() and not await view.barriers("color-contrast")
                assert not view.problems
        async with open_tab(browser, _site(relay), width=DESK_PX, cookies=signed_in) as view:
            page, dialog = view.page, view.page.get_by_role("dialog")
            await view.open("/console/sessions/?protocol=sbd")
            await page.get_by_role("link", name="Kick", exact=True).click()
            await dialog.get_by_text("without a close frame").wait_for()
            await dialog.get_by_role("button", name="Kick").click()
            assert await client.ended() is None
            await view.open(f"/console/sessions/history/?peer={peer}")
            ended = page.locator("#table-sessions-ended tbody tr").get_by_text("kicked")

            async def is_shown() -> bool:
                await page.reload()
                return await ended.count() > 0

            await eventually(is_shown, SHOWN_TIMEOUT_S)
            assert not view.problems


async def test_an_account_is_added_and_signs_in(
    relay: RelayProcess, browser: Browser, signed_in: StorageState
) -> None:
    """An owner adds a viewer, who signs in at once and replaces the one-time password."""
    async with open_tab(browser, _site(relay), width=DESK_PX, cookies=signed_in) as view:
        page, dialog = view.page, view.page.get_by_role("dialog")
        await view.open("/console/access/")
        await page.get_by_role("link", name="Add an account").click()
        await dialog.get_by_label("Account", exact=True).fill("vera")
        await dialog.get_by_label("Role").select_option("viewer")
        await dialog.get_by_role("button", name="Add").click()
        password = (await page.locator("#secret").inner_text()).strip()
        async with open_tab(browser, _site(relay), width=PHONE_PX) as hers:
            await hers.give_password("vera", password)
            await hers.page.wait_for_url("**/admin/password_change/")
            await hers.open("/console/sessions/")
            await hers.page.fill("[name=old_password]", password)
            for name in ("new_password1", "new_password2"):
                await hers.page.fill(f"[name={name}]", PASSWORD)
            await hers.page.locator("main form button[type=submit]").click()
            await hers.page.get_by_text("Your password is changed").wait_for()
            assert await hers.open("/console/sessions/") == 200
            await page.get_by_role("link", name="Done").click()
            row = page.locator("#table-account-sessions tbody tr")
            await expect(row).to_have_count(1)
            await page.get_by_role("link", name="End sessions").click()
            await dialog.get_by_role("button", name="End").click()
            await page.get_by_text("1 session of vera ended").wait_for()
            await hers.open("/console/sessions/")
            await hers.page.wait_for_url("**/admin/login/**")
            assert not hers.problems
        await page.get_by_role("link", name="Disable").click()
        await dialog.get_by_role("button", name="Disable").click()
        await page.get_by_text("vera is disabled").wait_for()
        assert not view.problems


async def test_a_twin_is_added_after_an_error(view: View) -> None:
    number, page = 777_001, view.page
    (like,) = fresh_twins(1)
    await view.open("/console/twins/")
    await page.get_by_role("link", name="Add a twin").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Twin", exact=True).fill(str(number))
    await dialog.get_by_label("Account").fill("not an account")
    await dialog.get_by_label("Relays").fill("localhost")
    await dialog.get_by_role("button", name="Add").click()
    form = page.locator("main .c-question")  # the frame of any page
    await form.get_by_text("account: ").first.wait_for()
    await form.get_by_label("Account").fill(f"0x{like.account.hex()}")
    await form.get_by_role("button", name="Add").click()
    await page.get_by_text(f"Twin {number} is added").wait_for()
    await view.open(f"/console/twins/?text={number}")
    assert "localhost" in await page.inner_text("#table-twins")
    await view.open("/console/twins/?text=999999999")
    await page.get_by_text("Nothing matches").wait_for()


async def test_a_limit_wants_both_numbers(view: View) -> None:
    (twin,) = fresh_twins(1)
    page = view.page
    await view.open(f"/console/limits/set/?twin={twin.id}")
    await page.fill("input[name=count]", "5")
    await page.get_by_role("button", name="Set").click()
    await page.get_by_text("Set both messages and bytes, or neither").wait_for()
    await page.fill("input[name=size]", "1000")
    await page.get_by_role("button", name="Set").click()
    await page.get_by_text(f"Twin {twin.id} has a limit of its own").wait_for()


async def test_a_live_session_is_found_and_kicked(relay: RelayProcess, view: View) -> None:
    one, two = fresh_twins(2)
    page = view.page
    table = page.locator("#table-sessions")
    kicked = await connect(relay.url, one, "laptop")
    async with session(relay.url, two) as bystander:

        async def both_shown() -> bool:
            await view.open("/console/sessions/")
            text = await table.inner_text()
            return str(one.id) in text and str(two.id) in text

        await eventually(both_shown, SHOWN_TIMEOUT_S)
        await page.fill("input[name=twin]", str(one.id))
        await page.keyboard.press("Enter")
        await page.wait_for_url("**twin=*")
        assert str(two.id) not in await table.inner_text()
        await page.get_by_role("link", name="Kick", exact=True).click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_text(f"Kick session {one.id}:laptop").wait_for()
        await dialog.get_by_role("button", name="Kick").click()
        await page.get_by_text(f"Session {one.id}:laptop will end within a second").wait_for()
        assert (await kicked.closed())[0] == 4003
        await table.get_by_text("Nothing matches").wait_for()  # the table refreshes by itself
        assert bystander.open


async def test_a_worker_is_drained_and_replaced(relay: RelayProcess, view: View) -> None:
    page = view.page
    await view.open("/console/workers/")
    before = set(relay.worker_pids())
    rows = page.locator("#table-workers tbody tr")
    assert await rows.count() == len(before) == 2
    await page.get_by_role("link", name="Drain").first.click()
    await page.get_by_role("button", name="Drain").click()
    await page.get_by_text("closes its sessions and is replaced").wait_for()
    await eventually(
        lambda: len(after := set(relay.worker_pids())) == 2 and after != before, 30, "a new worker"
    )


async def present_code(secret: str, spent: str = "") -> str:
    """Return an unspent code of an authenticator that stays valid for some seconds more."""

    def shown() -> str:
        code: str = auth.format_hotp_value(auth.hotp_value(secret, int(time.time()) // PERIOD_S))
        return code

    def good() -> bool:
        return time.time() % PERIOD_S < PERIOD_S - CODE_GOOD_S and shown() != spent

    await eventually(good, 2 * PERIOD_S)
    return shown()


async def test_a_second_factor_from_set_up_to_a_spent_recovery_code(
    relay: RelayProcess, browser: Browser
) -> None:
    async with open_tab(browser, _site(relay), width=PHONE_PX) as view:
        name, page = add_second_operator(relay.database_path()), view.page
        await view.sign_in(name)
        await view.open(f"{FACTOR}totp/activate/")
        await page.fill("input[name=password]", PASSWORD)  # once more, before it is changed
        await page.click("form button[type=submit]")
        await page.locator("input[name=code]").wait_for()
        assert await view.overflow_px() <= 0
        found = re.search(r'value="([A-Z2-7]{32})"', await page.content())
        assert found is not None
        await view.enter_code("000000")
        await page.get_by_text("Incorrect code").wait_for()
        first = await present_code(found[1])
        await view.enter_code(first)
        await page.wait_for_url(lambda url: "activate" not in url)
        await view.open(f"{FACTOR}recovery-codes/")
        codes = re.findall(r"\b[0-9]{8}\b", await page.locator("textarea").input_value())
        assert len(codes) == 10 and await view.overflow_px() <= 0
        assert not await view.unreadable()

        await view.open("/console/")
        for recovery in ("", codes[0]):
            await view.sign_out()
            await view.give_password(name)
            await page.wait_for_url(f"**{FACTOR}authenticate/")
            assert await view.overflow_px() <= 0
            await view.enter_code("000000")
            await page.get_by_text("Incorrect code").wait_for()
            await view.enter_code(recovery or await present_code(found[1], spent=first))
            await page.wait_for_url(f"{view.site}/console/")
        await view.sign_out()
        await view.give_password(name)
        await view.enter_code(codes[0])
        await page.get_by_text("Incorrect code").wait_for()
        assert not view.problems


@pytest.mark.parametrize(("width", "scheme"), [(DESK_PX, "light"), (PHONE_PX, "dark")])
async def test_the_rest_api_is_told(
    relay: RelayProcess, browser: Browser, signed_in: StorageState, width: int, scheme: Scheme
) -> None:
    site = _site(relay)
    async with open_tab(browser, site, width=width, scheme=scheme, cookies=signed_in) as view:
        page = view.page
        await view.open("/console/")
        await page.locator(".c-page").get_by_role("link", name="REST API").click()
        await page.wait_for_url(f"{site}/api/docs/")
        document = await (await page.request.get(f"{site}/api/v1/openapi.json")).json()
        operations = sum(len(item) for item in document["paths"].values())
        await expect(page.locator("#table-operations tbody tr")).to_have_count(operations)
        for path in ("/api/docs/", "/api/docs/put_limit/", "/api/docs/list_twins/"):
            assert await view.open(path) == 200
            assert await view.heading() and await view.overflow_px() <= 0
            assert not await view.unreadable() + await view.barriers()
        await page.locator("pre", has_text="$RMB_TOKEN").wait_for()
        assert not view.problems
