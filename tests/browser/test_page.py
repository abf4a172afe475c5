"""The chat page in a real browser: what a person does with it, and what they see."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.browser.conftest import Visit

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def text(locator: Any) -> str:
    return str(await locator.inner_text())


async def until_gone(page: Any, selector: str) -> None:
    await page.wait_for_selector(selector, state="hidden")


async def test_a_question_is_answered_and_followed_up(visit: Visit) -> None:
    answer = await visit.say("What about hotfixes?")
    assert "start it from the production tag" in (await text(answer)).replace("\n", " ")
    await visit.say("And docs?")
    assert await visit.page.locator(".turn").count() == 2
    assert [turn.text for turn in visit.duet.heard] == ["What about hotfixes?", "And docs?"]
    assert visit.duet.heard[0].session == visit.duet.heard[1].session
    assert await text(visit.page.locator("#title")) == "What about hotfixes?"


async def test_the_session_id_is_128_random_bits(visit: Visit) -> None:
    await visit.say("hi")
    assert len(visit.duet.heard[0].room.channel) == 32
    int(visit.duet.heard[0].room.channel, 16)


async def test_a_source_shows_its_line_and_opens_in_place(visit: Visit) -> None:
    answer = await visit.say("What about hotfixes?")
    source = answer.locator(".source")
    assert "branch-naming.md › Branch types line 29" in await text(source)
    assert "a fault in production that cannot wait" in await text(source.locator("q"))
    await answer.locator(".marker").first.click()
    assert await visit.page.evaluate("document.activeElement.closest('.source') !== null")
    await visit.page.keyboard.press("Enter")
    await source.locator("mark").wait_for()
    assert await text(source.locator("mark")) == "a fault in production that cannot wait"
    assert await text(source.locator("h3")) == "Branch types"


async def test_a_draft_grows_as_text_and_ends_as_the_answer(visit: Visit) -> None:
    answer = await visit.say("slow", wait=False)
    await answer.locator(".draft:not(:empty)").wait_for()
    assert await answer.get_attribute("aria-busy") == "true"
    visit.duet.go_on.set()
    await answer.locator(".prose").wait_for()
    assert (await text(answer.locator(".prose"))).endswith("Done.")
    assert await answer.locator(".draft").count() == 0


async def test_a_command_of_ones_own_is_run(visit: Visit) -> None:
    answer = await visit.say("/run make test exit 3")
    card = answer.locator(".command")
    assert await text(card.locator("figcaption code")) == "make test exit 3"
    assert await text(card.locator(".badge")) == "exit 3"
    assert "412 ms" in await text(card)
    assert await text(card.locator("pre.stderr")) == "a warning\n"
    assert visit.duet.heard[0].kind.value == "run"


async def test_output_keeps_its_colours_in_either_stream(visit: Visit) -> None:
    answer = await visit.say("/run make colour exit 3")
    out, err = answer.locator("pre.stdout"), answer.locator("pre.stderr")
    assert await text(out) == "line 1\nline 2"
    assert await out.locator("span").all_inner_texts() == ["line", "line"]
    assert await out.locator(".is-bold.is-colour-2").count() == 1
    assert await text(err) == "a warning"


async def test_a_command_that_never_began_says_why_and_nothing_else(visit: Visit) -> None:
    visit.duet.commands_fail = "There is no Docker engine here: ask `duet doctor`."
    card = (await visit.say("/run make")).locator(".command")
    assert await text(card.locator(".badge")) == "not started"
    assert await text(card.locator(".command-note")) == "There is no Docker engine here: ask duet doctor."
    assert await text(card.locator(".command-note code")) == "duet doctor"
    assert await card.locator(".meta, .copy, pre").count() == 0


async def test_long_output_is_folded_until_it_is_wanted(visit: Visit) -> None:
    answer = await visit.say("run long job")
    more = answer.locator(".more")
    assert await text(more) == "Show all 40 lines"
    folded = (await answer.locator(".command").bounding_box())["height"]
    await more.click()
    assert await more.get_attribute("aria-expanded") == "true"
    assert (await answer.locator(".command").bounding_box())["height"] > folded * 1.5


async def test_output_is_shown_while_the_command_runs(visit: Visit) -> None:
    visit.duet.pace_s = 2.0
    answer = await visit.say("run long job", wait=False)
    await answer.locator(".is-running pre:not(:empty)").wait_for()
    assert (await text(answer.locator(".is-running pre"))).startswith("line 1")
    visit.duet.pace_s = 0.0
    await answer.locator(".badge.good").wait_for()


@pytest.mark.parametrize("way", ["button", "escape"])
async def test_an_answer_is_stopped_in_the_middle(visit: Visit, way: str) -> None:
    answer = await visit.say("slow", wait=False)
    await answer.locator(".draft:not(:empty)").wait_for()
    if way == "button":
        await visit.page.click("#stop")
    else:
        await visit.page.keyboard.press("Escape")
    await answer.locator(".notes").wait_for()
    assert await text(answer.locator(".notes")) == "Stopped by Local user."
    await until_gone(visit.page, "#stop")


async def test_a_reset_is_asked_about_first(visit: Visit) -> None:
    await visit.say("What about hotfixes?")
    await visit.page.click("#reset")
    assert await visit.page.evaluate("document.activeElement.value") == "keep", "the safe choice has the focus"
    await visit.page.keyboard.press("Escape")
    assert await visit.page.locator(".turn").count() == 1
    await visit.page.click("#reset")
    await visit.page.click("dialog button.danger")
    await visit.page.locator("#welcome").wait_for()
    assert await visit.page.locator(".turn").count() == 0
    assert await text(visit.page.locator("#title")) == "New session"


async def test_a_reset_that_left_something_says_so(visit: Visit) -> None:
    visit.duet.sandbox_is_stuck = True
    await visit.page.click("#reset")
    await visit.page.click("dialog button.danger")
    fault = visit.page.locator("#log .fault")
    await fault.wait_for()
    assert "The sandbox could not be removed yet." in await text(fault)


async def test_a_reload_in_mid_answer_loses_nothing(visit: Visit) -> None:
    answer = await visit.say("slow", wait=False)
    await answer.locator(".draft:not(:empty)").wait_for()
    await visit.page.reload()
    answer = visit.page.locator(".turn .answer")
    await answer.locator(".draft:not(:empty)").wait_for()
    assert await text(visit.page.locator(".said")) == "slow"
    visit.duet.go_on.set()
    await answer.locator(".prose").wait_for()
    assert len(visit.duet.heard) == 1
    await visit.page.reload()
    await visit.page.locator(".turn .prose").wait_for()
    assert await visit.page.locator(".turn").count() == 1


async def test_after_a_reload_answers_have_their_sources_and_commands_again(visit: Visit) -> None:
    await visit.say("What about hotfixes?")
    await visit.say("/run ls exit 3")
    await visit.page.reload()
    await visit.page.locator(".turn .command").wait_for()
    assert await visit.page.locator(".turn .source").count() == 1
    assert await text(visit.page.locator(".own-command")) == "ls exit 3"
    assert await text(visit.page.locator(".badge")) == "exit 3"


async def test_two_tabs_show_one_conversation(visit: Visit) -> None:
    await visit.say("What about hotfixes?")
    other = await visit.open()
    await other.locator(".turn .prose").wait_for()

    async def dawdle(route: Any) -> None:
        await asyncio.sleep(0.4)  # the other tab must not ask for what the server has not heard yet
        await route.continue_()

    await visit.page.route(f"{visit.address}/v1/turns", dawdle)
    await visit.say("slow", wait=False)
    await other.locator(".turn").nth(1).locator(".draft:not(:empty)").wait_for()
    visit.duet.go_on.set()
    await other.locator(".turn").nth(1).locator(".prose").wait_for()
    await visit.say("say from the other tab", page=other)
    await visit.page.locator(".turn").nth(2).locator(".prose").wait_for()
    assert len(visit.duet.heard) == 3
    await visit.page.click("#reset")
    await visit.page.click("dialog button.danger")
    await other.locator("#welcome").wait_for()


async def test_sessions_are_listed_and_chosen(visit: Visit) -> None:
    await visit.say("What about hotfixes?")
    await visit.page.click("#new-session")
    await visit.page.locator("#welcome").wait_for()
    await visit.say("say second")
    names = await visit.page.locator(".session").all_inner_texts()
    assert names == ["say second", "What about hotfixes?"]
    await visit.page.click(".session >> text=What about hotfixes?")
    await visit.page.locator(".turn .source").wait_for()
    assert await text(visit.page.locator("#title")) == "What about hotfixes?"
    await visit.page.locator(".sessions li", has_text="say second").hover()
    await visit.page.locator(".sessions li", has_text="say second").locator(".remove").click()
    assert await visit.page.locator(".session").all_inner_texts() == ["What about hotfixes?"]


async def test_a_failed_answer_is_tried_again_in_its_place(visit: Visit) -> None:
    answer = await visit.say("fail")
    assert "c0ffee" in await text(answer.locator(".fault"))
    await answer.locator(".again").click()
    await answer.locator(".prose:not(.fault .prose)").wait_for()
    assert await visit.page.locator(".turn").count() == 1
    assert await answer.locator(".fault").count() == 0


async def test_a_command_that_waits_is_approved(visit: Visit) -> None:
    answer = await visit.say("ask rm -rf build")
    assert await text(answer.locator(".ticket pre")) == "rm -rf build"
    await answer.locator(".ticket .primary").click()
    await answer.locator(".badge.good").wait_for()


async def test_the_prompt_history_shows_what_was_sent(visit: Visit) -> None:
    await visit.say("What about hotfixes?")
    await visit.page.click("#open-log")
    panel = visit.page.locator("#panel")
    await panel.locator(".call").wait_for()
    assert "fake-model · 840 ms · first words after 210 ms · 812 + 64 tokens" in await text(panel)
    await panel.locator("summary", has_text="Sent: 2 messages").click()
    assert "Local user: What about hotfixes?" in await text(panel)
    await panel.locator("summary", has_text="Found: 1 section").click()
    assert await text(panel.locator("td.score")) == "7.31"
    async with visit.page.expect_download() as download:
        await panel.locator("a", has_text="Download as Markdown").click()
    saved = await (await download.value).path()
    assert "### Sent" in saved.read_text("utf-8")
    await visit.page.keyboard.press("Escape")
    assert await visit.page.evaluate("document.activeElement.id") == "open-log"


async def test_the_codex_is_browsed_and_searched(visit: Visit) -> None:
    await visit.page.click("#open-codex")
    panel = visit.page.locator("#panel")
    await panel.locator(".document").first.locator("summary").click()
    await panel.locator(".section-link", has_text="Hotfix branches").click()
    await panel.locator(".prose").wait_for()
    assert await text(panel.locator("#panel-title")) == "Hotfix branches"
    await panel.locator("#panel-back").click()
    await panel.locator("#codex-search").fill("pager rotation")
    await visit.page.keyboard.press("Enter")
    await panel.locator(".hit").first.wait_for()
    await panel.locator(".hit").first.click()
    await panel.locator(".prose").wait_for()
    await panel.locator("#panel-back").click()
    assert await panel.locator(".hit").count() > 0


async def test_code_and_answers_are_copied(visit: Visit) -> None:
    await visit.context.grant_permissions(["clipboard-read", "clipboard-write"])
    answer = await visit.say("What about hotfixes?")
    await answer.locator(".code-frame .copy").click()
    assert await visit.page.evaluate("navigator.clipboard.readText()") == "hotfix/LF-1533-login-loop\n"
    await answer.locator(".actions button").click()
    assert (await visit.page.evaluate("navigator.clipboard.readText()")).startswith("Name the branch `hotfix/")


async def test_the_whole_page_works_by_keyboard_alone(visit: Visit) -> None:
    press, page = visit.page.keyboard.press, visit.page
    focus = "document.activeElement.id || document.activeElement.className"
    assert await page.evaluate(focus) == "message"
    await page.keyboard.type("What about hotfixes?")
    await press("Shift+Enter")
    await page.keyboard.type("Briefly.")
    assert await page.input_value("#message") == "What about hotfixes?\nBriefly."
    await press("Enter")
    await page.locator(".answer .source").wait_for()
    await press("ArrowUp")
    assert await page.input_value("#message") == "What about hotfixes?\nBriefly."
    await page.fill("#message", "")
    reached = set()
    for _ in range(40):
        await press("Tab")
        reached.add(await page.evaluate(focus))
    wanted = {"new-session", "open-codex", "theme", "open-log", "reset", "scroller", "marker", "message", "send"}
    assert wanted <= reached, wanted - reached
    await page.evaluate("document.activeElement.blur()")
    await press("/")
    assert await page.evaluate(focus) == "message"
    await page.focus("#open-log")
    await press("Enter")
    await page.locator(".call").wait_for()
    assert await page.evaluate(focus) == "panel-title"
    await press("Escape")
    assert await page.evaluate(focus) == "open-log"
    await page.focus("#reset")
    await press("Enter")
    await press("Tab")
    await press("Enter")
    await page.locator("#welcome").wait_for()


async def test_the_focus_can_be_seen(visit: Visit) -> None:
    await visit.page.keyboard.press("Tab")
    for _ in range(8):
        await visit.page.keyboard.press("Tab")
        width = await visit.page.evaluate("parseFloat(getComputedStyle(document.activeElement).outlineWidth)")
        assert width >= 1


async def test_a_finished_answer_is_announced_once_and_drafts_never(visit: Visit) -> None:
    await visit.page.evaluate(
        """() => { window.said = [];
        new MutationObserver(() => { const t = document.getElementById('announce').textContent; if (t) said.push(t); })
          .observe(document.getElementById('announce'), {childList: true, characterData: true, subtree: true}); }"""
    )
    answer = await visit.say("slow", wait=False)
    await answer.locator(".draft:not(:empty)").wait_for()
    visit.duet.go_on.set()
    await visit.page.wait_for_function("() => said.length > 0")
    await visit.page.wait_for_timeout(300)
    (said,) = await visit.page.evaluate("said")
    assert said.startswith("Duet: A branch is short-lived.")
    assert said.rstrip().endswith("Done.")
    live = "[...document.querySelectorAll('[aria-live=polite], [role=status], [role=alert]')].map(n => n.id)"
    assert await visit.page.evaluate(live) == ["announce"]


async def test_a_server_that_is_gone_is_told_and_not_waited_for(visit: Visit) -> None:
    visit.duet.store_is_down = True
    answer = await visit.say("What about hotfixes?")
    assert "nothing was stored" in await text(answer.locator(".fault"))
    visit.duet.store_is_down = False
    await answer.locator(".again").click()
    await answer.locator(".source").wait_for()
    assert len(visit.duet.heard) == 1
    assert [fault[:3] for fault in visit.faults] == ["503"]
    visit.faults.clear()


@pytest.mark.parametrize("status", [401, 503])
async def test_what_was_asked_while_logged_out_or_without_a_store_is_asked_afterwards(
    visit: Visit, status: int
) -> None:
    async def refuse(route: Any) -> None:
        await route.fulfill(status=status, json={"error": "not now"})

    await visit.page.route(f"{visit.address}/v1/turns", refuse, times=1)
    await visit.say("What about hotfixes?", wait=False)
    if status == 503:
        await visit.page.locator(".fault", has_text="not now").wait_for()
        await visit.page.reload()
    await visit.page.locator(".answer .source").wait_for()  # 401 leads to the form, which leads here without a token
    assert len(visit.duet.heard) == 1
    assert [fault[:3] for fault in visit.faults] == [str(status)]
    visit.faults.clear()


async def test_the_page_works_where_the_browser_keeps_nothing(visit: Visit) -> None:
    closed = "Object.defineProperty(window, '{}', {{get() {{ throw new DOMException('', 'SecurityError'); }}}});"
    await visit.context.add_init_script("".join(map(closed.format, ("localStorage", "sessionStorage"))))
    await visit.page.reload()
    await visit.say("What about hotfixes?")
    await visit.page.click("#theme")
    assert await visit.page.locator(".session").all_inner_texts() == ["What about hotfixes?"]


async def test_what_comes_late_is_not_shown_in_another_panel(visit: Visit) -> None:
    held: list[Any] = []

    async def hold(route: Any) -> None:
        held.append(route)

    await visit.page.route(f"{visit.address}/prompt-history?*", hold)
    await visit.page.click("#open-log")
    while not held:
        await visit.page.wait_for_timeout(20)
    await visit.page.click("#open-codex")
    await visit.page.locator(".document").first.wait_for()
    async with visit.page.expect_response("**/prompt-history?*"):
        await held[0].continue_()
    await visit.page.evaluate("new Promise(requestAnimationFrame)")
    assert await text(visit.page.locator("#panel-title")) == "Codex"
    assert await visit.page.locator(".document").count() == 5


async def test_a_prompt_history_goes_with_its_session_and_with_a_reset(visit: Visit) -> None:
    for leave in ("#new-session", "#reset"):
        await visit.say("What about hotfixes?")
        await visit.page.click("#open-log")
        await visit.page.locator(".call").wait_for()
        await visit.page.click(leave)
        if leave == "#reset":
            await visit.page.click("dialog button.danger")
        await visit.page.locator("#panel").wait_for(state="hidden")


@pytest.mark.parametrize(
    ("path", "clicks", "shown"),
    [
        ("health", [], "#model"),
        ("v1/sessions/*", [], "#log .fault"),
        ("v1/codex/documents", ["#open-codex"], "#panel .fault"),
        ("v1/codex/sections?*", ["#open-codex", ".document summary"], "#panel .fault"),
        ("v1/codex/section?*", ["#open-codex", ".document summary", ".section-link"], "#panel .fault"),
        ("prompt-history?*", ["#open-log"], "#panel .fault"),
    ],
)
@pytest.mark.parametrize("way", ["refused", "unreachable"])
async def test_whatever_cannot_be_read_is_said_in_its_place(
    visit: Visit, path: str, clicks: list[str], shown: str, way: str
) -> None:
    async def fail(route: Any) -> None:
        if way == "unreachable":
            await route.abort("connectionrefused")
        else:
            await route.fulfill(status=503, json={"error": "the index is being moved"})

    await visit.page.route(f"{visit.address}/{path}", fail)
    await visit.page.reload()
    for place in clicks:
        await visit.page.locator(place).first.click()
    said = {"refused": "the index is being moved", "unreachable": "The server cannot be reached."}[way]
    await visit.page.locator(shown, has_text=said).wait_for()
    assert {fault[:3] for fault in visit.faults} <= {"503"}
    visit.faults.clear()


@pytest.mark.parametrize("way", ["waiting", "reload"])
async def test_what_is_said_to_a_server_out_of_reach_is_asked_once_when_it_is_back(visit: Visit, way: str) -> None:
    tried = 0

    async def gone(route: Any) -> None:
        nonlocal tried
        tried += 1
        await route.abort("connectionrefused")

    await visit.page.route(f"{visit.address}/v1/turns", gone)
    answer = await visit.say("What about hotfixes?", wait=False)
    while tried < 2:
        await visit.page.wait_for_timeout(20)
    await visit.page.unroute(f"{visit.address}/v1/turns")
    if way == "reload":
        await visit.page.reload()
        answer = visit.page.locator(".turn .answer")
    await answer.locator(".source").wait_for()
    assert await text(visit.page.locator(".said")) == "What about hotfixes?"
    assert len(visit.duet.heard) == 1


async def test_a_retry_whose_reply_is_lost_is_done_once(visit: Visit) -> None:
    answer = await visit.say("fail")
    lost = 0

    async def lose_the_reply(route: Any) -> None:
        nonlocal lost
        lost += 1
        if lost == 1:
            await route.fetch()
            await route.abort("connectionreset")
        else:
            await route.continue_()

    await visit.page.route(f"{visit.address}/v1/turns/*/retry?*", lose_the_reply)
    await answer.locator(".again").click()
    await answer.locator(".prose:not(.fault .prose)").wait_for()
    assert len({turn.id for turn in visit.duet.heard}) == len(visit.duet.heard) == 2


async def test_the_theme_follows_the_system_until_one_is_chosen(visit: Visit) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light = await visit.page.evaluate(ground)
    await visit.page.emulate_media(color_scheme="dark")
    dark = await visit.page.evaluate(ground)
    assert light != dark
    await visit.page.click("#theme")
    assert await text(visit.page.locator("#theme-name")) == "Theme: light"
    assert await visit.page.evaluate(ground) == light
    await visit.page.click("#theme")
    await visit.page.emulate_media(color_scheme="light")
    await visit.page.reload()
    assert await visit.page.evaluate(ground) == dark


@pytest.mark.parametrize(("width", "height"), [(320, 640), (640, 400)])
async def test_nothing_scrolls_sideways_at_320_pixels_or_at_double_size(visit: Visit, width: int, height: int) -> None:
    page = visit.page
    await page.set_viewport_size({"width": width, "height": height})
    wide = "w" * 300
    await visit.say("What about hotfixes?")
    await visit.say(
        f"say {wide} `{wide}` https://example.com/{wide}\n\n|{'|'.join('col' * 5 for _ in range(9))}|\n|{'-|' * 9}"
    )
    await visit.say(f"/run echo {wide} exit 3")
    await visit.say("fail")
    await visit.say(f"ask rm -rf {wide}")
    ticket = "(pre => pre.scrollWidth <= pre.clientWidth)(document.querySelector('.ticket pre'))"
    assert await page.evaluate(ticket), "whoever says yes has seen all of it"
    scroller = "document.getElementById('scroller')"
    sideways = f"document.documentElement.scrollWidth > innerWidth || {scroller}.scrollWidth > {scroller}.clientWidth"
    assert not await page.evaluate(sideways)
    await page.click("#open-log")
    await page.locator(".call").first.wait_for()
    body = "document.getElementById('panel-body')"
    assert not await page.evaluate(f"{sideways} || {body}.scrollWidth > {body}.clientWidth")
    await page.click("#close-panel")
    await page.click("#open-sidebar")
    assert not await page.evaluate(sideways)
    await page.click(".session")
    assert await page.locator("#sidebar").is_hidden()
    await page.click("#open-sidebar")
    await page.focus("#message")
    assert await page.locator("#sidebar").is_hidden(), "the drawer goes when the focus goes elsewhere"
