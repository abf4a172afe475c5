"""One suite of scenes for every platform, against a small `Peer`: a guard against doubles that mirror our mistakes.

Each scene is an async function that takes a peer with the shipped `duet serve` behind it and the sample Codex. `SCENES`
are played with no language model; `WORK` with one that says what `replies` gives, where commands wait for a person's
yes (`DUET_COMMANDS=ask`) and run in a sandbox. A platform plugs in by implementing `Peer`;
`tests/adapters/all_peers.py` lists them.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

QUESTION = "What is our branch naming convention?"
ANSWER = "short-description"  # stands in the answer to it
SOURCE = "branch-naming.md"
UNCOVERED = "What is our policy on office plants?"

WAIT_S = 20.0


@dataclass(frozen=True)
class Seen:
    """A message of Duet's as a person reads it: every text in it, the labels of its buttons, the names of its files."""

    id: str
    text: str
    buttons: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


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

    async def read_file(self, message: Seen, name: str) -> str:
        """Open a file of a message, as a person would."""
        ...

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


# With a language model, a sandbox and DUET_COMMANDS=ask.

SING = "printf tra > song.txt; printf la >> song.txt; cat song.txt"
SONG = "trala"  # stands in its output alone
COUNT = "seq 5000"
COUNTED = "".join(f"{number}\n" for number in range(1, 5_001))
TOUCH = "printf touched > denied.txt"
LONG = "\n\n".join(f"Paragraph {number}: " + "word " * 60 for number in range(45))
WORD = "xylophone"
GONE = "No such file"


def replies(request: dict[str, Any]) -> str:
    """Give what the language model of these scenes says: it tells only what it was really given."""
    *earlier, last = (message["content"] for message in request["messages"])
    asked = {
        "run the song": f"I sing. <run>{SING}</run>",
        "run the count": f"I count. <run>{COUNT}</run>",
        "run the touch": f"I touch it. <run>{TOUCH}</run>",
        "write a long text": LONG,
        "write down the word": f"Noted: {WORD}.",
        "write what you recall": f"I recall {WORD if WORD in ' '.join(earlier) else 'nothing'}.",
        "branch naming": f"Branches are named `type/{ANSWER}` [1].",
        SONG: "It sang as it should.",
        "4999\n5000": "I counted to the end.",
    }
    return next((reply for words, reply in asked.items() if words in last), "I have nothing to say to that.")


def is_made(seen: list[Seen]) -> bool:
    return bool(seen) and not any("Stop" in message.buttons for message in seen)


def label_of(message: Seen, *labels: str) -> str:
    """Give the label that this platform has on the button."""
    return next(label for label in message.buttons if label in labels)


async def ids(peer: Peer) -> set[str]:
    return {message.id for message in await peer.seen()}


async def news(peer: Peer, known: set[str], wanted: Callable[[list[Seen]], bool]) -> list[Seen]:
    """Wait until what came to the channel since `known` is as wanted and nothing is being made; give it."""

    def new(seen: list[Seen]) -> list[Seen]:
        return [message for message in seen if message.id not in known]

    return new(await until(peer, lambda seen: is_made(seen) and wanted(new(seen))))


async def card_of(peer: Peer, known: set[str]) -> Seen:
    """Wait for the message that asks whether a command may run."""
    (card,) = await news(peer, known, lambda seen: any("Deny" in message.buttons for message in seen))
    return card


async def approve(peer: Peer, card: Seen, wanted: Callable[[list[Seen]], bool]) -> list[Seen]:
    """Say yes to a command; wait until what comes of it is as wanted, and give that."""
    known = await ids(peer)
    await peer.press(card, label_of(card, "Approve", "Run once"), by="bob")
    return await news(peer, known, wanted)


async def run(peer: Peer, code: str) -> str:
    """Run a command by hand, which waits for a person's yes as well; give what is shown of it in the end."""
    known = await ids(peer)
    await peer.command(f"run {code}")
    seen = await approve(peer, await card_of(peer, known), says("exit"))
    return seen[-1].text


async def the_model_answers_with_its_source_and_goes_on(peer: Peer) -> None:
    thread = await peer.mention(QUESTION)
    (answer,) = await until(peer, says(ANSWER), thread=thread)
    assert SOURCE in answer.text
    await peer.mention(f"write down the word {WORD}", by="bob", thread=thread)
    await until(peer, says(f"Noted: {WORD}"), thread=thread)
    await peer.mention("write what you recall", thread=thread)
    await until(peer, says(f"I recall {WORD}"), thread=thread)


async def a_person_runs_a_command(peer: Peer) -> None:
    assert "trail" in await run(peer, "printf tra; printf il")


async def a_command_of_the_models_runs_only_when_a_person_says_yes(peer: Peer) -> None:
    known = await ids(peer)
    await peer.mention("run the song")
    card = await card_of(peer, known)
    assert SING in card.text
    assert GONE in await run(peer, "cat song.txt")
    seen = await approve(peer, card, says("It sang as it should."))
    assert any(SONG in message.text for message in seen)
    decided = await as_decided(peer, card)
    assert re.search(r"Approved\W* by bob", decided.text)


async def a_denied_command_is_not_run(peer: Peer) -> None:
    known = await ids(peer)
    await peer.mention("run the touch")
    card = await card_of(peer, known)
    await peer.press(card, "Deny", by="bob")
    decided = await as_decided(peer, card)
    assert re.search(r"Denied\W* by bob", decided.text)
    assert GONE in await run(peer, "cat denied.txt")
    said = [message for message in await peer.seen() if message.id not in known and TOUCH in message.text]
    assert [message.id for message in said] == [card.id]


async def as_decided(peer: Peer, card: Seen) -> Seen:
    """Give what became of a message with buttons, when it has none any more."""
    seen = await until(peer, lambda seen: any(m.id == card.id and not m.buttons for m in seen))
    return next(message for message in seen if message.id == card.id)


async def long_output_is_shortened_and_whole_in_a_file(peer: Peer) -> None:
    known = await ids(peer)
    await peer.mention("run the count")
    card = await card_of(peer, known)
    told = says("I counted to the end.")
    seen = await approve(peer, card, lambda seen: told(seen) and any(m.files for m in seen))
    (holder,) = [message for message in seen if message.files]
    (name,) = holder.files
    assert (await peer.read_file(holder, name)).split() == COUNTED.split()
    shown = "\n".join(message.text for message in seen)
    assert "4999\n5000" in shown
    assert "2500" not in shown


async def a_long_answer_comes_whole_and_in_order(peer: Peer) -> None:
    """In messages of the platform's size, or shortened with all of it in a file."""
    thread = await peer.mention("write a long text about cats")

    def is_whole(seen: list[Seen]) -> bool:
        return is_made(seen) and any(m.files or "Paragraph 44:" in m.text for m in seen)

    seen = await until(peer, is_whole, thread=thread)
    holders = [message for message in seen if message.files]
    whole = await peer.read_file(holders[0], holders[0].files[0]) if holders else "\n".join(m.text for m in seen)
    told = [int(number) for number in re.findall(r"Paragraph (\d+):", whole)]
    assert list(dict.fromkeys(told)) == list(range(45))


async def after_a_reset_neither_word_nor_file_is_left(peer: Peer) -> None:
    thread = await peer.mention(f"write down the word {WORD}")
    await until(peer, says(f"Noted: {WORD}"), thread=thread)
    await run(peer, "printf sta > kept.txt; printf ys >> kept.txt")
    assert "stays" in await run(peer, "cat kept.txt")
    known = await ids(peer)
    await peer.command("reset", by="bob")
    await news(peer, known, says("cleared"))
    await peer.mention("write what you recall", thread=thread)
    await until(peer, says("I recall nothing."), thread=thread)
    assert GONE in await run(peer, "cat kept.txt")


WORK: tuple[Scene, ...] = (
    the_model_answers_with_its_source_and_goes_on,
    a_person_runs_a_command,
    a_command_of_the_models_runs_only_when_a_person_says_yes,
    a_denied_command_is_not_run,
    long_output_is_shortened_and_whole_in_a_file,
    a_long_answer_comes_whole_and_in_order,
    after_a_reset_neither_word_nor_file_is_left,
)
