"""What a misbehaving model does to a turn: a plain answer in time, the question kept, and the next turn works."""

import asyncio
import time

from bot.conversation import Answer, Outcome, SessionKey
from bot.drivers.chat_model import Endpoint, OpenAIModel
from bot.drivers.model_wire import Clocks
from bot.errors import ContextTooLong, ModelTimeout
from bot.ports import Profile
from tests.bad_endpoints import FAULTS, KEY, PATIENCE, UNHURRIED
from tests.conftest import Build, World
from tests.fakes import ROOM, turn
from tests.scripted_model import HANG, Reply, ScriptedModel

TURN_TIMEOUT_S = 6.0
CLOCKS = Clocks(connect_s=2, first_s=1.2, silence_s=1, total_s=4)
QUESTION = "What is our branch naming convention?"
SESSION = SessionKey(ROOM)


def over(server: ScriptedModel, *, clocks: Clocks = CLOCKS, profile: Profile = Profile()) -> OpenAIModel:  # noqa: B008
    return OpenAIModel(Endpoint(server.url, "m", KEY), profile=profile, clocks=clocks, patience=PATIENCE)


async def ask(world: World, question: str = QUESTION) -> tuple[Answer, float]:
    started = time.monotonic()
    (answer,) = await asyncio.wait_for(world.hear(turn(question)), TURN_TIMEOUT_S * 4)
    return answer, time.monotonic() - started


async def a_turn_survives(name: str, build: Build) -> list[str]:
    """Ask over a bad endpoint, then over one that is well again; give what was not as it should be."""
    reply, expected, partial = FAULTS[name]
    async with ScriptedModel([reply] * 4) as server:
        model = over(server, clocks=CLOCKS if expected is ModelTimeout else UNHURRIED)
        world = await build(model=model, turn_timeout_s=TURN_TIMEOUT_S, secrets=(KEY,))
        answer, took = await ask(world)
        server._script[:] = ["Hotfix branches begin with `hotfix/` [1]."]
        model._clocks = UNHURRIED
        after, _ = await ask(world, "What is a hotfix branch called?")
        kept = [message.text for message in await world.duet.history(SESSION)]
        logged = (await world.duet.prompt_log(SESSION))[0]
        await model.aclose()
    text = answer.text
    return [
        f"{name}: {what}"
        for what, is_so in {
            "it did not fail": answer.outcome is Outcome.FAILED and bool(answer.incident),
            f"took {took:.1f} s": took < TURN_TIMEOUT_S + 1 or "MB" in name,
            f"not plain: {text[:200]}": not any(mark in text for mark in "<>{}") and KEY not in text,
            "the partial text is gone": partial.strip() in text,
            "the question is gone": QUESTION in kept,
            "the log has no error": bool(logged.error) and KEY not in logged.error and logged.state == "failed",
            "the log has no request": QUESTION in str(logged.request),
            f"the next turn failed: {after.text}": after.outcome is Outcome.ANSWERED,
        }.items()
        if not is_so
    ]


async def test_every_bad_endpoint_ends_in_a_plain_answer_and_the_next_turn_works(build: Build):
    names = [name for name in FAULTS if FAULTS[name][1] is not ContextTooLong and "MB" not in name]
    a_few = asyncio.Semaphore(6)  # more at once would measure this machine, not the clocks

    async def survives(name: str) -> list[str]:
        async with a_few:
            return await a_turn_survives(name, build)

    found = await asyncio.gather(*(survives(name) for name in names))
    assert [fault for faults in found for fault in faults] == []


async def test_a_prompt_that_was_too_long_is_built_again_shorter_and_the_turn_succeeds(build: Build):
    too_long = Reply(status=400, body='{"error":{"type":"exceed_context_size_error","n_ctx":1000}}')
    async with ScriptedModel(["x " * 900, too_long, "Branches are called `feature/…` [1]."]) as server:
        model = over(server)
        world = await build(model=model)
        await ask(world, "Tell me about branch naming at length")
        answer, _ = await ask(world)
        await model.aclose()
        sizes = [sum(len(m["content"]) for m in request.messages) for request in server.requests]
    assert answer.outcome is Outcome.ANSWERED
    assert sizes[2] < sizes[1]
    assert all(QUESTION in request.last and "feature/" in request.last for request in server.requests[1:])
    assert "x x x" in str(server.requests[1].messages)
    assert "x x x" not in str(server.requests[2].messages)


async def test_the_turns_deadline_ends_a_model_that_never_does(build: Build):
    patient = Clocks(connect_s=1, first_s=60, silence_s=60, total_s=60)
    async with ScriptedModel([Reply(raw=(HANG,))]) as server:
        model = over(server, clocks=patient)
        world = await build(model=model, turn_timeout_s=1.0)
        answer, took = await ask(world)
        await model.aclose()
    assert answer.outcome is Outcome.FAILED
    assert "1 seconds" in answer.text
    assert took < 3


async def test_what_is_logged_is_exactly_what_was_sent(build: Build):
    async with ScriptedModel(["Branches are called `feature/…` [1].", Reply(status=401, body="{}")]) as server:
        model = over(server)
        world = await build(model=model)
        await ask(world)
        await ask(world, "and a hotfix branch?")
        log = await world.duet.prompt_log(SESSION)
        await model.aclose()
        sent = [request.messages for request in server.requests]
    assert [[dict(message) for message in call.request] for call in log] == sent
    good, bad = log
    assert (good.state, good.finish, good.prompt_tokens, good.reply_tokens, good.model) == (
        "complete",
        "stop",
        11,
        7,
        "m",
    )
    assert good.first_piece_ms is not None
    assert good.total_ms is not None
    assert good.total_ms >= good.first_piece_ms
    assert bad.state == "failed"
    assert "ModelRefused" in bad.error
