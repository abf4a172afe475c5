"""One authoriser for every way in: it fails closed, answers before anything is deferred, and tells the person alone."""

from __future__ import annotations

import pytest

from bot.conversation import RoomKey, SessionKey
from bot.policy import Policy
from tests.adapters.discord.world import QUESTION

NOBODY = Policy(askers=("1",))


async def test_a_refused_slash_command_is_answered_ephemerally_and_leaves_no_trace(world):
    async with world(policy=NOBODY) as w:
        for name, options in (
            ("ask", {"question": QUESTION}),
            ("run", {"command": "ls"}),
            ("get", {"path": "report.csv"}),
            ("reset", {}),
            ("sources", {}),
            ("status", {}),
            ("help", {}),
        ):
            result = await w.alice.slash(w.channel, f"duet {name}", **options)
            assert result.ephemeral, name
            assert not result.deferred, name
            assert "not on the list" in result.response.content, name
        assert await w.duet.rooms() == []
        assert w.shell.ran == []


async def test_a_refused_person_gets_no_completions(world):
    async with world(policy=NOBODY) as w:
        assert await w.alice.autocomplete(w.channel, "duet sources", "document", "branch") == []


async def test_a_refused_menu_is_answered_ephemerally(world):
    async with world(policy=NOBODY) as w:
        said = await w.bob.send(w.channel, QUESTION)
        result = await w.alice.context_menu(w.channel, "Ask Duet about this", said)
        assert result.ephemeral
        assert "not on the list" in result.response.content


async def test_a_refused_mention_never_reaches_the_model(world):
    async with world(policy=NOBODY) as w:
        await w.ask()
        [refused] = await w.settled()
        assert "not on the list" in refused.content
        assert w.model.calls == []


def let_reset(w, *ids):
    """Give the right to reset to these people or roles, which have ids only once the world is there."""
    policy = Policy(resetters=tuple(map(str, ids)))
    w.duet.policy = w.front._entry.gate._policy = w.duet._resetting._policy = policy


async def test_a_role_opens_the_gate_to_those_who_have_it(world):
    async with world() as w:
        role = w.guild.create_role("ops")
        carol = w.guild.add_member(w.env.create_user("carol"), roles=[role])
        let_reset(w, role.id)
        refused = await w.alice.slash(w.channel, "duet reset")
        assert refused.ephemeral
        assert "may reset here" in refused.response.content
        allowed = await carol.slash(w.channel, "duet reset")
        await w.until(lambda: "cleared" in allowed.response.content)


async def test_a_role_counts_for_nothing_in_a_direct_message(world):
    async with world() as w:
        role = w.guild.create_role("ops")
        carol = w.guild.add_member(w.env.create_user("carol"), roles=[role])
        let_reset(w, role.id)
        result = await carol.user.slash("duet reset")
        await w.until(lambda: "may reset here" in result.response.content)


@pytest.mark.parametrize("action", ["approve", "deny"])
async def test_a_button_pressed_by_somebody_who_may_not_decides_nothing(world, action):
    async with world(policy=Policy(commands="ask", approvers=("1",))) as w:
        w.model.replies = ["I will look. <run>ls</run>"]
        await w.ask("list the files here")
        [card] = await w.settled()
        result = await w.bob.click(card, label=action.title())
        assert result.ephemeral
        assert "may approve here" in result.response.content
        assert w.shell.ran == []
        room = RoomKey("discord", str(w.guild.id), str(w.channel.id))
        assert await w.duet.sessions(room) == [SessionKey(room)]


async def test_a_strangers_slash_command_in_a_direct_message_is_refused_after_the_look_up(world):
    async with world() as w:
        stranger = w.env.create_user("mallory")
        result = await stranger.slash("duet ask", question=QUESTION)
        await w.until(lambda: "people from outside" in result.response.content)
        told = await stranger.slash("duet status")
        assert "people from outside" in told.response.content
        assert w.model.calls == []


async def test_a_member_may_use_slash_commands_in_a_direct_message(world):
    async with world() as w:
        result = await w.alice.user.slash("duet ask", question=QUESTION)
        await w.until(lambda: "Branches are named" in result.response.content)


async def test_every_decision_leaves_a_line_without_names_or_text(world, caplog):
    caplog.set_level("INFO")
    async with world(policy=NOBODY) as w:
        await w.alice.slash(w.channel, "duet run", command="cat secret")
        [line] = [r for r in caplog.records if r.name == "adapters.discord.gate"]
        assert line.getMessage() == f"Refused {w.alice.id} to run in {w.channel.id}"
        assert line.action == "refused"


async def test_help_by_mention_is_for_those_who_may_ask(world):
    async with world(policy=NOBODY) as w:
        for text in ("help", ""):
            said = len(w.mine())
            await w.ask(text)
            await w.until(lambda said=said: len(w.mine()) > said)
        assert all("not on the list" in m.content for m in w.mine())
        assert await w.duet.rooms() == []


async def test_a_stranger_who_writes_help_directly_gets_none(world):
    async with world() as w:
        stranger = w.env.create_user("mallory")
        await stranger.send_dm("help")
        direct = stranger.dm_channel
        await w.until(lambda: w.mine(direct))
        assert "people from outside" in w.mine(direct)[0].content


async def test_who_must_be_looked_up_is_told_after_a_deferral_that_only_they_see(world):
    async with world() as w:
        for name in ("status", "help", "sources"):
            result = await w.alice.user.slash(f"duet {name}")
            first = next(r for r in reversed(w.env.http_requests) if r.path.endswith("/callback"))
            assert (first.json["type"], first.json["data"]["flags"]) == (5, 64), name
            assert result.response.content
            assert result.followups == []
