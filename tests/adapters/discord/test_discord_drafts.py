"""Drafts at Discord's pace: the newest wins, and neither the core nor the final text waits for one."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from adapters.discord.drafts import Drafts
from adapters.pacing import Pacer
from bot.conversation import Body, Part, RoomKey, SessionKey
from bot.errors import OutletRefused


def draft(text: str, *, key: str = "k", channel: str = "1") -> Part:
    session = SessionKey(RoomKey("discord", "g", channel))
    return Part(key, "1", session, 0, {"channel": channel}, Body({"content": text}), ref="1/1")


class Slots(Pacer):
    """A pacer whose seconds go by when the test says so: one slot a channel is free, `free` gives more."""

    def __init__(self) -> None:
        super().__init__()
        self.free: dict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(1))

    async def slot(self, key: str) -> None:
        await self.free[key].acquire()


async def until(told) -> None:
    async with asyncio.timeout(30):
        while not told():
            await asyncio.sleep(0)


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
    editor, slots = Editor(), Slots()
    drafts = Drafts(slots, editor.edit)
    drafts.put(draft("0"))
    await until(lambda: editor.edits == ["0"])
    for n in range(1, 5):
        drafts.put(draft(str(n)))
        await asyncio.sleep(0)
    assert editor.edits == ["0"]
    slots.free["1"].release()
    await until(lambda: len(editor.edits) > 1)
    await drafts.close()
    assert editor.edits == ["0", "4"]


async def test_the_end_drops_what_waits_at_once():
    editor = Editor()
    drafts = Drafts(Slots(), editor.edit)
    drafts.put(draft("shown"))
    await until(lambda: editor.edits)
    drafts.put(draft("waits"))
    await asyncio.sleep(0)
    async with asyncio.timeout(30):  # no slot will ever be free
        await drafts.end("k")
    assert editor.edits == ["shown"]


async def test_the_end_waits_for_an_edit_under_way_so_that_the_final_text_comes_last():
    editor = Editor()
    editor.gate.clear()
    drafts = Drafts(Slots(), editor.edit)
    drafts.put(draft("under way"))
    await until(lambda: editor.edits)
    ending = asyncio.create_task(drafts.end("k"))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not ending.done()
    editor.gate.set()
    await ending
    assert editor.edits == ["under way"]


async def test_a_busy_channel_holds_no_other_up():
    editor = Editor()
    drafts = Drafts(Slots(), editor.edit)
    drafts.put(draft("a"))
    await until(lambda: editor.edits == ["a"])
    drafts.put(draft("a later"))
    drafts.put(draft("b", key="other", channel="2"))
    await until(lambda: editor.edits == ["a", "b"])
    await drafts.close()


async def test_an_edit_that_fails_ends_no_later_draft():
    edits = []

    async def edit(part: Part) -> None:
        edits.append(part.body.content["content"])
        if len(edits) == 1:
            raise RuntimeError("no")

    slots = Slots()
    drafts = Drafts(slots, edit)
    drafts.put(draft("1"))
    await until(lambda: edits == ["1"])
    slots.free["1"].release()
    drafts.put(draft("2"))
    await until(lambda: edits == ["1", "2"])


async def test_a_draft_that_is_refused_is_the_last_one_tried():
    edits = []

    async def edit(part: Part) -> None:
        edits.append(part.body.content["content"])
        raise OutletRefused("Duet cannot see this channel.")

    slots = Slots()
    drafts = Drafts(slots, edit)
    drafts.put(draft("1"))
    await until(lambda: edits == ["1"])
    drafts.put(draft("2"))
    slots.free["1"].release()
    drafts.put(draft("b", key="other"))
    await until(lambda: "b" in edits)
    assert edits == ["1", "b"]
    await drafts.end("k")
    drafts.put(draft("a new try"))
    slots.free["1"].release()
    await until(lambda: edits[-1] == "a new try")
