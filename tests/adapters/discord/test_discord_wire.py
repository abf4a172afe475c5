"""The shipped program against the wire double: sessions lost and resumed, limits, faults, and kills."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
import pytest_asyncio

from tests.adapters.discord.wire import ACTION, QUESTION, REPLY, Program, is_draft, on_the_wire
from tests.doubles.discord import FakeDiscord, Fault, until
from tests.scripted_model import Reply, ScriptedModel

pytestmark = pytest.mark.asyncio(loop_scope="module")

LONG = "\n\n".join(f"Paragraph {n}: " + "word " * 60 for n in range(13))


def replies(request):
    asked = request["messages"][-1]["content"]
    if "slowly" in asked:
        return Reply(REPLY, before_s=1.2)
    if "with a command" in asked:
        return "I look. <run>ls</run>"
    if "long text" in asked:
        return LONG
    return REPLY


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wire(tmp_path_factory):
    async with on_the_wire(tmp_path_factory.mktemp("wire") / "home", replies=replies, DUET_COMMANDS="ask") as shared:
        yield shared
        for channel in shared.owed:
            await shared.answers(1, channel)


@pytest_asyncio.fixture(loop_scope="module")
async def channel(wire, request):
    """Give a channel of the test's own in the shared server."""
    return await new_channel(wire, request.node.name[:30])


async def new_channel(wire, name):
    made = wire.discord.add_channel(name)
    await wire.discord.tell("CHANNEL_CREATE", wire.discord.channels[made])
    return made


async def answered_only(wire, channel, count):
    """Ask once more: when that is answered, all before it in the channel is, and no more than `count` were."""
    last = await wire.people.ask(QUESTION, channel=channel)
    await until(lambda: [m for m in wire.answers_to(last, channel) if not is_draft(m)])
    assert len(wire.discord.mine(channel)) == count + 1


async def test_a_mention_and_a_slash_command_are_answered_by_the_shipped_program(wire, channel):
    asked = await wire.people.ask(QUESTION, channel=channel)
    [answer] = await wire.answers(1, channel)
    assert "Branches are named" in answer["content"]
    assert answer["message_reference"]["message_id"] == asked["id"]
    made = await wire.people.slash("duet ask", question=QUESTION, channel=channel)
    await until(lambda: "Branches are named" in (wire.people.answer_to(made) or {}).get("content", ""))
    assert made["acknowledged"] == 5


async def test_a_cut_connection_is_resumed_and_what_was_said_meanwhile_is_answered_once(wire, channel):
    before = (wire.discord.identifies, wire.discord.resumes)
    await wire.discord.drop(4000)
    await wire.people.ask(QUESTION, channel=channel)
    await wire.answers(1, channel)
    assert (wire.discord.identifies, wire.discord.resumes) == (before[0], before[1] + 1)
    await answered_only(wire, channel, 1)


async def test_a_wish_to_reconnect_is_followed_by_a_resume(wire, channel):
    before = wire.discord.resumes
    await wire.discord.ask_to_reconnect()
    await until(lambda: wire.discord.resumes == before + 1)
    await wire.people.ask(QUESTION, channel=channel)
    await wire.answers(1, channel)


async def test_a_session_that_is_lost_but_may_be_resumed_is(wire, channel):
    before = (wire.discord.identifies, wire.discord.resumes)
    await wire.discord.invalidate(resumable=True)
    await wire.people.ask(QUESTION, channel=channel)
    await wire.answers(1, channel)
    assert (wire.discord.identifies, wire.discord.resumes) == (before[0], before[1] + 1)


async def test_a_lost_session_repeats_nothing_and_what_was_missed_is_caught_up(wire, channel):
    await wire.people.ask(QUESTION, channel=channel)
    await wire.answers(1, channel)
    before, puts = wire.discord.identifies, [r for r in wire.discord.requests if r.method == "PUT"]
    await wire.discord.invalidate()
    missed = await wire.people.ask("what about for hotfixes?", channel=channel)
    answers = await wire.answers(2, channel, timeout_s=30)
    assert wire.discord.identifies == before + 1
    assert answers[1]["message_reference"]["message_id"] == missed["id"]
    assert [r for r in wire.discord.requests if r.method == "PUT"] == puts
    await answered_only(wire, channel, 2)


async def test_events_told_again_are_answered_once(wire, channel):
    await wire.people.ask(QUESTION, channel=channel)
    made = await wire.people.slash("duet ask", question=QUESTION, channel=channel)
    await wire.answers(2, channel)
    calls = len(wire.model.requests)
    await wire.discord.replay()
    await answered_only(wire, channel, 2)
    assert len(wire.model.requests) == calls + 1
    assert made["acknowledged"] == 5


async def test_a_rate_limit_in_the_middle_of_an_answer_keeps_the_order_of_its_parts(wire, channel):
    asked = await wire.people.ask(ACTION, channel=channel)
    wire.discord.faults += [Fault("POST", f"/channels/{channel}/messages", "ratelimited", retry_after=0.6, times=2)]
    parts = await wire.answers(3, channel)
    whole = "".join(part["content"] for part in parts)
    places = [whole.index(f"Paragraph {n}:") for n in range(13)]
    assert places == sorted(places)
    assert all(part["message_reference"]["message_id"] == asked["id"] for part in parts)
    tries = [r for r in wire.discord.requests if r.path == f"/channels/{channel}/messages" and r.method == "POST"]
    limited = [n for n, r in enumerate(tries) if r.status == 429]
    assert all(tries[n + 1].at - tries[n].at >= 0.6 for n in limited)


async def test_a_rate_limited_channel_holds_no_other_up(wire, channel):
    other = await new_channel(wire, "beside")
    wire.discord.faults += [Fault("POST", f"/channels/{channel}/messages", "ratelimited", retry_after=10, times=1)]
    await wire.people.ask(QUESTION, channel=channel)
    await wire.people.ask(QUESTION, channel=other)
    await wire.answers(1, other)
    assert wire.discord.mine(channel) == []
    wire.owed.append(channel)  # its answer comes while other tests run


async def test_a_burst_over_several_channels_is_answered_once_each_and_in_order(wire):
    channels = [await new_channel(wire, f"burst-{n}") for n in range(6)]
    asked = [(c, (await wire.people.ask(QUESTION, channel=c))["id"]) for _ in range(5) for c in channels]
    for channel in channels:
        answers = await wire.answers(5, channel, timeout_s=40)
        questions = [message for place, message in asked if place == channel]
        assert [answer["message_reference"]["message_id"] for answer in answers] == questions


@pytest.mark.parametrize(
    "fault",
    [
        Fault("POST", "", "ratelimited", is_global=True, retry_after=0.3),
        Fault("POST", "", "banned", retry_after=0.3),
        Fault("POST", "", status=502),
        Fault("POST", "", status=503),
        Fault("POST", "", "drop_before"),
        Fault("POST", "", "drop_after"),
    ],
    ids=["global-limit", "limit-without-via", "502", "503", "cut-before", "cut-after"],
)
async def test_a_post_that_fails_on_its_way_is_made_once(wire, channel, fault):
    fault.path = f"/channels/{channel}/messages"
    wire.discord.faults.append(fault)
    await wire.people.ask(QUESTION, channel=channel)
    [answer] = await wire.answers(1, channel, timeout_s=30)
    assert "Branches are named" in answer["content"]
    await answered_only(wire, channel, 1)
    assert fault.times == 0


async def test_an_answer_later_than_its_token_lives_comes_as_a_message(wire, channel):
    made = await wire.people.slash("duet ask", question=f"{QUESTION} slowly", channel=channel, life_ms=600)

    def late():
        return [m for m in wire.discord.mine(channel) if m["id"] != made.get("original") and not is_draft(m)]

    [answer] = await until(late, timeout_s=20)
    assert "Branches are named" in answer["content"]


async def test_an_acknowledgement_that_came_too_late_sends_the_answer_to_the_channel(wire, channel):
    wire.discord.faults.append(Fault("POST", r"/interactions/.*/callback", status=404, code=10062))
    await wire.people.slash("duet ask", question=QUESTION, channel=channel)
    [answer] = await wire.answers(1, channel)
    assert "Branches are named" in answer["content"]


async def test_a_text_file_is_fetched_without_the_bots_token(wire, channel):
    await wire.people.say(wire.people.mention, channel=channel, files=[("message.txt", QUESTION.encode())])
    [answer] = await wire.answers(1, channel)
    assert "Branches are named" in answer["content"]


async def test_a_deleted_question_leaves_no_answer_and_a_deleted_channel_no_room(wire, channel):
    asked = await wire.people.ask(f"{QUESTION} slowly", channel=channel)
    await until(lambda: [r for r in wire.discord.requests if r.path == f"/channels/{channel}/typing"])
    wire.discord.messages[channel].remove(asked)
    gone = {"id": asked["id"], "channel_id": channel, "guild_id": wire.discord.guild}
    await wire.discord.tell("MESSAGE_DELETE", gone)
    await answered_only(wire, channel, 0)


async def test_what_is_told_to_one_person_keeps_to_discords_contract(wire, channel):
    made = await wire.people.slash("duet get", path="report.csv", channel=channel)
    await until(lambda: "engine cannot be used" in (wire.people.answer_to(made) or {}).get("content", ""))
    direct = wire.discord.direct(wire.people.alice)  # where a person must be looked up
    told = await wire.people.slash("duet status", channel=direct)
    await until(lambda: "**Model**" in (wire.people.answer_to(told) or {}).get("content", ""))
    assert (told["acknowledged"], told["data"]["flags"]) == (5, 64)


async def test_a_member_may_ask_where_only_they_installed_duet_but_nothing_runs_there(wire):
    elsewhere = wire.people.elsewhere()
    made = await wire.people.slash("duet ask", question=QUESTION, channel=elsewhere)
    await until(lambda: "Branches are named" in (wire.people.answer_to(made) or {}).get("content", ""))
    refused = await wire.people.slash("duet run", command="ls", channel=elsewhere)
    await until(lambda: "Commands run only in servers that Duet is in" in refused.get("data", {}).get("content", ""))
    assert refused["data"]["flags"] & 64
    made = await wire.people.slash("duet ask", question="list the files with a command", channel=elsewhere)
    await until(lambda: "only where Duet is a member" in (wire.people.answer_to(made) or {}).get("content", ""))
    long = await wire.people.slash("duet ask", question=ACTION, channel=elsewhere)
    await until(lambda: len(long.get("followups", [])) == 2)


async def test_a_stranger_may_not_ask_where_only_they_installed_duet(wire):
    mallory = wire.discord.add_user("mallory")["id"]
    made = await wire.people.slash("duet ask", question=QUESTION, channel=wire.people.elsewhere(), who=mallory)
    await until(lambda: "people from outside" in (wire.people.answer_to(made) or {}).get("content", ""))


async def test_an_approval_is_asked_for_and_given_on_the_wire(wire, channel):
    await wire.people.ask("list the files with a command", channel=channel)
    [card] = await wire.answers(1, channel)
    assert "**$** `ls`" in card["content"]
    await wire.people.press(card, "Approve", who=wire.people.bob)
    answers = await wire.answers(2, channel)
    assert "Approved by bob" in answers[0]["content"]
    # There is no engine here; that is said, and the answer comes all the same.
    assert "not run" in answers[1]["content"]


async def test_a_process_killed_in_the_middle_of_an_answer_leaves_one_answer(tmp_path):
    async with on_the_wire(tmp_path / "home", replies=replies) as w:
        asked = await w.people.ask(f"{QUESTION} slowly")
        await until(lambda: w.model.requests)
        await w.program.kill()
        await w.program.start()
        [answer] = await w.answers(timeout_s=40)
        assert "Branches are named" in answer["content"]
        assert answer["message_reference"]["message_id"] == asked["id"]


@pytest.mark.slow
async def test_a_process_stopped_in_the_middle_of_an_answer_ends_soon_and_leaves_one_answer(tmp_path):
    async with on_the_wire(tmp_path / "home", replies=replies) as w:
        await w.people.ask(f"{QUESTION} slowly")
        await until(lambda: w.model.requests)
        started = asyncio.get_running_loop().time()
        await w.program.stop()
        assert asyncio.get_running_loop().time() - started < 20
        await w.program.start()
        [answer] = await w.answers(timeout_s=40)
        assert "Branches are named" in answer["content"]
        await asyncio.sleep(0.5)
        assert len(w.discord.mine()) == 1


@pytest.mark.slow
async def test_a_process_killed_while_it_answers_a_command_leaves_one_answer(tmp_path):
    async with on_the_wire(tmp_path / "home", replies=replies) as w:
        made = await w.people.slash("duet ask", question=f"{QUESTION} slowly")
        await until(lambda: made.get("acknowledged"))
        await w.program.kill()
        await w.program.start()
        await until(lambda: "Branches are named" in (w.people.answer_to(made) or {}).get("content", ""), timeout_s=40)
        await asyncio.sleep(0.5)
        assert len(w.discord.mine()) == 1


@pytest.mark.slow
async def test_a_connection_that_is_silently_dead_is_noticed_and_what_was_missed_is_answered(tmp_path):
    async with on_the_wire(tmp_path / "home", replies=replies, heartbeat_s=5.0) as w:
        before = w.discord.resumes
        w.discord.silence()
        await w.people.ask(QUESTION)
        await until(lambda: w.discord.resumes > before, timeout_s=75)
        await w.answers()


@pytest.mark.slow
async def test_two_processes_on_one_folder_answer_each_question_once(tmp_path):
    async with on_the_wire(tmp_path / "home", replies=replies) as w:
        other = Program(tmp_path / "home", w.discord, w.model)
        await other.start()
        try:
            for n in range(4):
                await w.people.ask(QUESTION)
                await w.answers(n + 1)
            made = await w.people.slash("duet ask", question=QUESTION)
            await until(lambda: "Branches are named" in (w.people.answer_to(made) or {}).get("content", ""))
            await asyncio.sleep(0.5)
            assert len(w.discord.mine()) == 5
            assert len(w.model.requests) == 5
        finally:
            await other.stop()


@pytest.mark.slow
async def test_an_intent_that_is_not_granted_is_named_in_the_log_and_the_program_stays(tmp_path):
    async with FakeDiscord() as discord, ScriptedModel(lambda _: REPLY) as model:
        discord.grants_content = False
        program = Program(tmp_path / "home", discord, model, DUET_DISCORD_MESSAGE_CONTENT="true")
        await program.start()
        await until(lambda: "Message Content intent" in program.log.read_text())
        assert program.process.returncode is None
        assert "Traceback" not in program.log.read_text()
        await program.stop()


@pytest.mark.slow
async def test_a_wrong_token_ends_the_program_with_a_sentence(tmp_path):
    with contextlib.suppress(AssertionError):
        async with on_the_wire(tmp_path / "home", DISCORD_TOKEN="wrong"):
            pytest.fail("it began")
    said = (tmp_path / "home.log").read_text()
    assert "Discord does not take the token" in said
    assert "Traceback" not in said
