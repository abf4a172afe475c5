"""Chromium on the served page. The core behind it is the scripted one, so that each moment can be held still.

What a page says to the console, and whatever it asks of another host, fails the test. Each test leaves a screenshot
in `artefacts/browser/`.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.adapters.web.fake_duet import FakeDuet
from tests.adapters.web.serving import serving
from tests.conftest import lacking

ROOT = Path(__file__).parents[2]
CHROMIUM = Path("/usr/bin/chromium")
AXE = ROOT / "node_modules/axe-core/axe.min.js"
SHOTS = ROOT / "artefacts/browser"
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncIterator[Any]:
    """Give a headless Chromium with a profile of its own."""
    if not CHROMIUM.exists():
        lacking("browser", "no /usr/bin/chromium: run .ci/browser")
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=str(CHROMIUM), args=list(FLAGS))
        yield browser
        await browser.close()


@dataclass
class Visit:
    """One person at the page: the tab, the scripted core behind it, and what went wrong in the browser."""

    address: str
    duet: FakeDuet
    context: Any
    page: Any
    faults: list[str] = field(default_factory=list)

    async def open(self, fragment: str = "", **media: Any) -> Any:
        """Open a further tab of the same browser."""
        page = await self.context.new_page()
        page.on("console", self._note_console)
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("response", lambda got: self.faults.append(f"{got.status}: {got.url}") if got.status >= 400 else None)
        page.on("request", lambda request: self._watch(request.url))
        page.on("dialog", lambda dialog: self.faults.append(f"dialog: {dialog.message}"))
        await page.goto(f"{self.address}/{fragment}")
        return page

    def _note_console(self, said: Any) -> None:
        # What could not be loaded is noted with its address by `response`.
        if said.type == "error" and "Failed to load resource" not in said.text:
            self.faults.append(f"console: {said.text}")

    def _watch(self, url: str) -> None:
        if not url.startswith((self.address, "data:", "blob:")):
            self.faults.append(f"request: {url}")

    async def say(self, text: str, *, page: Any = None, wait: bool = True) -> Any:
        """Type a message, send it, and give its answer's element; `wait` until it is finished."""
        page = page or self.page
        turns = await page.locator(".turn").count()
        await page.fill("#message", text)
        await page.press("#message", "Enter")
        answer = page.locator(".turn .answer").nth(turns)
        if wait:
            await page.wait_for_function(
                "n => document.querySelectorAll('.turn .answer:not([aria-busy])').length > n", arg=turns
            )
        return answer

    async def axe(self, page: Any = None) -> list[str]:
        """Give what axe finds wrong with the page as it stands."""
        if not AXE.exists():
            lacking("browser", "no axe-core: run .ci/browser")
        page = page or self.page
        await page.evaluate(AXE.read_text("utf-8"))
        found = await page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [f"{one['id']}: {one['nodes'][0]['html'][:160]}" for one in found["violations"]]


@asynccontextmanager
async def visiting(chromium: Any, address: str, duet: FakeDuet, name: str) -> AsyncIterator[Visit]:
    """Open the page in a new profile; afterwards nothing may have gone wrong in the browser."""
    context = await chromium.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    context.set_default_timeout(30_000)  # for a busy machine; what is waited for comes as soon as it comes
    visit = Visit(address, duet, context, None)
    visit.page = await visit.open()
    await visit.page.locator("#model:not(:empty)").wait_for()  # the last of what a page asks for by itself
    yield visit
    SHOTS.mkdir(parents=True, exist_ok=True)
    await visit.page.screenshot(path=str(SHOTS / (re.sub(r"\W+", "-", name.removeprefix("test_"))[:80] + ".png")))
    duet.go_on.set()
    await context.close()
    assert visit.faults == []


@pytest_asyncio.fixture(loop_scope="module")
async def visit(request: pytest.FixtureRequest, chromium: Any) -> AsyncIterator[Visit]:
    """Visit the page on the scripted core."""
    duet = FakeDuet()
    async with serving(duet) as address, visiting(chromium, address, duet, request.node.name) as visit:
        yield visit


def shot_path() -> Path:
    """Give where README's picture goes: into `docs/` only when it is to be made anew."""
    return ROOT / "docs/page.png" if os.environ.get("DUET_TEST_WRITE_SHOT") else SHOTS / "page.png"
