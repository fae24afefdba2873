"""The operator console in a browser, on two federated relays: what each role sees and does.

No page may log an error to the console, request another host, extend beyond the right edge, or keep
out screen readers. Actions are followed to their effect: a closed client, an answer of REST.
"""

from __future__ import annotations

import csv
import io
import json
import re
import time
from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlencode

import pytest
import pytest_asyncio
from django.urls import resolve
from playwright.async_api import Browser, FilePayload, StorageState, expect
from websockets.exceptions import InvalidStatus

from relay.queues import keys
from tests.relay.dashboard.test_figures import SAMPLES
from tests.relay.federation.stored import add_dead
from tests.support import envelopes
from tests.support.federated import FederatedRelay, World
from tests.support.load import load
from tests.support.operator_browser import PASSWORD, View, open_tab
from tests.support.redis_servers import RedisServer, start_valkey
from tests.support.relay_process import run_command
from tests.support.rmb_client import connect, session, signing_session
from tests.support.tracing import traced
from tests.support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

DESK_PX = 1400
PHONE_PX = 400
# Each kind of page is visited once; fewer would mean that the crawl ended early.
MIN_PAGES = 55
SHOWN_TIMEOUT_S = 60.0
ROLES = ("viewer", "operator", "owner")
MAKE_ACCOUNTS = f"""
from django.contrib.auth.models import Group, User
for role in {ROLES!r}:
    user = User.objects.create_user(role, password={PASSWORD!r}, is_staff=True)
    user.groups.add(Group.objects.get(name=role))
from tests.support import analytics_results
analytics_results.fill()
"""

Cookies = dict[str, StorageState]


@pytest.fixture(scope="module")
def relays(
    tmp_path_factory: pytest.TempPathFactory, world: World
) -> Iterator[tuple[FederatedRelay, FederatedRelay]]:
    """Start two relays; the first has an operator site with an account of each role.

    Their Redis user has only the documented permissions of a relay, and they try nothing else.
    """
    servers, found = [], []
    try:
        for name in ("a", "b"):
            folder = tmp_path_factory.mktemp(name)
            servers.append(start_valkey(folder / "redis"))
            relay = FederatedRelay(
                *(world, name, folder, servers[-1]),
                redis_url=servers[-1].url_of_user(),
                operator_site=name == "a",
            )
            found.append(relay)
            relay.start(wait=False)
        for relay in found:
            relay.wait_ready()
            relay.wait_federating()
        done = run_command(
            found[0].folder, "shell", "-v", "0", "-c", MAKE_ACCOUNTS, settings=found[0].settings
        )
        assert done.returncode == 0, done.stderr
        yield found[0], found[1]
        assert [server.run("ACL", "LOG") for server in servers] == [[], []]
    finally:
        for relay in found:
            relay.stop()
        for server in servers:
            server.remove()


@pytest.fixture(scope="module")
def site(relays: tuple[FederatedRelay, FederatedRelay]) -> str:
    return f"http://127.0.0.1:{relays[0].admin_port}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def signed_in(site: str, browser: Browser) -> Cookies:
    """Return the cookies of each role, after signing in through the form."""
    found = {}
    for role in ROLES:
        async with open_tab(browser, site, width=DESK_PX) as view:
            await view.sign_in(role)
            assert not view.problems
            found[role] = await view.cookies()
    return found


@pytest_asyncio.fixture(loop_scope="module")
async def view(site: str, browser: Browser, signed_in: Cookies) -> AsyncIterator[View]:
    """Open a tab as an operator; any problem in it fails the test."""
    async with open_tab(browser, site, width=DESK_PX, cookies=signed_in["operator"]) as opened:
        yield opened
        assert not opened.problems


async def number(view: View, series: str) -> float | None:
    """Return the current value of a series on the page."""
    value = await view.page.locator(f'[data-series="{series}"]').first.get_attribute("value")
    return float(value) if value else None


@pytest.mark.parametrize("role", ROLES)
async def test_numbers_move(
    relays: tuple[FederatedRelay, FederatedRelay],
    world: World,
    site: str,
    browser: Browser,
    signed_in: Cookies,
    role: str,
) -> None:
    one, two = world.twins("a", 2)
    async with (
        open_tab(browser, site, width=DESK_PX, cookies=signed_in[role]) as view,
        load(relays[0].url) as running,
    ):
        await view.open("/console/")
        running.add_pairs([one, two])
        seen: set[float] = set()

        async def moves() -> bool:
            now = await number(view, "messages_in")
            seen.update([now] if now else [])
            return len(seen) > 1

        await eventually(moves, SHOWN_TIMEOUT_S, f"numbers that move, saw {seen}")
        await expect(view.page.locator("[data-live]")).to_have_text("live")
        # The page does not show kick controls to a role without the permission.
        await view.open(f"/console/sessions/?twin={one.id}")
        await view.page.locator("#table-sessions tbody tr").first.wait_for()
        kick = view.page.get_by_role("link", name="Kick", exact=True)
        assert bool(await kick.count()) == (role != "viewer")
        assert not view.problems
        await running.finish()


async def test_figures_are_written_as_the_server_writes_them(view: View) -> None:
    await view.open("/console/")
    samples = [[value, kind] for value, kind, _ in SAMPLES if value != float("inf")]
    written = await view.page.evaluate(
        """async (samples) => {
            const figures = await import("/static/relay_dashboard/figures.js");
            return samples.map(([value, kind]) => figures.write(value, kind));
        }""",
        samples,
    )
    assert written == [text for value, _, text in SAMPLES if value != float("inf")]


async def test_a_session_is_kicked_and_goes(
    relays: tuple[FederatedRelay, FederatedRelay], world: World, view: View
) -> None:
    (one,) = world.twins("a", 1)
    page = view.page
    client = await connect(relays[0].url, one, "laptop")
    await view.open(f"/console/sessions/?twin={one.id}")
    # The page shows the session once it is in the database, and refreshes by itself.
    await page.get_by_role("link", name="Kick", exact=True).click(timeout=SHOWN_TIMEOUT_S * 1000)
    dialog = page.get_by_role("dialog")
    await dialog.get_by_text(f"Kick session {one.id}:laptop").wait_for()
    await page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)
    assert client.open
    await page.get_by_role("link", name="Kick", exact=True).click()
    await dialog.get_by_role("button", name="Kick").click()
    assert (await client.closed())[0] == 4003
    await page.locator("#table-sessions").get_by_text("Nothing matches").wait_for()


async def test_a_twin_is_banned_and_comes_back(
    relays: tuple[FederatedRelay, FederatedRelay], world: World, view: View
) -> None:
    (one,) = world.twins("a", 1)
    page = view.page
    client = await connect(relays[0].url, one)
    await view.open(f"/console/twins/{one.id}/")
    await page.get_by_role("link", name="Ban", exact=True).click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Reason").fill("a test of bans")
    await dialog.get_by_role("button", name="Ban").click()
    assert (await client.closed())[0] is not None
    await view.open("/console/limits/")
    await page.get_by_text("a test of bans").first.wait_for()
    await view.open(f"/console/twins/{one.id}/")
    await page.get_by_role("link", name="Lift").click()
    await dialog.get_by_role("button", name="Lift").click()

    async def comes_back() -> bool:
        try:
            async with session(relays[0].url, one) as again:
                await again.barrier()
                return True
        except InvalidStatus:  # still banned
            return False

    await eventually(comes_back)


async def test_an_address_is_banned_where_it_is_refused(
    relays: tuple[FederatedRelay, FederatedRelay], world: World, view: View
) -> None:
    (one,) = world.twins("a", 1)
    page, address = view.page, "127.0.0.77"
    assert relays[0].redis is not None
    relays[0].redis.run("ZADD", keys.hits("handshake", int(time.time()) // 60), 9, address)
    client = await connect(relays[0].url, one, local_addr=(address, 0))
    await view.open("/console/limits/")
    refused = page.locator("#table-limit-hits-addresses tbody tr", has_text=address)
    await refused.get_by_role("link", name="Ban").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_label("Address or network")).to_have_value(address)
    await dialog.get_by_role("button", name="Ban").click()
    await expect(page.get_by_text("this machine itself; use force")).to_be_visible()
    await page.get_by_label("Even my own address").check()
    await page.get_by_role("button", name="Ban").click()
    assert await client.closed() == (4007, "address_banned")
    banned = page.locator("#table-banned-addresses tbody tr", has_text=address)
    await banned.get_by_role("link", name="Lift").click()
    await dialog.get_by_role("button", name="Lift").click()
    await expect(banned).to_have_count(0)


async def test_a_node_is_shown_with_its_processes(view: View) -> None:
    await view.open("/console/nodes/")
    processes = view.page.locator("#table-processes tbody tr")
    for name in ("supervisor", "worker 0", "the operator site"):
        await expect(processes.filter(has_text=name).first).to_be_visible()
    await expect(view.page.locator("#table-redis-use")).to_contain_text("not in keys")
    await expect(view.page.locator("#table-disks")).to_contain_text("data folder")


async def test_a_queue_is_looked_through_and_purged(
    relays: tuple[FederatedRelay, FederatedRelay], world: World, view: View
) -> None:
    one, away = world.twins("a", 2)
    page, uid = view.page, envelopes.new_uid("queued")
    async with session(relays[0].url, one) as here:
        for _ in range(3):
            await here.request((away.id, "desk"), b"a secret payload")
        await here.request((away.id, "desk"), b"a secret payload", uid=uid)
        await here.barrier()
    await view.open(f"/console/queues/?twin={away.id}")
    row = page.locator("#table-queues tbody tr")
    await expect(row).to_have_count(1)
    await row.get_by_role("link", name=f"{away.id}:desk").click()
    await page.get_by_text(uid).first.wait_for()
    assert "secret" not in await page.content()
    async with page.expect_download() as begun:
        await page.get_by_text("Export", exact=True).click()
        await page.get_by_role("link", name="CSV").first.click()
    exported = (await (await begun.value).path()).read_text()
    assert [line["uid"] for line in csv.DictReader(io.StringIO(exported))][-1] == uid
    await view.open(f"/console/queues/?twin={away.id}")
    await row.get_by_role("link", name="Purge").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_text("4 messages").wait_for()
    await dialog.get_by_role("button", name="Purge").click()
    await page.get_by_text("4 messages").first.wait_for()
    await page.get_by_text("Nothing matches").wait_for()


async def test_a_message_is_followed_to_another_relay(
    relays: tuple[FederatedRelay, FederatedRelay], world: World, view: View
) -> None:
    a, b = relays
    (one,), (two,) = world.twins("a", 1), world.twins("b", 1)
    page, uid = view.page, envelopes.new_uid("followed")
    await view.open("/console/traces/start/")
    await page.get_by_label("Follow").select_option("twin")
    await page.locator("input[name=subject]").fill(str(one.id))
    await page.get_by_role("button", name="Start").click()
    await page.wait_for_url(re.compile("/console/traces/[0-9a-f]{8}/"))
    await traced(a)
    async with signing_session(a.url, one) as here, signing_session(b.url, two) as there:
        await here.request(there.key, b"over there", uid=uid)
        await there.receive()
        await view.open(f"/console/traces/message/{uid}/")
        waterfall = page.locator(".c-waterfall")

        async def tried() -> bool:
            await page.reload()
            return b.domain in await page.content() and await waterfall.count() > 0

        await eventually(tried, SHOWN_TIMEOUT_S)
    text = await waterfall.inner_text()
    for step in ("accepted", "outbox", "tried", "answered 202"):
        assert step in text.lower(), step
    assert "over there" not in await page.content()


async def test_an_alarm_is_acknowledged(
    site: str, browser: Browser, signed_in: Cookies, view: View
) -> None:
    async with open_tab(browser, site, width=DESK_PX, cookies=signed_in["owner"]) as owner:
        await owner.open("/console/alarms/rules/loop_lag/change/")
        await owner.page.get_by_label("Ends at", exact=True).fill("0")
        await owner.page.get_by_label("Threshold", exact=True).fill("0.0001")
        await owner.page.get_by_label("Hold", exact=True).fill("0")
        await owner.page.get_by_role("button", name="Change").click()
        await owner.page.wait_for_url("**/console/alarms/rules/")
        assert not owner.problems
    page = view.page
    await view.open("/console/")
    await (
        page.locator(".c-attention")
        .get_by_role("link", name="Acknowledge")
        .first.click(timeout=SHOWN_TIMEOUT_S * 1000)
    )
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Note").fill("looking into it")
    await dialog.get_by_role("button", name="Acknowledge").click()
    await view.open("/console/alarms/")
    await page.get_by_text("looking into it").wait_for()
    await page.get_by_text("Acknowledged by").first.wait_for()


async def test_a_token_is_made_once_and_used(
    site: str, browser: Browser, signed_in: Cookies
) -> None:
    async with open_tab(browser, site, width=PHONE_PX, cookies=signed_in["owner"]) as view:
        page = view.page
        await view.open("/console/access/tokens/")
        await page.get_by_role("link", name="Create a token").click()
        await page.get_by_label("Purpose").fill("a browser's")
        await page.get_by_role("button", name="Make").click()
        token = (await page.locator("#token").inner_text()).strip()
        answer = await page.request.get(
            f"{site}/api/v1/me", headers={"Authorization": f"Bearer {token}"}
        )
        assert (await answer.json())["name"].startswith("owner")
        await view.open("/console/access/tokens/")
        assert token not in await page.content()
        await page.get_by_text("a browser's").first.wait_for()
        assert not view.problems


async def test_the_palette_and_keys(
    relays: tuple[FederatedRelay, FederatedRelay], world: World, view: View
) -> None:
    (one,) = world.twins("a", 1)
    page = view.page
    await view.open("/console/")
    await page.keyboard.press("Control+k")
    found = page.get_by_role("listbox").get_by_role("option")
    await found.first.wait_for()
    await page.keyboard.type(str(one.id))
    await page.keyboard.press("Enter")  # before the answer: must not open an earlier result
    await page.wait_for_url(f"**/console/twins/{one.id}/")
    await page.keyboard.press("g")
    await page.keyboard.press("q")
    await page.wait_for_url("**/console/queues/")
    await page.keyboard.press("/")
    await page.keyboard.type("12")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**twin=12*")
    await page.keyboard.press("Escape")
    await page.locator("body").click(position={"x": DESK_PX - 20, "y": 500})
    await page.keyboard.press("?")
    await page.get_by_role("dialog", name="Keys").wait_for()
    # The pages of the user's own account have the palette too.
    await view.open("/admin/password_change/")
    await page.keyboard.press("Control+k")
    await found.first.wait_for()


async def test_a_file_is_chosen(site: str, browser: Browser, signed_in: Cookies) -> None:
    async with open_tab(browser, site, width=DESK_PX, cookies=signed_in["owner"]) as view:
        await view.open("/console/twins/import/")
        file = FilePayload(name="twins.csv", mimeType="text/csv", buffer=b"id,account,pk,relays\n")
        await view.page.set_input_files("input[type=file]", file)
        assert not view.problems


async def test_a_table_is_exported_as_it_is_filtered(
    relays: tuple[FederatedRelay, FederatedRelay], world: World, view: View
) -> None:
    (one,) = world.twins("b", 1)
    page = view.page
    await view.open(f"/console/twins/?text={one.id}")
    async with page.expect_download() as begun:
        await page.get_by_text("Export", exact=True).click()
        await page.get_by_role("link", name="JSON").click()
    rows = json.loads((await (await begun.value).path()).read_text())
    assert [row["id"] for row in rows] == [one.id]


async def test_offline_and_back(site: str, browser: Browser, signed_in: Cookies) -> None:
    async with open_tab(browser, site, width=DESK_PX, cookies=signed_in["viewer"]) as view:
        await view.open("/console/")
        live = view.page.locator("[data-live]")
        await expect(live).to_have_text("live", timeout=SHOWN_TIMEOUT_S * 1000)
        # The page loses its connection to the site, as on a laptop that is closed.
        client = await view.page.context.new_cdp_session(view.page)
        await client.send("Network.enable")
        await view.page.context.set_offline(True)
        await view.page.evaluate("window.dispatchEvent(new Event('offline'))")
        await expect(live).to_contain_text("no news for", timeout=SHOWN_TIMEOUT_S * 1000)
        assert await view.page.evaluate("document.documentElement.hasAttribute('data-stale')")
        await view.page.context.set_offline(False)
        await expect(live).to_have_text("live", timeout=SHOWN_TIMEOUT_S * 1000)
        assert not await view.page.evaluate("document.documentElement.hasAttribute('data-stale')")


def _add_dead_letter(server: RedisServer) -> None:
    """Add a dead letter between sessions with long names, for a relay with a long name."""
    relay, wide = "relay-of-a-partner-far-away.example.com", "w" * 100
    tries = [{"at": time.time(), "relay": relay, "answer": "500 Internal Server Error", "ms": 1.5}]
    message = envelopes.request((7, wide), (12, wide), b"secret", tags="a long list of tags")
    add_dead(server, message, "no_usable_relay", account=relay, tries=json.dumps(tries))


async def test_no_column_of_dead_letters_is_hidden(
    relays: tuple[FederatedRelay, FederatedRelay], view: View
) -> None:
    """No cell is hidden under a button, even with every column; the table may scroll right."""
    _add_dead_letter(relays[0].store)
    await view.open("/console/letters/")
    assert await view.page.locator(".c-row-actions").count()
    assert not await view.hidden_cells()
    columns = await view.page.eval_on_selector_all(
        "[name=column]", "boxes => boxes.map(box => box.value)"
    )
    await view.open(f"/console/letters/?{urlencode({'column': columns}, doseq=True)}")
    scroll = view.page.locator(".c-table-scroll")
    await scroll.evaluate("frame => { frame.scrollLeft = frame.scrollWidth; }")
    assert not await view.hidden_cells()


@pytest.mark.parametrize("scripts", [True, False])
async def test_every_page_stands(
    relays: tuple[FederatedRelay, FederatedRelay],
    world: World,
    site: str,
    browser: Browser,
    signed_in: Cookies,
    scripts: bool,
) -> None:
    """One page of each linked kind works: at desk size, then at phone size in dark colours."""
    wide = "w" * 120
    one, away = world.twins("a", 2)
    (there,) = world.twins("b", 1)
    cookies = signed_in["owner"]
    async with (
        signing_session(relays[0].url, one, wide) as here,
        open_tab(browser, site, width=PHONE_PX, cookies=cookies, scripts=scripts) as view,
    ):
        await here.request((away.id, wide))
        await here.request((there.id, None))
        await here.barrier()
        _add_dead_letter(relays[0].store)
        paths, seen, wrong = ["/console/"], set[str](), list[str]()
        while paths:
            path = paths.pop(0)
            kind = str(resolve(path).url_name)
            if kind in seen:
                continue
            seen.add(kind)
            if scripts:
                await view.show(DESK_PX, "light")
            answer = await view.page.goto(f"{site}{path}", wait_until="load")
            assert answer is not None
            if not answer.headers["content-type"].startswith("text/html"):
                continue
            await view.page.evaluate("document.fonts.ready")
            found = [f"status {answer.status}"] * (answer.status != 200) + await _misplaced(view)
            if scripts:
                found += await view.unreadable() + await view.barriers()
                await view.show(PHONE_PX, "dark")
                # Checks what differs on a phone and in the dark; the rest is as on a desk.
                found += await _misplaced(view) + await view.barriers("color-contrast")
            wrong += [f"{path}: {each}" for each in found]
            paths += await view.links("/console/")
        assert not wrong, "\n".join(wrong)
        assert len(seen) >= MIN_PAGES, sorted(seen)
        assert not view.problems


async def _misplaced(view: View) -> list[str]:
    too_wide = ["too wide"] * (await view.overflow_px() > 0)
    return too_wide + [*{*await view.hidden_cells()}] + ["no heading"] * (not await view.heading())
