"""What is posted: once, in order, in pieces that fit, and each refusal of Discord with its remedy."""

from __future__ import annotations

import asyncio

import discord
import pytest

from tests.adapters.discord.world import ACTION

FENCE = "```"


async def answer_to(w, reply, *, parts=1):
    w.model.replies = [reply]
    await w.ask(ACTION)
    return await w.settled(parts)


async def test_a_long_answer_comes_in_order_and_every_part_replies_to_the_question(world):
    async with world() as w:
        text = "\n\n".join(f"Paragraph {n}: " + "word " * 60 for n in range(13))
        w.model.replies = [text]
        asked = await w.ask(ACTION)
        parts = await w.settled(3)
        assert all(len(m.content) <= 2000 for m in parts)
        assert all(m.reference.message_id == asked.id for m in parts)
        whole = "".join(m.content for m in parts)
        assert [whole.index(f"Paragraph {n}:") for n in range(13)] == sorted(
            whole.index(f"Paragraph {n}:") for n in range(13)
        )
        assert [bool(m.components) for m in parts] == [False, False, True]


async def test_an_answer_of_sixty_thousand_characters_is_one_part_and_a_file(world):
    async with world() as w:
        [part] = await answer_to(w, "The rule.\n\n" + "lorem ipsum " * 5000)
        assert len(part.content) <= 2000
        assert [file.filename for file in part.attachments] == ["answer.md"]
        assert "The whole answer" in part.content


async def test_a_block_of_code_over_several_parts_is_closed_and_reopened_in_its_language(world):
    async with world() as w:
        code = "\n".join(f"print({n})" for n in range(300))
        parts = await answer_to(w, f"See:\n{FENCE}py\n{code}\n{FENCE}", parts=2)
        assert all(m.content.count(FENCE) % 2 == 0 for m in parts)
        assert sum(f"{FENCE}py\n" in m.content for m in parts) == len(parts)


async def test_the_draft_is_edited_into_the_answer_and_never_a_second_message(world):
    async with world() as w:
        w.model.hold = asyncio.Event()
        await w.ask()
        [draft] = await w.until(lambda: w.mine())
        assert draft.content.endswith("-# …")
        w.model.hold.set()
        [answer] = await w.settled()
        assert answer.id == draft.id


async def test_every_post_carries_a_nonce_of_its_part_and_pings_nobody(world):
    async with world() as w:
        await answer_to(w, "Ask @everyone and <@&123456789012345678>.")
        [post] = w.sent()
        assert len(post.json["nonce"]) <= 25
        assert post.json["enforce_nonce"] is True
        assert post.json["allowed_mentions"] == {"parse": [], "replied_user": False}
        assert post.json["flags"] == 4
        edits = [r for r in w.env.http_requests if r.method == "PATCH"]
        assert edits
        assert all(r.json["allowed_mentions"]["parse"] == [] for r in edits)


async def test_follow_ups_to_an_interaction_ping_nobody_either(world):
    async with world() as w:
        w.model.replies = ["Ask @everyone."]
        result = await w.alice.slash(w.channel, "duet ask", question=ACTION)
        await w.until(lambda: "Ask @" in result.response.content)
        await w.quiet()
        assert not result.response.message.mention_everyone
        edits = [r for r in w.env.http_requests if r.method == "PATCH"]
        assert all(r.json["allowed_mentions"]["parse"] == [] for r in edits)


async def test_output_that_opens_a_fence_stays_inside_its_own(world):
    async with world() as w:
        w.shell.output = lambda code: "```\n@everyone\n```\n"
        result = await w.alice.slash(w.channel, "duet run", command="cat README")
        await w.until(lambda: "exit 0" in result.response.content)
        assert result.response.content.count(FENCE) == 2
        assert not result.response.message.mention_everyone


async def test_long_output_is_shown_from_both_ends_and_whole_in_a_file(world):
    async with world() as w:
        w.shell.output = lambda code: "\n".join(f"line {n}" for n in range(2000))
        result = await w.alice.slash(w.channel, "duet run", command="seq")
        await w.until(lambda: "exit 0" in result.response.content and result.response.attachments)
        assert "line 0\n" in result.response.content
        assert "line 1999" in result.response.content
        assert [f.filename for f in result.response.attachments] == ["output.txt"]
        assert len(w.mine()) == 1


async def test_parts_beyond_the_first_of_an_interaction_go_to_the_channel_with_a_nonce(world):
    async with world() as w:
        w.model.replies = ["\n\n".join("word " * 70 for _ in range(12))]
        result = await w.alice.slash(w.channel, "duet ask", question=ACTION)
        parts = await w.settled(2)
        assert parts[0].id == result.response.id
        assert result.followups == []
        assert all(post.json["nonce"] for post in w.sent(path=f"/channels/{w.channel.id}/messages"))


async def test_an_edit_of_a_message_that_a_moderator_deleted_posts_the_answer_anew(world):
    async with world() as w:
        w.model.hold = asyncio.Event()
        await w.ask()
        draft = await w.until(lambda: next((m for m in w.mine() if m.components), None))
        w.env.backend.delete_message(w.channel.id, draft.id)
        w.model.hold.set()
        [answer] = await w.settled()
        assert answer.id != draft.id
        assert "Branches are named" in answer.content


async def test_a_question_that_was_deleted_is_withdrawn(world):
    async with world() as w:
        w.model.hold = asyncio.Event()
        asked = await w.ask()
        await w.until(w.mine)
        await w.alice.delete(asked)
        await w.quiet()
        assert not any("Branches are named after" in m.content for m in w.mine())
        w.model.hold.set()
        await w.quiet()
        assert len(w.model.calls) == 1


@pytest.mark.parametrize("code", [30046, 10008])
async def test_a_message_too_old_to_edit_is_posted_anew(world, code):
    async with world() as w:
        w.model.hold = asyncio.Event()
        await w.ask()
        await w.until(lambda: next((m for m in w.mine() if m.components), None))
        w.env.inject_error("PATCH", "/channels/*/messages/*", status=400, code=code, times=None)
        w.model.hold.set()
        await w.until(lambda: any(m.content.startswith("Branches are named `type/short-d") for m in w.mine()[1:]))


async def test_a_form_that_discord_refuses_goes_without_the_reference_and_then_as_a_file(world):
    async with world() as w:
        w.env.inject_error("POST", "/channels/*/messages", status=400, code=50035, times=2)
        await w.ask()
        await w.settled()
        posts = w.sent()
        assert "message_reference" in posts[0].json
        assert "message_reference" not in posts[1].json
        assert len(posts) == 3


async def test_missing_the_permission_to_send_tells_the_asker_directly_and_names_it(world):
    async with world() as w:
        denied = discord.PermissionOverwrite(send_messages=False)
        channel = w.guild.create_text_channel("closed", overwrites={w.guild.me: denied})
        await w.ask(channel=channel)
        direct = w.alice.user.dm_channel
        await w.until(lambda: w.mine(direct))
        await w.quiet()
        [told] = w.mine(direct)
        assert f"<#{channel.id}>" in told.content
        assert "Missing: Send Messages" in told.content
        await w.ask(channel=channel)
        await w.quiet()
        assert len(w.mine(direct)) == 1
        assert w.mine(channel) == []


async def test_nothing_is_lost_where_a_closed_channel_and_closed_direct_messages_meet(world):
    async with world() as w:
        w.env.inject_error("POST", "/channels/*/messages", status=403, code=50013, times=3)
        w.env.inject_error("POST", "/users/@me/channels", status=403, code=50007, times=None)
        await w.ask()
        await w.quiet()
        await w.ask()
        await w.settled()


async def test_an_archived_thread_is_opened_again(world):
    async with world() as w:
        starter = await w.alice.send(w.channel, "talk")
        await w.env.bot.get_channel(w.channel.id).get_partial_message(starter.id).create_thread(name="talk")
        thread = w.channel.threads[0]
        w.env.inject_error("POST", f"/channels/{thread.id}/messages", status=400, code=50083)
        await w.ask(channel=thread)
        await w.settled(1, thread)
        assert any(r.method == "PATCH" and r.json == {"archived": False} for r in w.env.http_requests)


@pytest.mark.parametrize(("status", "code"), [(403, 160005), (403, 50001)])
async def test_a_locked_thread_tells_the_asker_and_tries_no_more(world, status, code):
    async with world() as w:
        w.env.inject_error("POST", f"/channels/{w.channel.id}/messages", status=status, code=code, times=None)
        await w.ask()
        direct = w.alice.user.dm_channel
        await w.until(lambda: w.mine(direct))
        await w.quiet()
        assert len([r for r in w.sent() if str(w.channel.id) in r.path]) <= 3


async def test_a_server_fault_is_tried_again_until_it_is_over_and_posts_once(world):
    async with world() as w:
        w.env.inject_error("POST", "/channels/*/messages", status=503, times=2)
        await w.ask()
        await w.settled()
        assert len(w.mine()) == 1


async def test_a_thread_limit_leaves_the_answer_in_the_channel(world):
    async with world(discord_threads=True) as w:
        w.env.inject_error("POST", "/channels/*/messages/*/threads", status=400, code=160006)
        await w.ask()
        [answer] = await w.settled()
        assert "Branches are named" in answer.content


async def test_an_answer_without_the_permission_to_attach_says_so(world):
    async with world() as w:
        denied = discord.PermissionOverwrite(attach_files=False)
        channel = w.guild.create_text_channel("plain", overwrites={w.guild.me: denied})
        w.shell.output = lambda code: "x\n" * 2000
        w.env.inject_error("PATCH", "/channels/*/messages/*", status=403, code=50013)
        w.model.replies = ["<run>yes</run>", "Done."]
        w.model.hold = asyncio.Event()
        await w.ask(ACTION, channel=channel)
        w.model.hold.set()
        await w.until(lambda: [m for m in w.mine(channel) if "may not attach files" in m.content])
        assert w.mine(channel)[0].content.count(FENCE) % 2 == 0


async def test_typing_is_shown_while_a_mention_is_worked_on(world):
    async with world() as w:
        w.model.hold = asyncio.Event()
        await w.ask()
        await w.until(lambda: any(r.path.endswith("/typing") for r in w.env.http_requests))
        w.model.hold.set()
        await w.settled()
        assert w.front.outlet._typing == {}
