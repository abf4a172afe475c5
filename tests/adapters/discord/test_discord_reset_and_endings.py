"""Reset in its scopes, and what ends when a channel, a thread or a server goes away; restarts and absences."""

from __future__ import annotations

import asyncio

import pytest

from bot.conversation import RoomKey
from tests.adapters.discord.world import QUESTION, is_draft


def room_of(w, channel=None):
    return RoomKey("discord", str(w.guild.id), str((channel or w.channel).id))


async def opened_thread(w):
    starter = await w.alice.send(w.channel, "let us talk")
    await w.env.bot.get_channel(w.channel.id).get_partial_message(starter.id).create_thread(name="talk")
    return w.channel.threads[-1]


async def thread_with_a_conversation(w):
    thread = await opened_thread(w)
    await w.ask(channel=thread)
    await w.settled(1, thread)
    return thread


async def told_cleared(w, result):
    await w.until(lambda: "cleared" in result.response.content)
    return result.response.content


async def test_reset_in_a_channel_clears_every_session_and_the_sandbox_and_says_so_to_all(world):
    async with world() as w:
        await w.ask()
        await w.settled()
        thread = await thread_with_a_conversation(w)
        result = await w.alice.slash(w.channel, "duet reset")
        said = await told_cleared(w, result)
        assert not result.ephemeral
        assert "alice cleared this channel" in said
        assert w.shell.destroyed == [room_of(w)]
        for session in await w.duet.sessions(room_of(w)):
            assert await w.duet.history(session) == []
        assert thread.id


async def test_reset_in_a_thread_clears_that_thread_alone_and_says_so(world):
    async with world() as w:
        await w.ask()
        await w.settled()
        thread = await thread_with_a_conversation(w)
        said = await told_cleared(w, await w.alice.slash(thread, "duet reset"))
        assert "this conversation" in said
        assert w.shell.destroyed == []
        kept = [s for s in await w.duet.sessions(room_of(w)) if await w.duet.history(s)]
        assert [session.thread for session in kept] == [None]


async def test_reset_in_a_thread_can_mean_the_whole_channel(world):
    async with world() as w:
        thread = await thread_with_a_conversation(w)
        said = await told_cleared(w, await w.alice.slash(thread, "duet reset", scope="channel"))
        assert "this channel" in said
        assert w.shell.destroyed == [room_of(w)]


async def test_a_mention_that_says_reset_never_reaches_the_model(world):
    async with world(discord_threads=True) as w:
        await w.ask("reset")
        await w.until(lambda: any("cleared this channel" in m.content for m in w.mine()))
        assert w.model.calls == []
        assert w.channel.threads == []


async def test_a_reset_ends_a_running_turn_and_nothing_of_it_is_posted_after_the_confirmation(world):
    async with world() as w:
        w.model.hold = asyncio.Event()
        await w.ask()
        await w.until(lambda: [m for m in w.mine() if is_draft(m)])
        result = await w.bob.slash(w.channel, "duet reset")
        await told_cleared(w, result)
        before = [(m.id, m.content) for m in w.mine()]
        w.model.hold.set()
        await w.quiet()
        assert [(m.id, m.content) for m in w.mine()] == before
        assert "Cancelled by a reset" in before[0][1]


async def test_a_stuck_room_is_freed_by_a_reset(world):
    async with world() as w:
        w.model.hold = asyncio.Event()
        await w.ask()
        await w.ask("what about for hotfixes?", who=w.bob)
        await told_cleared(w, await w.alice.slash(w.channel, "duet reset"))
        w.model.hold = None
        await w.ask()
        await w.until(lambda: "Branches are named" in w.mine()[-1].content)


async def test_a_deleted_channel_ends_its_room_without_a_word(world):
    async with world() as w:
        channel = w.guild.create_text_channel("doomed")
        await w.ask(channel=channel)
        await w.settled(1, channel)
        room = room_of(w, channel)
        await w.env.bot.get_channel(channel.id).delete()
        await w.env.settle()
        await w.until(lambda: room in w.shell.destroyed)
        await w.quiet()
        for session in await w.duet.sessions(room):
            assert await w.duet.history(session) == []


async def test_a_deleted_thread_ends_its_session_alone(world):
    async with world() as w:
        await w.ask()
        await w.settled()
        thread = await thread_with_a_conversation(w)
        await w.env.bot.get_channel(thread.id).delete()
        await w.env.settle()
        await w.quiet()
        kept = [s for s in await w.duet.sessions(room_of(w)) if await w.duet.history(s)]
        assert [session.thread for session in kept] == [None]
        assert w.shell.destroyed == []


async def test_being_removed_from_a_server_ends_its_rooms(world):
    async with world() as w:
        await w.ask()
        await w.settled()
        room = room_of(w)
        await w.env.bot.get_guild(w.guild.id).leave()
        await w.env.settle()
        await w.until(lambda: room in w.shell.destroyed)
        await w.quiet()


async def test_a_channel_that_is_gone_while_its_answer_is_made_ends_the_room(world):
    async with world() as w:
        w.env.inject_error("POST", "/channels/*/messages", status=404, code=10003, times=2)
        await w.ask()
        await w.until(lambda: room_of(w) in w.shell.destroyed)
        await w.quiet()


async def test_a_message_told_twice_is_answered_once(world):
    async with world() as w:
        await w.ask()
        await w.settled()
        payload = next(
            p for kind, name, p in w.env.backend.transcript if name == "MESSAGE_CREATE" and kind == "GATEWAY"
        )
        w.env.backend.emit("MESSAGE_CREATE", payload)
        await w.env.settle()
        await w.quiet()
        assert len(w.mine()) == 1
        assert len(w.model.calls) == 1


async def test_a_message_told_again_after_a_restart_is_answered_once(world):
    async with world() as w:
        await w.ask()
        await w.settled()
        await w.restart()
        payload = next(
            p for kind, name, p in w.env.backend.transcript if name == "MESSAGE_CREATE" and kind == "GATEWAY"
        )
        w.env.backend.emit("MESSAGE_CREATE", payload)
        await w.env.settle()
        await w.quiet()
        assert len(w.mine()) == 1


async def test_a_second_ready_registers_nothing_and_repeats_nothing(world):
    async with world() as w:
        await w.ask()
        await w.settled()
        puts = [r for r in w.env.http_requests if r.method == "PUT"]
        await w.front.on_ready()
        await w.quiet()
        assert [r for r in w.env.http_requests if r.method == "PUT"] == puts
        assert len(puts) == 1
        assert len(w.mine()) == 1


async def test_a_restart_registers_nothing_when_no_command_changed(world):
    async with world() as w:
        await w.restart()
        assert len([r for r in w.env.http_requests if r.method == "PUT"]) == 1


async def test_mentions_missed_while_away_are_answered(world):
    async with world() as w:
        await w.ask()
        await w.settled()
        await w.go_away()
        missed = w.env.backend.create_message(w.channel.id, w.bob.id, f"{w.me} what about for hotfixes?")
        w.env.backend.create_message(w.channel.id, w.bob.id, "not for Duet")
        await w.come_back()
        answers = await w.settled(2)
        assert answers[1].reference.message_id == missed.id


async def test_mentions_missed_too_long_ago_are_named_in_their_channel(world):
    async with world(discord_catch_up_s=60) as w:
        await w.ask()
        await w.settled()
        await w.go_away()
        w.env.backend.create_message(w.channel.id, w.bob.id, f"{w.me} {QUESTION}")
        w.env.backend.advance_clock(3600)
        await w.come_back()
        await w.until(lambda: "missed a question here" in w.mine()[-1].content)
        await w.quiet()
        assert len(w.model.calls) == 1


async def test_a_draft_left_by_a_crash_becomes_the_answer(world):
    async with world() as w:
        w.model.hold = asyncio.Event()
        await w.ask()
        draft = await w.until(lambda: next((m for m in w.mine() if is_draft(m)), None))
        w.model.hold = None
        await w.restart()
        [answer] = await w.settled()
        assert answer.id == draft.id
        assert "Branches are named" in answer.content


@pytest.mark.parametrize("is_forgotten", [False, True], ids=["known", "forgotten"])
async def test_a_question_deleted_while_it_is_answered_leaves_nothing_also_when_discord_py_forgot_it(
    world, is_forgotten
):
    async with world() as w:
        w.model.hold = asyncio.Event()
        thread = await opened_thread(w)
        for channel in (w.channel, thread):
            asked = await w.ask(channel=channel)
            await w.until(lambda channel=channel: [m for m in w.mine(channel) if is_draft(m)])
            if is_forgotten:
                w.env.bot._connection._messages.clear()
            await w.alice.delete(asked)
            await w.until(lambda channel=channel: not w.mine(channel))
        w.model.hold.set()
        await w.quiet()
        assert w.mine() == w.mine(thread) == []


async def test_questions_deleted_all_at_once_leave_nothing_also_when_discord_py_forgot_them(world):
    async with world() as w:
        w.model.hold = asyncio.Event()
        asked = [await w.ask(), await w.ask(who=w.bob)]
        await w.until(lambda: [m for m in w.mine() if is_draft(m)])
        w.env.bot._connection._messages.clear()
        ids = [str(message.id) for message in asked]
        gone = {"ids": ids, "channel_id": str(w.channel.id), "guild_id": str(w.guild.id)}
        w.env.backend.emit("MESSAGE_DELETE_BULK", gone)
        await w.until(lambda: not w.mine())
        w.model.hold.set()
        await w.quiet()
        assert w.mine() == []


async def test_a_deleted_message_that_was_no_question_leaves_no_trace(world):
    async with world() as w:
        said = await w.alice.send(w.channel, "nothing for Duet")
        w.env.bot._connection._messages.clear()
        await w.alice.delete(said)
        await w.env.settle()
        assert await w.duet.rooms() == []
