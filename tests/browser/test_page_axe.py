"""The page against axe: every state that a person can bring about, light and dark, wide and narrow."""

from __future__ import annotations

import pytest

from adapters.web.guard import COOKIE
from tests.adapters.web.fake_duet import FakeDuet
from tests.adapters.web.serving import serving
from tests.browser.conftest import Visit

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize(
    ("scheme", "width"),
    [
        ("light", 1280),
        ("dark", 360),
        pytest.param("dark", 1280, marks=pytest.mark.slow),
        pytest.param("light", 360, marks=pytest.mark.slow),
    ],
)
async def test_no_state_of_the_page_has_a_fault(visit: Visit, scheme: str, width: int) -> None:
    page = visit.page
    await page.emulate_media(color_scheme=scheme)
    await page.set_viewport_size({"width": width, "height": 800})
    faults = {"welcome": await visit.axe()}
    await visit.say("What about hotfixes?")
    await page.locator(".source summary").first.click()
    await page.locator(".source mark").wait_for()
    faults["answer"] = await visit.axe()
    await visit.say("/run long colour job exit 3")
    await visit.say("fail")
    await visit.say("ask rm -rf build")
    await visit.say(
        "say # Title\n\n> quote\n\n1. one\n2. two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n[link](https://example.com)"
    )
    faults["all kinds of answers"] = await visit.axe()
    await page.click("#reset")
    faults["reset"] = await visit.axe()
    await page.keyboard.press("Escape")
    await page.click("#open-log")
    await page.locator(".call summary").first.click()
    faults["prompt history"] = await visit.axe()
    await page.click("#close-panel")
    if width < 860:
        await page.click("#open-sidebar")
        faults["session list"] = await visit.axe()
    await page.click("#open-codex")
    await page.locator(".document summary").first.click()
    await page.locator(".section-link").first.wait_for()
    faults["codex"] = await visit.axe()
    await page.locator("#codex-search").fill("branch")
    await page.keyboard.press("Enter")
    await page.locator(".hit").first.wait_for()
    faults["search"] = await visit.axe()
    await page.locator(".hit").first.click()
    await page.locator("#panel .prose").wait_for()
    faults["section"] = await visit.axe()
    assert {state: found for state, found in faults.items() if found} == {}
    _drop_axes_own_word(visit)


def _drop_axes_own_word(visit: Visit) -> None:
    """Axe looks at sheets and frames in ways that the policy forbids; that is no fault of the page's."""
    visit.faults[:] = [fault for fault in visit.faults if "Content Security Policy" not in fault]


async def test_the_login_form_has_no_fault_and_leads_in(visit: Visit) -> None:
    token = "correct horse battery staple"
    async with serving(FakeDuet(), http_token=token) as address:
        visit.address = address
        page = await visit.open()
        assert page.url == f"{address}/login"
        assert await visit.axe(page) == []
        await page.fill("#token", "wrong")
        await page.keyboard.press("Enter")
        await page.locator("[role=alert]").wait_for()
        assert await visit.axe(page) == []
        visit.faults.clear()  # the browser itself tells the 401 on the console
        await page.fill("#token", token)
        await page.keyboard.press("Enter")
        await page.locator("#welcome").wait_for()
        (cookie,) = await visit.context.cookies()
        assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == (COOKIE, True, "Strict")
        await visit.say("What about hotfixes?", page=page)
        visit.page = page
