"""Drafts at Discord's pace: the newest wins, and neither the core nor the final text waits for one."""

from __future__ import annotations

import asyncio

from adapters.discord.drafts import Drafts
from adapters.pacing import Pacer
from bot.conversation import Body, Part, RoomKey, SessionKey


def draft(text: str, *, key: str = "k", channel: str = "1") -> Part:
    session = SessionKey(RoomKey("discord", "g", channel))
    return Part(key, "1", session, 0, {"channel": channel}, Body({"content": text}), ref="1/1")


class Editor:
    """Notes what it is told to edit; `gate` holds an edit up while it is under way."""

    def __init__(self) -> None:
        self.edits: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def edit(self, part: Part) -> None:
        self.edits.append(str(part.body.content["content"]))
        await self.gate.wait()


async def test_of_many_drafts_in_one_second_the_first_and_the_newest_are_shown():
    editor = Editor()
    drafts = Drafts(Pacer(period_s=0.2), editor.edit)
    for n in range(5):
        drafts.put(draft(str(n)))
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.4)
    assert editor.edits == ["0", "4"]


async def test_the_end_drops_what_waits_at_once():
    editor = Editor()
    drafts = Drafts(Pacer(period_s=30), editor.edit)
    drafts.put(draft("shown"))
    await asyncio.sleep(0.02)
    drafts.put(draft("waits"))
    await asyncio.sleep(0.02)
    async with asyncio.timeout(1):
        await drafts.end("k")
    assert editor.edits == ["shown"]


async def test_the_end_waits_for_an_edit_under_way_so_that_the_final_text_comes_last():
    editor = Editor()
    editor.gate.clear()
    drafts = Drafts(Pacer(period_s=0.01), editor.edit)
    drafts.put(draft("under way"))
    await asyncio.sleep(0.02)
    ending = asyncio.create_task(drafts.end("k"))
    await asyncio.sleep(0.02)
    assert not ending.done()
    editor.gate.set()
    await ending
    assert editor.edits == ["under way"]


async def test_a_busy_channel_holds_no_other_up():
    editor = Editor()
    drafts = Drafts(Pacer(period_s=30), editor.edit)
    drafts.put(draft("a"))
    await asyncio.sleep(0.01)
    drafts.put(draft("a later"))
    drafts.put(draft("b", key="other", channel="2"))
    await asyncio.sleep(0.02)
    assert editor.edits == ["a", "b"]
    await drafts.close()


async def test_an_edit_that_fails_ends_no_later_draft():
    edits = []

    async def edit(part: Part) -> None:
        edits.append(part.body.content["content"])
        if len(edits) == 1:
            raise RuntimeError("no")

    drafts = Drafts(Pacer(period_s=0.01), edit)
    drafts.put(draft("1"))
    await asyncio.sleep(0.03)
    drafts.put(draft("2"))
    await asyncio.sleep(0.03)
    assert edits == ["1", "2"]
