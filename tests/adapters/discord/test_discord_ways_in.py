"""Mentions, replies, direct messages, slash commands, menus: each becomes one answered turn in the right session."""

from __future__ import annotations

import asyncio

import discord

from bot.conversation import RoomKey, SessionKey
from bot.policy import Policy
from tests.adapters.discord.world import QUESTION


async def sessions(w, channel=None):
    room = RoomKey("discord", str(w.guild.id), str((channel or w.channel).id))
    return await w.duet.sessions(room)


async def test_a_mention_is_answered_once_with_its_sources(world):
    async with world() as w:
        asked = await w.ask()
        [answer] = await w.settled()
        assert "Branches are named" in answer.content
        assert "[1]" in answer.content
        assert "(<https://codex.example/" in answer.content
        assert answer.reference.message_id == asked.id
        assert await sessions(w) == [SessionKey(RoomKey("discord", str(w.guild.id), str(w.channel.id)))]


async def test_a_slash_command_is_answered_in_the_deferred_message(world):
    async with world() as w:
        result = await w.alice.slash(w.channel, "duet ask", question=QUESTION)
        assert result.deferred
        await w.until(lambda: "Branches are named" in result.response.content)
        await w.quiet()
        assert len(w.mine()) == 1


async def test_the_follow_up_by_reply_needs_no_mention_in_its_text_and_has_the_memory_of_the_first(world):
    async with world() as w:
        await w.ask()
        [answer] = await w.settled()
        await w.alice.send(w.channel, "what about for hotfixes?", reply_to=answer)
        await w.settled(2)
        sent = w.model.calls[-1].messages
        assert any("What is our branch naming convention?" in message.content for message in sent[:-1])
        assert "what about for hotfixes?" in sent[-1].content


async def test_a_message_that_does_not_address_duet_is_left_alone(world):
    async with world(discord_message_content=True) as w:
        await w.alice.send(w.channel, "What is our branch naming convention?")
        await w.alice.send(w.channel, "@everyone What is our branch naming convention?")
        asked = await w.alice.send(w.channel, "hello")
        await w.bob.send(w.channel, "hello yourself", reply_to=asked)
        await w.quiet()
        assert w.mine() == []
        assert w.model.calls == []


async def test_a_direct_message_is_answered_for_who_shares_a_server(world):
    async with world() as w:
        await w.alice.send_dm(QUESTION)
        await w.settled(1, w.alice.user.dm_channel)
        assert "Branches are named" in w.mine(w.alice.user.dm_channel)[-1].content


async def test_a_direct_message_of_a_stranger_is_refused(world):
    async with world() as w:
        stranger = w.env.create_user("mallory")
        await stranger.send_dm(QUESTION)
        [refused] = await w.settled(1, stranger.dm_channel)
        assert "people from outside" in refused.content
        assert w.model.calls == []


async def test_bots_and_webhooks_are_ignored_even_when_they_mention_or_reply_to_duet(world):
    async with world() as w:
        await w.ask()
        [answer] = await w.settled()
        robot = w.guild.add_member(w.env.create_user("robot", bot=True))
        await w.ask(who=robot)
        await robot.send(w.channel, "thanks", reply_to=answer)
        await w.guild.create_webhook(w.channel).send(f"{w.me} {QUESTION}")
        await w.quiet()
        assert len(w.mine()) == 1
        assert len(w.model.calls) == 1


async def test_a_thread_is_a_session_of_its_parent_channels_room(world):
    async with world() as w:
        starter = await w.alice.send(w.channel, "let us talk")
        thread = await thread_on(w, starter)
        await w.ask(channel=thread)
        await w.settled(1, thread)
        assert await sessions(w) == [SessionKey(RoomKey("discord", str(w.guild.id), str(w.channel.id)), str(thread.id))]
        assert w.mine(w.channel) == []


async def thread_on(w, message):
    await w.env.bot.get_channel(message.channel.id).get_partial_message(message.id).create_thread(name="talk")
    return w.channel.threads[-1]


async def test_a_mention_opens_a_thread_where_that_is_set_and_the_thread_is_the_session(world):
    async with world(discord_threads=True) as w:
        asked = await w.ask()
        await w.until(lambda: w.channel.threads)
        thread = w.channel.threads[0]
        assert thread.id == asked.id
        assert thread.name == QUESTION
        await w.settled(1, thread)
        assert [key.thread for key in await sessions(w)] == [str(asked.id)]
        await w.ask("what about for hotfixes?", channel=thread)
        await w.settled(2, thread)
        assert [key.thread for key in await sessions(w)] == [str(asked.id)]
        assert [m for m in w.mine() if m.type is discord.MessageType.default] == []


async def test_without_the_permission_to_open_a_thread_the_answer_stands_in_the_channel(world):
    async with world(discord_threads=True) as w:
        denied = discord.PermissionOverwrite(create_public_threads=False)
        channel = w.guild.create_text_channel("tight", overwrites={w.guild.me: denied})
        await w.ask(channel=channel)
        [answer] = await w.settled(1, channel)
        assert "Branches are named" in answer.content


async def test_a_refusal_opens_no_thread(world):
    async with world(discord_threads=True, policy=Policy(askers=("1",))) as w:
        asked = await w.ask()
        [refused] = await w.settled()
        assert "not on the list" in refused.content
        assert refused.reference.message_id == asked.id
        assert w.channel.threads == []


async def test_a_thread_that_exists_already_is_used(world):
    async with world(discord_threads=True) as w:
        w.env.inject_error("POST", "/channels/*/messages/*/threads", status=400, code=160004)
        asked = await w.ask()
        # Discord says that there is one, so the answer goes there; here there is none, and it is told so.
        await w.until(lambda: any(f"/channels/{asked.id}/messages" in r.path for r in w.env.http_requests))


async def test_voice_stage_and_forum_channels_are_answered_in_place(world):
    async with world(discord_threads=True) as w:
        for channel in (w.guild.create_voice_channel("voice"), w.guild.create_stage_channel("stage")):
            await w.ask(channel=channel)
            await w.settled(1, channel)
            assert channel.threads == []


async def test_a_forum_post_is_a_session(world):
    async with world() as w:
        forum = w.guild.create_forum_channel("help")
        made = await w.env.bot.get_channel(forum.id).create_thread(name="post", content="a question")
        post = next(thread for thread in forum.threads if thread.id == made.thread.id)
        before = len(w.mine(post))
        await w.ask(channel=post)
        await w.settled(before + 1, post)
        assert [key.thread for key in await sessions(w, forum)] == [str(post.id)]


async def test_the_menu_asks_about_a_message_that_did_not_mention_duet(world):
    async with world() as w:
        said = await w.bob.send(w.channel, QUESTION)
        result = await w.alice.context_menu(w.channel, "Ask Duet about this", said)
        await w.until(lambda: "Branches are named" in result.response.content)
        assert f"Help with this message from bob:\n{QUESTION}" in w.model.calls[0].question


async def test_a_text_attachment_is_the_question_when_nothing_else_was_said(world):
    async with world() as w:
        await w.alice.send(w.channel, w.me, attachments=[("message.txt", QUESTION.encode())])
        await w.settled()
        assert w.model.calls[0].question == QUESTION


async def test_a_text_attachment_is_read_and_another_file_is_named_as_not_read(world):
    async with world() as w:
        files = [("notes.md", b"our secret is 42"), ("photo.png", b"\x89PNG")]
        await w.alice.send(w.channel, f"{w.me} {QUESTION}", attachments=files)
        [answer] = await w.settled()
        assert "our secret is 42" in w.model.calls[0].messages[-1].content
        assert "photo.png was not read: it is not text." in answer.content
        assert w.shell.files == {"notes.md": b"our secret is 42", "photo.png": b"\x89PNG"}


async def test_a_slash_command_takes_a_file(world):
    async with world() as w:
        result = await w.alice.slash(w.channel, "duet ask", question=QUESTION, file=("a.txt", b"the file says 7"))
        await w.until(lambda: "Branches are named" in result.response.content)
        assert "the file says 7" in w.model.calls[0].messages[-1].content


async def test_a_forwarded_message_is_part_of_the_question(world):
    async with world() as w:
        said = await w.bob.send(w.channel, QUESTION)
        direct = w.alice.user.dm_channel
        await w.alice.forward(said, direct)
        await w.settled(1, direct)
        assert w.model.calls[0].question == f"About this forwarded message:\n{QUESTION}"


async def test_what_a_reply_replies_to_is_quoted_for_the_model(world):
    async with world(discord_message_content=True) as w:
        said = await w.bob.send(w.channel, "we call them topic branches")
        await w.alice.send(w.channel, f"{w.me} {QUESTION}", reply_to=said)
        await w.settled()
        assert "we call them topic branches" in w.model.calls[0].messages[-1].content


async def test_a_mention_without_a_question_is_answered_with_help(world):
    async with world() as w:
        await w.alice.send(w.channel, w.me)
        await w.until(w.mine)
        assert "/duet ask" in w.mine()[0].content
        assert w.model.calls == []


async def test_an_edit_that_adds_the_mention_counts_once(world):
    async with world() as w:
        said = await w.alice.send(w.channel, QUESTION)
        await w.alice.edit(said, f"{w.me} {QUESTION}")
        await w.settled()
        await w.alice.edit(said, f"{w.me} {QUESTION} please")
        await w.quiet()
        assert len(w.mine()) == 1


async def test_follow_ups_in_a_joined_thread_need_no_mention_with_the_message_content_intent(world):
    async with world(discord_threads=True, discord_message_content=True) as w:
        await w.ask()
        await w.until(lambda: w.channel.threads)
        thread = w.channel.threads[0]
        await w.settled(1, thread)
        await w.alice.send(thread, "what about for hotfixes?")
        await w.settled(2, thread)
        await w.alice.send(thread, f"{w.bob.mention} what do you think?")
        await w.quiet()
        assert len(w.mine(thread)) == 2


async def test_what_others_said_in_a_thread_is_read_only_as_far_back_as_its_reset(world):
    async with world(discord_message_content=True) as w:
        thread = await thread_on(w, await w.alice.send(w.channel, "let us talk"))
        await w.bob.send(thread, "the wombat convention is old")
        await w.ask(channel=thread)
        await w.settled(1, thread)
        assert "wombat" in w.model.calls[0].messages[-1].content


async def test_a_private_answer_is_seen_by_the_asker_alone_and_is_no_context_for_others(world):
    async with world() as w:
        result = await w.alice.slash(w.channel, "duet ask", question=QUESTION, private=True)
        assert result.ephemeral
        await w.until(lambda: "Branches are named" in result.response.content)
        await w.quiet()
        assert all(not m.flags.ephemeral or m.id == result.response.id for m in w.mine())
        assert not [m for m in w.channel.history(viewer=w.bob) if m.author.id == w.env.bot.user.id]
        await w.ask("what about for hotfixes?", who=w.bob)
        await w.until(lambda: len(w.model.calls) == 2)
        assert not any("branch naming convention" in m.content for m in w.model.calls[1].messages[1:-1])


async def test_the_last_sources_are_listed_to_the_asker_alone(world):
    async with world() as w:
        await w.ask()
        await w.settled()
        result = await w.bob.slash(w.channel, "duet sources")
        assert result.ephemeral
        assert "[1]" in result.response.content
        empty = await w.bob.slash(w.guild.create_text_channel("empty"), "duet sources")
        assert empty.response.content.startswith("Nothing was answered from the Codex here yet.")
        assert "branch-naming.md" in empty.response.content


async def test_a_documents_sections_are_listed_and_completed_as_one_types(world):
    async with world() as w:
        choices = await w.alice.autocomplete(w.channel, "duet sources", "document", "branch")
        assert [choice["value"] for choice in choices] == ["branch-naming.md"]
        result = await w.alice.slash(w.channel, "duet sources", document="branch-naming.md")
        assert "line 8" in result.response.content
        assert "](<https://codex.example/branch-naming.md" in result.response.content


async def test_the_last_sources_are_those_of_the_last_answer_that_had_some(world):
    async with world() as w:
        await w.ask()
        await w.settled()
        ran = await w.alice.slash(w.channel, "duet run", command="ls")
        await w.until(lambda: "exit 0" in ran.response.content)
        result = await w.bob.slash(w.channel, "duet sources")
        assert result.response.content.startswith("[1]")


async def test_words_that_name_no_document_are_searched_for(world):
    async with world() as w:
        result = await w.alice.slash(w.channel, "duet sources", document="who approves a pull request")
        assert result.ephemeral
        assert "](<https://codex.example/pr-review-policy.md" in result.response.content


async def test_status_and_help_answer_the_asker_alone(world):
    async with world() as w:
        for name, words in (("status", "scripted"), ("help", "/duet run")):
            result = await w.alice.slash(w.channel, f"duet {name}")
            assert result.ephemeral
            assert words in result.response.content


async def test_run_runs_a_command_and_shows_its_card(world):
    async with world() as w:
        result = await w.alice.slash(w.channel, "duet run", command="ls -la")
        await w.until(lambda: "exit 0" in result.response.content)
        assert w.shell.ran == ["ls -la"]
        assert "**$** `ls -la`" in result.response.content
        assert "ran ls -la" in result.response.content


async def test_a_question_of_nothing_but_spaces_is_refused_before_anything_is_stored(world):
    async with world() as w:
        result = await w.alice.slash(w.channel, "duet ask", question="  ")
        assert result.ephemeral
        assert "empty" in result.response.content
        assert await w.duet.rooms() == []


async def test_two_people_in_one_channel_are_answered_in_the_order_they_asked(world):
    async with world() as w:
        w.model.hold = asyncio.Event()
        first = await w.ask()
        second = await w.ask("what about for hotfixes?", who=w.bob)
        w.model.hold.set()
        answers = await w.settled(2)
        assert [m.reference.message_id for m in answers] == [first.id, second.id]


async def test_names_stand_for_ids_in_what_the_model_reads(world):
    async with world() as w:
        await w.ask(f"does {w.bob.mention} follow our branch naming convention in {w.channel.mention}?")
        await w.settled()
        assert "does @bob follow our branch naming convention in #general?" in w.model.calls[0].messages[-1].content


async def test_commands_off_refuses_run_before_deferring(world):
    async with world(policy=Policy(commands="off")) as w:
        result = await w.alice.slash(w.channel, "duet run", command="ls")
        assert result.ephemeral
        assert not result.deferred
        assert "switched off" in result.response.content


async def test_a_reply_without_its_ping_is_not_meant_for_duet(world):
    async with world() as w:
        await w.ask()
        [answer] = await w.settled()
        said = w.env.backend.create_message(
            w.channel.id, w.bob.id, "nice", reference={"channel_id": str(w.channel.id), "message_id": str(answer.id)}
        )
        assert said
        await w.env.settle()
        await w.quiet()
        assert all("/duet ask" not in m.content for m in w.mine())


async def test_a_mention_of_duets_role_is_answered_with_how_to_mention_it(world, monkeypatch):
    async with world() as w:
        monkeypatch.setattr("adapters.discord.listening.is_role_addressed", lambda message: bool(message.role_mentions))
        role = w.guild.create_role("Duet")
        await w.alice.send(w.channel, f"{role.mention} {QUESTION}")
        await w.until(w.mine)
        assert "You mentioned my role" in w.mine()[0].content


async def test_what_was_said_in_a_thread_is_read_oldest_first_without_duets_own_lines(world):
    async with world(discord_message_content=True) as w:
        thread = await thread_on(w, await w.alice.send(w.channel, "let us talk"))
        for n in range(3):
            await w.bob.send(thread, f"remark {n}")
        await w.ask(channel=thread)
        await w.settled(1, thread)
        await w.bob.send(thread, "remark 3")
        await w.ask("what about for hotfixes?", channel=thread)
        await w.settled(2, thread)
        read = w.model.calls[-1].messages[-1].content
        places = [read.index(f"remark {n}") for n in range(4)]
        assert places == sorted(places)
        assert "Branches are named" not in read[places[0] : places[-1]]


async def test_with_shards_each_server_is_answered(world):
    async with world(discord_shards=2) as w:
        far = w.env.create_guild("far", shard_id=1)
        channel = far.create_text_channel("general")
        dora = far.add_member(w.env.create_user("dora"))
        assert isinstance(w.front.client, discord.AutoShardedClient)
        await w.ask()
        await w.settled()
        await w.ask(who=dora, channel=channel)
        await w.settled(1, channel)
