"""Duet's routes: rooms that several people share, direct commands, clean-up."""

from __future__ import annotations

import pytest

from tests.adapters.web.fake_duet import FakeDuet
from tests.adapters.web.serving import Api


async def test_a_message_is_answered_and_the_room_is_shown(api: Api, duet: FakeDuet) -> None:
    reply = await api.post("/api/rooms/r1/message", {"text": "  hotfixes?  ", "userId": " ada "})
    assert reply.status == 200
    assert "hotfix/" in reply.json["reply"]
    user, agent = reply.json["messages"]
    assert (user["role"], user["userId"], user["text"]) == ("user", "ada", "hotfixes?")
    assert agent["role"] == "agent"
    assert isinstance(user["ts"], int)
    assert duet.heard[0].author.name == "ada"


async def test_a_late_comer_reads_what_was_said_before(api: Api) -> None:
    await api.post("/api/rooms/r1/message", {"text": "first", "userId": "ada"})
    reply = await api.post("/api/rooms/r1/message", {"text": "second", "userId": "bob"})
    assert [one["text"] for one in reply.json["messages"] if one["role"] == "user"] == ["first", "second"]


async def test_the_last_fifty_messages_are_shown(api: Api) -> None:
    for number in range(30):
        reply = await api.post("/api/rooms/r1/message", {"text": f"say {number}"})
    assert len(reply.json["messages"]) == 50
    assert reply.json["messages"][-1]["text"] == "29"


@pytest.mark.parametrize("text", ["", " ", "\n\t "])
async def test_an_empty_text_is_refused_before_the_model(api: Api, duet: FakeDuet, text: str) -> None:
    reply = await api.post("/api/rooms/r1/message", {"text": text})
    assert reply.status == 400
    assert reply.json == {"error": "invalid request", "details": {"text": ["Text cannot be empty"]}}
    assert duet.heard == []


async def test_a_user_id_may_be_missing_blank_or_null(api: Api) -> None:
    for body in ({"text": "hi"}, {"text": "hi", "userId": " "}, {"text": "hi", "userId": None}):
        assert (await api.post("/api/rooms/r1/message", body)).status == 200


async def test_a_command_shows_both_streams_and_the_exit_code(api: Api) -> None:
    reply = await api.post("/api/rooms/r1/sandbox/exec", {"cmd": "exit 3"})
    assert reply.status == 200
    assert reply.json["sandboxName"] == "sandbox-r1"
    result = reply.json["result"]
    assert (result["stdout"], result["stderr"], result["exitCode"]) == ("line 1\nline 2\n", "a warning\n", 3)
    assert result["success"] is False


async def test_a_command_that_could_not_start_is_the_500_it_always_was(api: Api, duet: FakeDuet) -> None:
    duet.commands_fail = "no Docker engine"
    reply = await api.post("/api/rooms/r1/sandbox/exec", {"cmd": "ls"})
    assert (reply.status, reply.json) == (500, {"error": "sandbox execution failed: no Docker engine"})


async def test_a_key_that_was_used_for_a_question_runs_no_command(api: Api, duet: FakeDuet) -> None:
    await api.post("/api/rooms/r1/message", {"text": "hi", "turnId": "k"})
    assert (await api.post("/api/rooms/r1/sandbox/exec", {"cmd": "ls", "turnId": "k"})).status == 409
    assert len(duet.heard) == 1


async def test_an_answer_with_a_command_shows_its_output_in_the_reply(api: Api) -> None:
    reply = await api.post("/api/rooms/r1/message", {"text": "run exit 3"})
    assert "Output (exit 3):\nline 1\nline 2\na warning" in reply.json["reply"]
    assert "[exit code 3]" in reply.json["reply"]


async def test_long_output_is_cut_with_a_mark(api: Api) -> None:
    assert "[output cut]" not in (await api.post("/api/rooms/r1/message", {"text": "run long"})).json["reply"]
    assert "[output cut]" in (await api.post("/api/rooms/r1/message", {"text": "run huge"})).json["reply"]


async def test_a_cleaned_room_is_empty(api: Api) -> None:
    await api.post("/api/rooms/r1/message", {"text": "hi"})
    reply = await api.delete("/api/rooms/r1")
    assert (reply.status, reply.json) == (200, {"cleaned": True, "roomId": "r1"})
    assert (await api.get("/history?sessionId=r1")).json["messages"] == []


async def test_a_sandbox_that_stays_is_a_207_with_the_reason(api: Api, duet: FakeDuet) -> None:
    duet.sandbox_is_stuck = True
    reply = await api.delete("/api/rooms/r1")
    assert reply.status == 207
    assert reply.json["cleaned"] is True
    assert reply.json["errors"] == ["sandbox: The sandbox could not be removed yet."]


async def test_a_refused_clean_up_is_a_403(api: Api, duet: FakeDuet) -> None:
    duet.refuses = "You are not on the list of people who may reset here."
    reply = await api.delete("/api/rooms/r1")
    assert (reply.status, reply.json) == (403, {"error": duet.refuses})


async def test_rooms_and_sessions_of_one_name_are_one_conversation(api: Api) -> None:
    await api.post("/api/rooms/both/message", {"text": "hi"})
    assert len((await api.get("/history?sessionId=both")).json["messages"]) == 2


async def test_room_ids_may_hold_anything_a_path_can(api: Api) -> None:
    for room in ("a%2Fb", "a..b", "a%20b", "%C3%BC", "%3Cb%3E", "%7Ba%7D", "a:b;c,d"):
        assert (await api.post(f"/api/rooms/{room}/message", {"text": "hi"})).status == 200
    assert (await api.post("/api/rooms/a%00b/message", {"text": "hi"})).status == 400
