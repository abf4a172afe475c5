"""The page on the real core, with the sample Codex and no language model: as it is after the first `duet serve`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from bot.app import open_duet
from bot.settings import Settings
from tests.adapters.web.fake_duet import FakeDuet
from tests.adapters.web.serving import serving
from tests.browser.conftest import Visit, shot_path, visiting

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def visit(request: pytest.FixtureRequest, chromium: Any, tmp_path: Path) -> AsyncIterator[Visit]:
    async with open_duet(Settings(home=tmp_path), drain_s=0.0) as parts:
        parts.duet.start()
        async with (
            serving(parts.duet) as address,
            visiting(chromium, address, FakeDuet(), request.node.name) as visit,
        ):
            yield visit


async def test_a_question_and_its_follow_up_are_answered_from_the_sample(visit: Visit) -> None:
    answer = await visit.say("What is our branch naming convention?")
    assert "<type>/<ticket>-<short-description>" in await answer.inner_text()
    await answer.locator(".source summary").first.click()
    await answer.locator(".section-text mark").first.wait_for()
    marked = "".join(await answer.locator(".section-text mark").all_inner_texts())
    assert marked.replace(" ", "") in (await answer.locator(".source-quote").first.inner_text()).replace(" ", "")
    follow_up = await visit.say("what about for hotfixes?")
    assert "Hotfix branches" in await follow_up.locator(".sources").inner_text()
    await visit.page.reload()
    await visit.page.locator(".turn").nth(1).locator(".source").first.wait_for()


async def test_what_is_not_covered_is_said(visit: Visit) -> None:
    answer = await visit.say("what is our vacation policy?")
    assert "The Codex does not cover this" in await answer.inner_text()


async def test_a_link_inside_the_standards_changes_no_session(visit: Visit) -> None:
    answer = await visit.say("What is our branch naming convention?")
    for link in await answer.locator(".prose a").all():
        href = await link.get_attribute("href")
        assert href
        assert href.startswith(("http", "#source-"))


async def test_a_reset_clears_the_page_and_the_rows(visit: Visit) -> None:
    await visit.say("What is our branch naming convention?")
    await visit.page.click("#reset")
    await visit.page.click("dialog button.danger")
    await visit.page.locator("#welcome").wait_for()
    await visit.page.reload()
    await visit.page.locator("#welcome").wait_for()


async def test_the_picture_for_readme_is_made_from_the_page(visit: Visit) -> None:
    """Made anew in `docs/` where DUET_TEST_WRITE_SHOT is set, else beside the other screenshots."""
    page = visit.page
    await visit.say("Who has to approve a pull request?")
    await page.click("#new-session")
    await visit.say("What is our branch naming convention?")
    await visit.say("what about for hotfixes?")
    await page.click("#open-log")
    await page.locator(".call").nth(1).wait_for()
    await page.locator(".call").nth(0).locator("summary").nth(2).click()
    await page.locator(".call").nth(0).locator("summary").nth(1).click()
    await page.locator(".turn").nth(1).scroll_into_view_if_needed()
    await page.evaluate("document.activeElement.blur()")
    await page.mouse.move(640, 780)
    path = shot_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    await page.screenshot(path=str(path))
    assert path.stat().st_size > 20_000
