"""The operator site as an operator meets it: in a browser, at the sizes of a desk and of a phone.

Every page must stand without an error of the console, without a request to another host and
without a part that is out of reach to the right.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from allauth.mfa.totp.internal import auth
from playwright.async_api import Browser, StorageState, expect

from tests.support.operator_browser import (
    FACTOR,
    PASSWORD,
    Scheme,
    View,
    add_operator,
    add_second_operator,
    kind_of,
    open_tab,
)
from tests.support.redis_servers import start_valkey
from tests.support.relay_process import RelayProcess, eventually
from tests.support.rmb_client import connect, session
from tests.support.world import fresh_twins

# One loop for all, as the browser is one.
pytestmark = pytest.mark.asyncio(loop_scope="module")

DESK_PX = 1400
PHONE_PX = 400
# Pages that exist once a twin is connected; the crawl must not end after the first few.
MIN_KINDS = 20
# Sessions follow into the database every two seconds, heartbeats every second.
SHOWN_TIMEOUT_S = 15.0
# Of the codes of authenticators, and how long one that is read has to be good.
PERIOD_S = 30
CODE_GOOD_S = 10


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory, data_template: Path) -> Iterator[RelayProcess]:
    """Two workers and an operator."""
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
    """The cookies of an operator."""
    async with open_tab(browser, _site(relay), width=DESK_PX) as view:
        await view.sign_in()
        assert not view.problems
        return await view.cookies()


@pytest_asyncio.fixture(loop_scope="module")
async def view(
    relay: RelayProcess, browser: Browser, signed_in: StorageState
) -> AsyncIterator[View]:
    """A tab at desk size; whatever went wrong in it fails the test."""
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


@pytest.mark.parametrize(("width", "scheme"), [(DESK_PX, "light"), (PHONE_PX, "dark")])
async def test_every_page_stands(
    relay: RelayProcess, browser: Browser, signed_in: StorageState, width: int, scheme: Scheme
) -> None:
    wide = "w" * 120
    (twin,) = fresh_twins(1)
    async with (
        session(relay.url, twin, wide, user_agent_header=wide),
        open_tab(browser, _site(relay), width=width, scheme=scheme, cookies=signed_in) as view,
    ):

        async def in_database() -> bool:
            await view.open("/console/sessions/?column=user_agent")
            return wide in await view.page.content()

        await eventually(in_database, SHOWN_TIMEOUT_S)
        paths, seen = ["/admin/"], set()
        while paths:
            path = paths.pop(0)
            if kind_of(path) in seen:
                continue
            seen.add(kind_of(path))
            assert await view.open(path) == 200, path
            assert await view.overflow_px() <= 0, path
            assert await view.heading(), path
            assert not await view.unreadable(), path
            paths += await view.links()
        assert len(seen) >= MIN_KINDS
        kinds = {path.rstrip("/").rpartition("/")[2] for path in seen}
        assert kinds >= {"twin", "add", "change", "delete", "history"}
        assert not view.problems


async def test_the_frame_answers_clicks(relay: RelayProcess, view: View) -> None:
    """Menu, colours, search, filters, actions: the theme's expressions, which are read, not
    compiled."""
    page, twins = view.page, "/admin/relay_twins/twin/"
    await view.open(twins)
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

    await page.keyboard.press("/")
    await expect(page.locator("#searchbar")).to_be_focused()
    filters = page.locator("#changelist-filter")
    await page.locator("#changelist a", has_text="Filters").first.click()
    await expect(filters).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(filters).to_be_hidden()
    run = page.locator("#changelist-actions button[type=submit]")
    await page.locator("#result_list tbody input[type=checkbox]").first.check()
    await expect(run).to_be_hidden()
    await page.locator("#changelist-actions select").select_option("delete_selected")
    await run.click()
    await page.get_by_text("Are you sure").first.wait_for()


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
        await page.context.clear_cookies()
        await view.open("/admin/login/")
        assert not await view.unreadable()
        await page.get_by_text("computer", exact=True).first.click()
        await page.get_by_text("Dark", exact=True).click()
        await expect(page.locator("html")).to_have_class(re.compile(r"\bdark\b"))
        assert not view.problems


async def test_a_twin_is_added_after_an_error(relay: RelayProcess, view: View) -> None:
    number, page = 777_001, view.page
    (like,) = fresh_twins(1)
    await view.open("/admin/relay_twins/twin/add/")
    await page.fill("input[name=id]", str(number))
    await page.fill("input[name=account_text]", "not an account")
    await page.fill("input[name=relays]", "localhost")
    await page.click("button[name=_save]")
    await page.get_by_text("account: ").first.wait_for()
    await page.fill("input[name=account_text]", f"0x{like.account.hex()}")
    await page.click("button[name=_save]")
    await page.wait_for_url("**/relay_twins/twin/")
    await page.get_by_text("was added successfully").wait_for()
    await view.open(f"/admin/relay_twins/twin/?q={number}")
    assert "localhost" in await page.inner_text("#result_list")
    await view.open("/admin/relay_twins/twin/?q=999999999")
    await page.get_by_text("No twins match").wait_for()


async def test_a_limit_wants_both_numbers(view: View) -> None:
    (twin,) = fresh_twins(1)
    page = view.page
    await view.open("/admin/relay_limits/twinlimit/add/")
    await page.fill("input[name=twin]", str(twin.id))
    await page.fill("input[name=count]", "5")
    await page.click("button[name=_save]")
    await page.get_by_text("Set both messages and bytes, or neither").wait_for()
    await page.fill("input[name=size]", "1000")
    await page.click("button[name=_save]")
    await page.wait_for_url("**/relay_limits/twinlimit/")
    assert "5 messages, 1000 bytes" in await page.inner_text("#result_list")


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
        await page.get_by_text(f"Session {one.id}:laptop is told to end").wait_for()
        assert (await kicked.closed())[0] == 4003
        await table.get_by_text("Nothing matches").wait_for()  # it refreshes itself
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
    """What an authenticator shows, once it is good for some seconds more and not spent."""

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

        await view.open("/admin/")
        for recovery in ("", codes[0]):
            await view.sign_out()
            await view.give_password(name)
            await page.wait_for_url(f"**{FACTOR}authenticate/")
            assert await view.overflow_px() <= 0
            await view.enter_code("000000")
            await page.get_by_text("Incorrect code").wait_for()
            await view.enter_code(recovery or await present_code(found[1], spent=first))
            await page.wait_for_url(f"{view.site}/admin/")
        await view.sign_out()
        await view.give_password(name)
        await view.enter_code(codes[0])
        await page.get_by_text("Incorrect code").wait_for()
        assert not view.problems
