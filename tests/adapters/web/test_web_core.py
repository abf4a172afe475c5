"""HTTP on the real core and a real store: the faults that the two older systems had do not come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bot.conversation import RoomKey
from bot.drivers.fallback import Fallback
from bot.drivers.ledger import SandboxRow, SandboxState
from bot.errors import ModelBusy
from bot.policy import Policy
from tests.adapters.web.serving import Api, calling
from tests.adapters.web.test_web_openai import chunks, text_of
from tests.conftest import Build, World
from tests.fakes import FakeModel

QUESTION = "What is our branch naming convention?"


@asynccontextmanager
async def world_over_http(build: Build, **parts: object) -> AsyncIterator[tuple[World, Api]]:
    world = await build(**parts)
    async with calling(world.duet) as api:
        yield world, api


async def until(condition: object) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


async def test_two_messages_at_once_are_kept_in_order_and_the_second_sees_the_first(build: Build) -> None:
    async with world_over_http(build) as (world, api):
        first = asyncio.create_task(api.post("/api/rooms/r1/message", {"text": f"{QUESTION} one", "userId": "ada"}))
        await until(lambda: world.model.calls)
        second = await api.post("/api/rooms/r1/message", {"text": f"{QUESTION} two", "userId": "bob"})
        assert (await first).status == second.status == 200
        said = [(one["role"], one.get("userId"), one["text"][-3:]) for one in second.json["messages"]]
        assert [one for one in said if one[0] == "user"] == [("user", "ada", "one"), ("user", "bob", "two")]
        assert f"{QUESTION} one" in world.model.sent()


async def test_a_reset_voids_the_turn_in_flight(build: Build) -> None:
    gate = asyncio.Event()
    model = FakeModel(lambda call: ["Branches ", gate, "<run>echo late</run>"])
    async with world_over_http(build, model=model) as (world, api):
        asking = asyncio.create_task(api.post("/chat", {"sessionId": "s1", "message": QUESTION}))
        await until(lambda: model.calls)
        cleared = await api.delete("/api/rooms/s1")
        assert cleared.status == 200
        gate.set()
        assert (await asking).json["outcome"] == "cancelled"
        assert world.sandbox.ran == []
        assert (await api.get("/history?sessionId=s1")).json["messages"] == []
        assert (await api.get("/prompt-history?sessionId=s1")).json["calls"] == []


async def test_a_model_that_fails_loses_no_question_and_can_be_tried_again(build: Build) -> None:
    faults = [ModelBusy("The model is busy.")]
    model = FakeModel(lambda call: faults.pop() if faults else "Branches are named so [1].")
    async with world_over_http(build, model=model) as (_, api):
        failed = await api.post("/v1/turns", {"sessionId": "s1", "message": QUESTION, "turnId": "t-1"})
        answer = failed.events[-1][1]["answer"]
        assert (answer["outcome"], bool(answer["incident"])) == ("failed", True)
        assert (await api.get("/history?sessionId=s1")).json["messages"][0]["text"] == QUESTION
        again = await api.post("/v1/turns/t-1/retry?sessionId=s1")
        assert again.events[-1][1]["answer"]["outcome"] == "answered"
        asked = [one for one in (await api.get("/history?sessionId=s1")).json["messages"] if one["role"] == "user"]
        assert len(asked) == 1


async def test_a_direct_command_is_recorded_in_the_conversation(build: Build) -> None:
    async with world_over_http(build) as (_, api):
        ran = await api.post("/api/rooms/r1/sandbox/exec", {"cmd": "echo hello"})
        assert ran.json["result"]["stdout"] == "hello\n"
        said = (await api.get("/history?sessionId=r1")).json["messages"]
        assert any("echo hello" in one["text"] for one in said)
        turns = (await api.get("/v1/sessions/r1")).json["turns"]
        assert (turns[0]["kind"], turns[0]["text"]) == ("run", "echo hello")


async def test_an_unclosed_tag_is_never_shown_and_never_run(build: Build) -> None:
    model = FakeModel(lambda call: "I will look. <run>rm -rf /")
    async with world_over_http(build, model=model) as (world, api):
        reply = await api.post("/chat", {"sessionId": "s1", "message": QUESTION})
        assert "<run>" not in reply.text
        assert world.sandbox.ran == []


async def test_speakers_names_reach_the_model(build: Build) -> None:
    async with world_over_http(build) as (world, api):
        await api.post("/api/rooms/r1/message", {"text": f"{QUESTION} for me", "userId": "ada"})
        await api.post("/api/rooms/r1/message", {"text": QUESTION, "userId": "bob"})
        assert "ada" in world.model.sent()
        assert "bob" in world.model.sent()


async def test_a_pasted_secret_is_kept_nowhere(build: Build) -> None:
    secret = "xoxb-" + "123456789012-123456789012-" + "a1B2c3D4e5F6g7H8i9J0k1L2"
    model = FakeModel(lambda call: f"Branches: never commit {secret} [1].")
    async with world_over_http(build, model=model) as (_, api):
        reply = await api.post("/chat", {"sessionId": "s1", "message": f"{QUESTION} My token is {secret}"})
        texts = [reply.text]
        for path in ("/history?sessionId=s1", "/prompt-history?sessionId=s1", "/prompt-history?sessionId=s1&format=md"):
            texts.append((await api.get(path)).text)
        texts.append((await api.get("/v1/sessions/s1")).text)
        assert not any(secret in text for text in texts)


async def test_a_stream_drafts_while_the_model_writes(build: Build) -> None:
    gate = asyncio.Event()
    model = FakeModel(lambda call: ["Branches are ", "named so. ", gate, "Always [1]."])
    async with world_over_http(build, model=model) as (_, api):
        asking = asyncio.create_task(api.post("/v1/turns", {"sessionId": "s1", "message": QUESTION}))
        await until(lambda: model.calls)
        await asyncio.sleep(0.1)
        gate.set()
        events = (await asking).events
        assert events[1][0] == "draft", "the first words come before the model is done"
        assert events[-1][1]["answer"]["text"].startswith("Branches are named so. Always")


async def test_a_turn_is_stopped_by_its_id(build: Build) -> None:
    model = FakeModel(lambda call: ["Branches ", asyncio.Event()])
    async with world_over_http(build, model=model) as (_, api):
        asking = asyncio.create_task(api.post("/v1/turns", {"sessionId": "s1", "message": QUESTION, "turnId": "t"}))
        await until(lambda: model.calls)
        assert (await api.post("/v1/turns/t/stop?sessionId=s1")).json["stopping"] is True
        answer = (await asking).events[-1][1]["answer"]
        assert answer["outcome"] == "cancelled"
        assert "Stopped by Local user" in answer["text"]


async def test_a_command_that_waits_is_decided_over_http(build: Build) -> None:
    async with world_over_http(build, policy=Policy(commands="ask")) as (world, api):
        waiting = await api.post("/api/rooms/r1/sandbox/exec", {"cmd": "echo hello"})
        assert waiting.status == 202
        assert world.sandbox.ran == []
        path = f"/v1/tickets/{waiting.json['ticket']['id']}"
        decided = await api.post(path, {"sessionId": "r1", "verdict": "approve"})
        assert decided.events[-1][1]["answer"]["commands"][0]["stdout"] == "hello\n"
        assert [command.code for command in world.sandbox.ran] == ["echo hello"]


async def test_an_engine_that_is_down_is_a_207_and_tried_again(build: Build) -> None:
    async with world_over_http(build) as (world, api):
        await api.post("/api/rooms/r1/sandbox/exec", {"cmd": "echo hello"})
        world.sandbox.away = True
        cleared = await api.delete("/api/rooms/r1")
        assert cleared.status == 207
        assert cleared.json["errors"][0].startswith("sandbox: ")


async def test_the_same_key_answers_once_and_is_counted_as_a_duplicate(build: Build) -> None:
    async with world_over_http(build) as (world, api):
        for _ in range(3):
            await api.post("/chat", {"sessionId": "s1", "message": QUESTION, "turnId": "k"})
        assert len(world.model.calls) == 1
        figures = (await api.get("/metrics")).text
        assert 'duet_duplicate_deliveries_total{platform="web"} 2.0' in figures
        assert 'duet_turns_total{outcome="answered",platform="web"} 1.0' in figures
        assert 'duet_tokens_total{direction="prompt"} 10.0' in figures


async def test_faults_of_the_model_are_counted_by_kind(build: Build) -> None:
    async with world_over_http(build, model=FakeModel(lambda call: ModelBusy("busy"))) as (_, api):
        await api.post("/chat", {"sessionId": "s1", "message": QUESTION})
        figures = (await api.get("/metrics")).text
        assert 'duet_model_errors_total{kind="ModelBusy"}' in figures
        assert 'duet_turns_total{outcome="failed",platform="web"} 1.0' in figures


async def test_faults_of_a_model_in_whose_place_another_answered_are_counted_too(build: Build) -> None:
    dead = FakeModel(lambda call: ModelBusy("busy"))
    async with world_over_http(build, model=Fallback([dead, FakeModel(lambda call: "So [1].")])) as (_, api):
        assert (await api.post("/chat", {"sessionId": "s1", "message": QUESTION})).json["outcome"] == "answered"
        assert 'duet_model_errors_total{kind="ModelBusy"} 1.0' in (await api.get("/metrics")).text


async def test_a_streamed_completion_says_nothing_twice_though_markers_moved(build: Build) -> None:
    reply = "Every branch is named `feature/<ticket>-<words>`. [1] Hotfix branches begin with `hotfix/`. [1]"
    model = FakeModel(lambda call: [reply[:40], 0.05, reply[40:70], 0.05, reply[70:]])
    async with world_over_http(build, model=model) as (_, api):
        body = {"messages": [{"role": "user", "content": QUESTION}], "stream": True}
        streamed = await api.post("/v1/chat/completions", body)
        text = text_of(streamed)
        assert text.count("Every branch") == 1
        assert "---" not in text
        assert len(chunks(streamed)) > 3
        assert "[1] naming.md" in text


@pytest.mark.parametrize("path", ["/chat", "/v1/turns"])
async def test_a_question_that_is_not_covered_is_answered_so(build: Build, path: str) -> None:
    async with world_over_http(build) as (world, api):
        reply = await api.post(path, {"sessionId": "s1", "message": "what is our vacation policy?"})
        assert "does not cover" in reply.text
        assert world.model.calls == []


async def test_the_rooms_that_have_a_sandbox_are_counted(build: Build) -> None:
    async with world_over_http(build) as (world, api):
        assert "duet_sandbox_rooms 0.0" in (await api.get("/metrics")).text
        await world.store.put_sandbox(SandboxRow(RoomKey("web", "local", "r1"), state=SandboxState.LIVE))
        assert "duet_sandbox_rooms 1.0" in (await api.get("/metrics")).text
