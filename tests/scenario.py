"""One suite of scenes for every platform, against a small `Peer`: a guard against doubles that mirror our mistakes.

Each scene is an async function that takes a peer with the shipped `duet serve` behind it, the sample Codex and no
language model. A platform plugs in by implementing `Peer`; `tests/adapters/test_scenario.py` lists them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

QUESTION = "What is our branch naming convention?"
ANSWER = "short-description"  # stands in the answer to it
SOURCE = "branch-naming.md"
UNCOVERED = "What is our policy on office plants?"

WAIT_S = 20.0


@dataclass(frozen=True)
class Seen:
    """A message of Duet's as a person reads it: every text in it, and the labels of its buttons."""

    id: str
    text: str
    buttons: tuple[str, ...] = ()


class Peer(Protocol):
    """A platform with people in it: `alice` and `bob`, one channel, Duet among its members."""

    name: str

    async def mention(self, text: str, *, by: str = "alice", thread: str | None = None) -> str:
        """Mention Duet; give the thread (or whatever stands for it) in which the answer is awaited."""
        ...

    async def again(self) -> None:
        """Let the platform deliver the last mention once more, as it would when an acknowledgement was lost."""
        ...

    async def command(self, words: str, *, by: str = "alice") -> str:
        """Give a slash command, such as `reset`; give what came back at once ('' when nothing did)."""
        ...

    async def press(self, message: Seen, label: str, *, by: str = "alice") -> None: ...

    async def seen(self, thread: str | None = None) -> list[Seen]:
        """Give Duet's messages of a thread, or of the whole channel, oldest first."""
        ...


Scene = Callable[[Peer], Awaitable[None]]


async def until(peer: Peer, wanted: Callable[[list[Seen]], bool], *, thread: str | None = None) -> list[Seen]:
    """Wait until what is seen is as wanted, and give it."""
    deadline = time.monotonic() + WAIT_S
    while True:
        seen = await peer.seen(thread)
        if wanted(seen):
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"{peer.name}: not seen within {WAIT_S} s; there is {seen}")
        await asyncio.sleep(0.05)


def says(text: str, *, times: int = 1) -> Callable[[list[Seen]], bool]:
    """Tell whether at least `times` messages say `text`, and none is still being made."""
    return lambda seen: (
        sum(text in message.text for message in seen) >= times and not any("Stop" in m.buttons for m in seen)
    )


async def a_mention_is_answered_with_its_source(peer: Peer) -> None:
    thread = await peer.mention(QUESTION)
    (answer,) = await until(peer, says(ANSWER), thread=thread)
    assert SOURCE in answer.text


async def a_mention_delivered_again_is_answered_once(peer: Peer) -> None:
    thread = await peer.mention(QUESTION)
    await until(peer, says(ANSWER), thread=thread)
    await peer.again()
    await asyncio.sleep(1.0)
    assert len(await peer.seen(thread)) == 1


async def what_the_standards_do_not_cover_is_said(peer: Peer) -> None:
    thread = await peer.mention(UNCOVERED)
    (answer,) = await until(peer, lambda seen: len(seen) == 1 and "Stop" not in seen[0].buttons, thread=thread)
    assert "standard" in answer.text.lower() or "codex" in answer.text.lower()
    assert ANSWER not in answer.text


async def two_people_ask_at_once_and_both_are_answered(peer: Peer) -> None:
    threads = await asyncio.gather(peer.mention(QUESTION), peer.mention(QUESTION, by="bob"))
    for thread in set(threads):
        await until(peer, says(ANSWER), thread=thread)


async def a_follow_up_in_the_thread_is_answered_there(peer: Peer) -> None:
    thread = await peer.mention(QUESTION)
    await until(peer, says(ANSWER), thread=thread)
    same = await peer.mention("And how are hotfix branches named?", by="bob", thread=thread)
    assert same == thread
    await until(peer, lambda seen: len(seen) >= 2 and "Stop" not in seen[-1].buttons, thread=thread)


async def help_comes_at_once(peer: Peer) -> None:
    assert "reset" in (await peer.command("help")).lower()


async def the_standards_are_listed(peer: Peer) -> None:
    assert SOURCE in await peer.command("sources")


async def reset_says_who_cleared_the_channel(peer: Peer) -> None:
    thread = await peer.mention(QUESTION)
    await until(peer, says(ANSWER), thread=thread)
    await peer.command("reset", by="bob")
    seen = await until(peer, says("cleared"))
    assert any("bob" in message.text.lower() for message in seen if "cleared" in message.text)
    again = await peer.mention(QUESTION)
    await until(peer, says(ANSWER), thread=again)


async def feedback_can_be_given(peer: Peer) -> None:
    thread = await peer.mention(QUESTION)
    seen = await until(peer, says(ANSWER), thread=thread)
    label = next(b for b in seen[0].buttons if b in ("Helpful", "👍"))
    await peer.press(seen[0], label)


SCENES: tuple[Scene, ...] = (
    a_mention_is_answered_with_its_source,
    a_mention_delivered_again_is_answered_once,
    what_the_standards_do_not_cover_is_said,
    two_people_ask_at_once_and_both_are_answered,
    a_follow_up_in_the_thread_is_answered_there,
    help_comes_at_once,
    the_standards_are_listed,
    feedback_can_be_given,
    reset_says_who_cleared_the_channel,
)
