"""Buttons: approve, deny, stop, try again, feedback, sources; also after a restart, also too late."""

from __future__ import annotations

import asyncio

from bot.conversation import Ended
from bot.errors import ModelUnreachable
from bot.policy import Policy
from tests.adapters.discord.world import QUESTION

ASKING = Policy(commands="ask")


async def asked_for_a_command(w):
    w.model.replies = ["I will look. <run>ls -la</run>", "There is one file."]
    await w.ask("list the files here")
    [card] = await w.settled()
    return card


async def test_the_card_shows_the_command_and_approving_runs_it_once(world):
    async with world(policy=ASKING) as w:
        card = await asked_for_a_command(w)
        assert "`ls -la`" in card.content
        assert w.shell.ran == []
        result = await w.bob.click(card, label="Approve")
        assert result.acknowledged
        await w.settled(2)
        assert w.shell.ran == ["ls -la"]
        said = [m.content for m in w.mine()]
        assert "Approved by bob" in said[0]
        assert "There is one file." in said[1]
        assert w.mine()[0].components == []


async def test_pressing_approve_twice_runs_the_command_once_and_the_second_is_told_alone(world):
    async with world(policy=ASKING) as w:
        card = await asked_for_a_command(w)
        await w.bob.click(card, label="Approve")
        late = await w.alice.click(card, label="Approve") if card.components else None
        await w.settled(2)
        assert w.shell.ran == ["ls -la"]
        assert late is None or all(m.ephemeral for m in late.followups)


async def test_denying_runs_nothing_and_says_who_denied(world):
    async with world(policy=ASKING) as w:
        card = await asked_for_a_command(w)
        await w.bob.click(card, label="Deny")
        await w.until(lambda: "Denied by bob" in w.mine()[0].content)
        await w.quiet()
        assert w.shell.ran == []
        assert len(w.mine()) == 1


async def test_a_button_works_after_a_restart(world):
    async with world(policy=ASKING) as w:
        card = await asked_for_a_command(w)
        await w.restart()
        await w.bob.click(card, label="Approve")
        await w.settled(2)
        assert w.shell.ran == ["ls -la"]


async def test_a_ticket_from_before_a_reset_is_void_and_only_the_presser_hears_it(world):
    async with world(policy=ASKING) as w:
        card = await asked_for_a_command(w)
        reset = await w.alice.slash(w.channel, "duet reset")
        await w.until(lambda: "cleared" in reset.response.content)
        result = await w.bob.click(card, label="Approve")
        await w.until(lambda: result.followups)
        assert result.followups[0].ephemeral
        assert w.shell.ran == []


async def test_stop_ends_a_running_answer(world):
    async with world() as w:
        w.model.hold = asyncio.Event()
        await w.ask()
        draft = await w.until(lambda: next((m for m in w.mine() if m.components), None))
        result = await w.bob.click(draft, label="Stop")
        assert result.ephemeral
        await w.until(lambda: "Stopped by bob" in w.mine()[0].content)
        await w.quiet()
        assert w.mine()[0].components == []


async def test_a_failed_answer_can_be_tried_again(world):
    async with world() as w:
        w.model.replies = [ModelUnreachable("The language model cannot be reached.")]
        await w.ask()
        [failed] = await w.settled()
        assert "cannot be reached" in failed.content
        assert "Incident" in failed.content
        await w.bob.click(failed, label="Try again")
        await w.settled(2)
        assert "Branches are named" in w.mine()[-1].content


async def test_feedback_is_kept_with_the_turn(world):
    async with world() as w:
        await w.ask()
        [answer] = await w.settled()
        result = await w.bob.click(answer, label="👍")
        assert result.ephemeral
        assert result.response.content == "Thank you, noted."


async def test_the_sources_button_lists_them_to_the_presser_alone(world):
    async with world() as w:
        await w.ask()
        [answer] = await w.settled()
        result = await w.bob.click(answer, label="Sources")
        assert result.ephemeral
        assert "[1]" in result.response.content


async def test_an_ended_command_keeps_no_buttons_and_says_how_it_ended(world):
    async with world() as w:
        result = await w.alice.slash(w.channel, "duet run", command="true")
        await w.until(lambda: "exit 0 · 0.1 s" in result.response.content)
        assert result.response.components == []
        assert Ended.EXIT == "exit"


async def test_a_card_older_than_its_token_is_changed_where_it_stands(world):
    async with world(policy=ASKING) as w:
        result = await w.alice.slash(w.channel, "duet run", command="ls -la")
        await w.until(lambda: result.response.components)
        await w.quiet()
        await w.env.advance_time(20 * 60)
        await w.bob.click(result.response.message, label="Approve")
        await w.settled(2)
        assert "Approved by bob" in result.response.content
        assert result.response.components == []
        assert len(w.mine()) == 2
        assert w.shell.ran == ["ls -la"]


async def asked_in_private(w, question):
    asked = await w.alice.slash(w.channel, "duet ask", question=question, private=True)
    await w.until(lambda: asked.response.components)
    await w.quiet()
    return asked.response.message


async def test_what_comes_of_a_private_card_is_seen_by_that_person_alone(world):
    async with world(policy=ASKING) as w:
        w.model.replies = ["I will look. <run>ls -la</run>", "There is one file."]
        card = await asked_in_private(w, "list the files here")
        pressed = await w.alice.click(card, label="Approve")
        await w.until(lambda: any("There is one file." in m.content and m.ephemeral for m in pressed.followups))
        await w.quiet()
        assert w.shell.ran == ["ls -la"]
        assert w.mine() == []


async def test_a_private_answer_that_is_tried_again_stays_private_and_comes_directly_when_the_token_ends(world):
    async with world() as w:
        w.model.replies = [ModelUnreachable("The language model cannot be reached.")] * 2
        failed = await asked_in_private(w, QUESTION)
        again = await w.alice.click(failed, label="Try again")
        await w.until(lambda: [m for m in again.followups if m.ephemeral and "cannot be reached" in m.content])
        await w.quiet()
        w.env.inject_error("POST", "/webhooks/*", status=401, code=50027, times=None)
        await w.alice.click(again.followups[0].message, label="Try again")
        direct = w.alice.user.dm_channel
        await w.until(lambda: [m for m in w.mine(direct) if "Branches are named" in m.content])
        await w.quiet()
        assert w.mine() == []
