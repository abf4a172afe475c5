"""The real built-in model, where its weights are: minutes on a busy machine, so marked slow.

Set DUET_TEST_WEIGHTS to the file that `duet model install local` puts below the data folder.
"""

import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.conversation import Message
from bot.drivers.chat_model import Endpoint, OpenAIModel
from bot.drivers.local_model import PROFILE, RUNTIME, LocalModel, Weights
from bot.drivers.model_wire import Clocks
from bot.drivers.packs import PACKS
from bot.parsing import parse_reply
from bot.ports import Band, ChatModel, Findings, Finished, Hit, ModelCall, Text
from bot.prompt import PromptInput, build, says_not_covered
from bot.sections import parse_document
from bot.settings import sample_codex
from tests.conftest import lacking

PATIENT = Clocks(connect_s=5, first_s=500, silence_s=120, total_s=550)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
async def model() -> AsyncIterator[LocalModel]:
    path = Path(os.environ.get("DUET_TEST_WEIGHTS", ""))
    if not path.is_file():
        lacking("local-model", "DUET_TEST_WEIGHTS names no file")
    pytest.importorskip(RUNTIME)
    (file,) = PACKS["local"].files

    def client(address: str, key: str) -> ChatModel:
        return OpenAIModel(Endpoint(address, LocalModel.name, key), profile=PROFILE, clocks=PATIENT)

    model = LocalModel(lambda: Weights(path, file.sha256, file.size_bytes), client, threads=1, patience_s=300)
    yield model
    await model.aclose()


def section(document: str, heading: str) -> Hit:
    text = (sample_codex() / document).read_text("utf-8")
    return Hit(next(s for s in parse_document(text, document).sections if s.heading == heading), 1.0)


async def ask(model: LocalModel, given: PromptInput) -> tuple[str, Finished]:
    messages = build(given, profile=model.profile)
    pieces = [piece async for piece in model.stream(ModelCall(messages, given.question, given.findings, 200))]
    finished = pieces[-1]
    assert isinstance(finished, Finished)
    return "".join(piece.text for piece in pieces if isinstance(piece, Text)), finished


async def test_it_answers_follows_up_refuses_and_turns_a_request_into_a_command(model: LocalModel):
    naming = Findings((section("branch-naming.md", "The convention"),), 0.9, Band.HIGH)
    hotfixes = Findings((section("branch-naming.md", "Hotfix branches"),), 0.9, Band.HIGH)
    first = "What is our branch naming convention?"

    answer, finished = await ask(model, PromptInput(first, "Ana", naming))
    assert "<type>/<ticket>-<short-description>" in answer
    assert finished.usage.reply_tokens > 0
    assert finished.usage.prompt_tokens < PROFILE.context_tokens - PROFILE.max_reply_tokens

    history = (Message("user", "Ana", first, 1), Message("agent", "Duet", answer, 2))
    answer, _ = await ask(model, PromptInput("what about for hotfixes?", "Ana", hotfixes, history))
    assert "hotfix/" in answer

    answer, _ = await ask(model, PromptInput("Who pays for the company car?", "Ana", naming))
    assert says_not_covered(answer)

    answer, _ = await ask(model, PromptInput("show the kernel version", "Ana"))
    (command,) = parse_reply(answer).commands
    assert re.match(r"uname\b", command)
