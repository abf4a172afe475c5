"""Which model the settings mean, and what it is built with."""

import asyncio
import re
import sys
from pathlib import Path

import pytest

from bot.conversation import Usage
from bot.drivers.chat_model import OpenAIModel
from bot.drivers.fallback import Fallback
from bot.drivers.local_model import LocalModel
from bot.drivers.offline import Offline
from bot.drivers.packs import PACKS
from bot.errors import BadInput, SettingsError
from bot.model_choice import chosen, open_model, serve_local
from bot.ports import Band, ChatMessage, Findings, Finished, Hit, ModelCall, Text
from bot.sections import Section
from bot.settings import Settings
from tests.scripted_model import Reply, ScriptedModel

SECTION = Section("b", "branches.md", "Branch naming", ("Hotfixes",), "hotfixes", 3, 9, "They begin with hotfix/.")
CALL = ModelCall(
    (ChatMessage("user", "Ana: hotfixes?"),), "hotfixes?", Findings((Hit(SECTION, 1.0),), 0.9, Band.HIGH), 64
)


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        (Settings(), ("offline",)),
        (Settings(model_url="https://x.example/v1"), ("model",)),
        (Settings(model_url="local"), ("local", "offline")),
        (Settings(models=("a", "offline"), model_url="https://x.example/v1"), ("a", "offline")),
    ],
)
def test_which_models_are_asked_follows_from_the_settings(settings, names):
    assert chosen(settings) == names


async def test_nothing_configured_is_answered_offline():
    async with open_model(Settings()) as model:
        assert isinstance(model, Offline)


async def test_an_address_is_a_client_with_the_profile_of_its_name():
    settings = Settings(model_url="https://x.example/v1", model_name="qwen2.5-coder:1.5b", model_context_tokens=2_000)
    async with open_model(settings) as model:
        assert isinstance(model, OpenAIModel)
        assert (model.name, model.profile.prompts, model.profile.context_tokens) == (
            "qwen2.5-coder:1.5b",
            "split",
            2_000,
        )


async def test_what_is_set_of_the_profile_counts_more_than_the_name():
    async with open_model(
        Settings(model_url="https://x.example/v1", model_name="tiny-1b", model_profile="one")
    ) as model:
        assert model.profile.prompts == "one"


async def test_of_several_the_next_answers_and_says_which_it_was():
    async with ScriptedModel([Reply(status=401, body="{}")] * 9) as down, ScriptedModel(["From the second."]) as up:
        settings = Settings(
            models=("first", "second", "offline"),
            endpoints={"first": {"url": down.url, "name": "m1"}, "second": {"url": up.url, "name": "m2"}},
        )
        async with open_model(settings) as model:
            assert isinstance(model, Fallback)
            pieces = [piece async for piece in model.stream(CALL)]
    note = "Answered by m2, because m1 does not answer just now."
    assert pieces[-1] == Finished("stop", Usage(11, 7), "m2", note, faults=("ModelRefused",))


async def test_when_every_endpoint_is_down_the_sections_are_quoted_and_it_says_why():
    settings = Settings(
        models=("first", "offline"), endpoints={"first": {"url": "http://127.0.0.1:9/v1", "name": "m1"}}
    )
    async with open_model(settings) as model:
        pieces = [piece async for piece in model.stream(CALL)]
    assert isinstance(pieces[0], Text)
    assert "They begin with hotfix/. [1]" in pieces[0].text
    assert "does not answer just now" in pieces[0].text
    assert pieces[-1] == Finished("stop", Usage(), "offline", faults=("ModelUnreachable",))


async def test_the_built_in_model_without_its_weights_leaves_the_answer_to_the_sections(tmp_path: Path):
    async with open_model(Settings(model_url="local", home=tmp_path)) as model:
        assert model.name == LocalModel.name
        pieces = [piece async for piece in model.stream(CALL)]
        checks = await model.checks()
    assert pieces[-1] == Finished("stop", Usage(), "offline", faults=("ModelUnreachable",))
    assert any("duet model install local" in check.mend for check in checks)


async def test_nothing_of_the_built_in_model_is_imported_unless_it_is_meant():
    code = (
        "import asyncio, sys\n"
        "from bot.model_choice import open_model\n"
        "from bot.settings import Settings\n"
        "async def main():\n"
        "    async with open_model(Settings()): pass\n"
        "asyncio.run(main())\n"
        "sys.exit(any(name in sys.modules for name in ('xllamacpp', 'httpx', 'bot.drivers.local_model')))"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, cwd=Path(__file__).parents[2])
    assert await process.wait() == 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (Settings(models=("oflin",)), "did you mean offline?"),
        (Settings(models=("xyz",)), "there is model, local, offline."),
        (Settings(models=("model",)), "DUET_MODEL_URL is not set"),
    ],
)
async def test_a_model_that_is_not_described_is_told_with_what_there_is(settings, words):
    with pytest.raises(SettingsError, match=words):
        async with open_model(settings):
            pass


async def test_serving_the_built_in_model_needs_its_weights(tmp_path):
    with pytest.raises(BadInput, match="duet model install local"):
        await serve_local(Settings(home=tmp_path), port=0, ready=print)


def test_the_built_in_models_pack_names_every_part_once_and_in_order():
    pack = PACKS["local"]
    (file,) = pack.files
    assert len(pack.wheels) == len(file.parts) == len({wheel.sha256 for wheel in pack.wheels}) == 22
    for number, (wheel, part) in enumerate(zip(pack.wheels, file.parts, strict=True), start=1):
        assert wheel.requirement.endswith(f"-part{number}==0.2.0")
        assert part.endswith(f"part{number:02}.bin")
    assert all(re.fullmatch("[0-9a-f]{64}", pin) for pin in (file.sha256, *(wheel.sha256 for wheel in pack.wheels)))
    assert 0.9 < pack.download_bytes / pack.disk_bytes < 1.0
