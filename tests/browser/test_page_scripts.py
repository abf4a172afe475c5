"""Script injection: whatever stands in an answer, a document's name, a session's id or a person's name stays text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from tests.browser.conftest import Visit

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAYLOADS = [
    "<script>window.owned=1</script>",
    "<img src=x onerror=window.owned=1>",
    "<svg onload=window.owned=1>",
    "<svg><script>window.owned=1</script></svg>",
    "<iframe src=javascript:window.owned=1></iframe>",
    "<iframe srcdoc='<script>parent.owned=1</script>'></iframe>",
    "<a href=javascript:window.owned=1 id=click>x</a>",
    "[x](javascript:window.owned=1)",
    "[x](java\tscript:window.owned=1)",
    "[x](data:text/html,<script>opener.owned=1</script>)",
    "![x](https://evil.example/pixel.png)",
    "![x][r]\n\n[r]: https://evil.example/pixel.png",
    "<body onload=window.owned=1>",
    "<details open ontoggle=window.owned=1>x</details>",
    "<math><mtext></mtext><mglyph><style><!--</style><img src=x onerror=window.owned=1>",
    '<noscript><p title="</noscript><img src=x onerror=window.owned=1>">',
    "<form action=https://evil.example><button formaction=javascript:window.owned=1>x</button></form>",
    "<style>@import 'https://evil.example/x.css';</style><link rel=stylesheet href=https://evil.example/y.css>",
    '"><script>window.owned=1</script><!--',
    "<<script>script>window.owned=1</script>{{constructor.constructor('window.owned=1')()}}",
    "<template><img src=x onerror=window.owned=1></template><base href=https://evil.example/>",
    "<meta http-equiv=refresh content='0;url=https://evil.example/'>",
]

# Nothing of these may exist where text is shown; the page's own icons are `svg > use`.
LIVE = """() => {
  const tags = 'script, img, iframe, object, embed, style, link, base, meta, template, math, noscript';
  const shown = [...document.querySelectorAll('#log, #sessions, #panel, #title')];
  const all = (selector) => shown.flatMap((part) => [...part.querySelectorAll(selector)]);
  const runs = ({name, value}) => /^on/i.test(name)
    || (/^(href|src|action|formaction)$/i.test(name) && /^\\s*(javascript|data|vbscript):/i.test(value));
  const bad = all(`${tags}, form:not(.codex-search), svg > *:not(use)`);
  const active = all('*').filter((node) => [...node.attributes].some(runs));
  return [...bad, ...active].map((node) => node.outerHTML.slice(0, 200));
}"""


async def hold_inert(visit: Visit, page: Any = None) -> None:
    """Fail if any live node stands on the page or any script of another's ran."""
    page = page or visit.page
    assert await page.evaluate(LIVE) == []
    assert await page.evaluate("() => window.owned") is None
    assert page.url.startswith(visit.address)


async def test_no_payload_lives_in_an_answer_or_a_question(visit: Visit) -> None:
    for payload in PAYLOADS:
        answer = await visit.say(f"say {payload}")
        await hold_inert(visit)
        for link in await answer.locator("a").all():
            assert (await link.get_attribute("href") or "").startswith(("http", "mailto:", "#source-"))
    await visit.page.reload()
    await visit.page.locator(".turn").nth(len(PAYLOADS) - 1).wait_for()
    await hold_inert(visit)


async def test_no_payload_lives_in_a_documents_name(visit: Visit) -> None:
    source = visit.duet.source
    for payload in PAYLOADS:
        visit.duet.source = replace(
            source, document=payload, heading=payload, quote=payload, url=f"javascript:{payload}"
        )
        await visit.say("What about hotfixes?")
        await hold_inert(visit)
    await visit.page.click("#open-log")
    await visit.page.locator(".call").first.wait_for()
    for fold in await visit.page.locator(".call summary").all():
        await fold.click()
    await hold_inert(visit)


async def test_no_payload_lives_in_a_command_or_its_output(visit: Visit) -> None:
    for payload in PAYLOADS:
        await visit.say(f"/run {payload}")
        await hold_inert(visit)


async def test_no_payload_lives_in_a_session_id(visit: Visit) -> None:
    page = visit.page
    for payload in (one.replace("\t", " ").replace("\n", " ") for one in PAYLOADS):
        await page.evaluate("id => { location.hash = encodeURIComponent(id); }", payload)
        await page.locator("#welcome").wait_for()
        await visit.say(f"say {payload}")
        assert visit.duet.heard[-1].room.channel == payload
        await page.click("#open-log")
        await page.locator(".call").first.wait_for()
        await hold_inert(visit)
        await page.click("#close-panel")


async def test_no_payload_lives_in_a_users_name(visit: Visit) -> None:
    async with aiohttp.ClientSession() as session:
        for payload in PAYLOADS:
            body = {"text": "say hi", "userId": payload.replace("\t", " ").replace("\n", " ")}
            async with session.post(f"{visit.address}/api/rooms/shared/message", json=body) as response:
                assert response.status == 200
    page = await visit.open("#shared")
    await page.locator(".turn").nth(len(PAYLOADS) - 1).wait_for()
    assert "<script>" in await page.locator(".question .name").first.inner_text()
    await page.click("#open-log")
    await page.locator(".call").first.wait_for()
    await hold_inert(visit, page)
    visit.page = page
