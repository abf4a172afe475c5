"""What went while Duet was away ends at the next ready, and what only looks as if it were gone stays."""

from __future__ import annotations

import asyncio

from bot.conversation import Author, RoomKey, SessionKey, Standing, Turn
from tests.adapters.discord.test_discord_reset_and_endings import room_of, thread_with_a_conversation
from tests.adapters.discord.world import PATIENCE_S


async def back_after(w, happens):
    """Let something happen while Duet is away."""
    await w.quiet()
    await w.go_away()
    happens()
    await w.come_back()
    await w.env.settle()


async def until_forgotten(w, session):
    async with asyncio.timeout(PATIENCE_S):
        while await w.duet.history(session):
            await asyncio.sleep(0.01)


async def test_a_channel_deleted_while_away_ends_its_room(world):
    async with world() as w:
        doomed = w.guild.create_text_channel("doomed")
        for channel in (doomed, w.channel):
            await w.ask(channel=channel)
            await w.settled(1, channel)
        await back_after(w, lambda: w.env.backend.delete_channel(doomed.id))
        await w.until(lambda: room_of(w, doomed) in w.shell.destroyed)
        await until_forgotten(w, SessionKey(room_of(w, doomed)))
        assert await w.duet.history(SessionKey(room_of(w)))
        assert w.shell.destroyed == [room_of(w, doomed)]


async def test_a_thread_deleted_while_away_ends_its_conversations_alone(world):
    async with world() as w:
        await w.ask()
        await w.settled()
        thread = await thread_with_a_conversation(w)
        await w.alice.slash(thread, "duet ask", question="just for me", private=True)
        await back_after(w, lambda: w.env.backend.delete_channel(thread.id))
        for name in (str(thread.id), f"{thread.id}~{w.alice.id}"):
            await until_forgotten(w, SessionKey(room_of(w), name))
        assert await w.duet.history(SessionKey(room_of(w)))
        assert w.shell.destroyed == []


async def test_a_deleted_thread_ends_the_private_conversations_in_it(world):
    async with world() as w:
        thread = await thread_with_a_conversation(w)
        await w.alice.slash(thread, "duet ask", question="just for me", private=True)
        await w.quiet()
        await w.env.bot.get_channel(thread.id).delete()
        for name in (str(thread.id), f"{thread.id}~{w.alice.id}"):
            await until_forgotten(w, SessionKey(room_of(w), name))


async def test_a_server_left_while_away_ends_its_rooms(world):
    async with world() as w:
        await w.ask()
        await w.settled()
        room = room_of(w)
        await w.front.on_ready()  # simcord's servers come after the first one
        await back_after(w, lambda: w.env.backend.remove_guild(w.guild.id))
        await w.until(lambda: room in w.shell.destroyed)
        await until_forgotten(w, SessionKey(room))


async def test_an_archived_thread_is_not_gone(world):
    async with world() as w:
        thread = await thread_with_a_conversation(w)
        await w.quiet()
        seen = w.env.bot.get_channel(thread.id)
        await seen.edit(archived=True)
        seen.guild._remove_thread(seen)  # at a ready Discord does not tell of those
        await w.front._endings.run()
        await w.quiet()
        assert await w.duet.history(SessionKey(room_of(w), str(thread.id)))


async def test_a_channel_that_discord_does_not_show_or_cannot_tell_about_is_not_gone(world):
    async with world() as w:
        await w.ask()
        await w.settled()
        for status, code in ((403, 50001), (500, 0), (404, 0)):
            w.env.bot.get_guild(w.guild.id)._remove_channel(w.env.bot.get_channel(w.channel.id) or w.channel)
            w.env.inject_error("GET", "/channels/*", status=status, code=code, times=5)
            await w.front._endings.run()
            await w.quiet()
            assert await w.duet.history(SessionKey(room_of(w)))


async def test_a_server_with_an_outage_is_not_gone_nor_are_its_channels(world):
    async with world() as w:
        await w.ask()
        await w.settled()
        guild = w.env.bot.get_guild(w.guild.id)
        guild.unavailable = True
        guild._clear_threads()
        guild._channels.clear()
        w.env.inject_error("GET", "/channels/*", status=404, code=10003)
        await w.front._endings.run()
        await w.quiet()
        assert await w.duet.history(SessionKey(room_of(w)))


async def test_a_server_that_a_ready_leaves_out_but_discord_knows_is_not_gone(world):
    async with world() as w:
        await w.ask()
        await w.settled()
        await w.front.on_ready()
        w.env.bot._connection._guilds.clear()
        await w.front._endings.run()
        await w.quiet()
        assert await w.duet.history(SessionKey(room_of(w)))


async def test_a_room_in_a_server_that_duet_was_never_in_stays(world):
    async with world() as w:
        room = RoomKey("discord", "123456789012345678", "223456789012345678")
        reply_to = {"way": "interaction", "channel": room.channel, "guild": room.space, "author": "1", "member": ""}
        asker = Author("1", "alice", Standing.MEMBER)
        await w.duet.hear(Turn("323456789012345678", SessionKey(room), asker, "hello", 0, reply_to=reply_to))
        await w.quiet()
        await w.front._endings.run()
        await w.quiet()
        assert await w.duet.history(SessionKey(room))


async def test_a_question_whose_thread_could_not_be_opened_keeps_its_conversation(world):
    async with world(discord_threads=True) as w:
        w.env.inject_error("POST", "/channels/*/messages/*/threads", status=403, code=50013)
        asked = await w.ask()
        await w.settled()
        await back_after(w, lambda: None)
        await w.quiet()
        assert await w.duet.history(SessionKey(room_of(w), str(asked.id)))
