"""`/duet get`: a file out of the sandbox, to those who may run commands, and nothing of before a reset after it."""

from __future__ import annotations

import asyncio

import pytest

from bot.errors import SandboxUnavailable
from bot.policy import Policy

LIMIT = 26_214_400  # what simcord's interactions say a file may have


async def test_a_file_of_the_sandbox_comes_as_an_upload_that_everybody_in_the_channel_sees(world):
    async with world() as w:
        w.shell.files["out/report.csv"] = b"a,b\n1,2\n"
        result = await w.alice.slash(w.channel, "duet get", path="out/report.csv")
        assert not result.ephemeral
        await w.until(lambda: result.response.attachments)
        [file] = result.response.attachments
        assert (file.filename, await file.read()) == ("report.csv", b"a,b\n1,2\n")
        assert result.response.content == "report.csv"


@pytest.mark.parametrize(
    ("data", "said"),
    [(None, "There is no file"), (b"", "is empty"), (b"x" * (LIMIT + 1), "Discord takes files of at most 25 MB here")],
    ids=["missing", "empty", "too-big"],
)
async def test_what_cannot_be_brought_is_said_in_a_sentence(world, data, said):
    async with world() as w:
        if data is not None:
            w.shell.files["a_b.txt"] = data
        result = await w.alice.slash(w.channel, "duet get", path="a_b.txt")
        await w.until(lambda: said in result.response.content)
        assert r"a\_b.txt" in result.response.content
        assert result.response.attachments == []


async def test_a_path_as_long_as_can_be_is_told_within_discords_limit(world):
    async with world() as w:
        result = await w.alice.slash(w.channel, "duet get", path="_" * 1000)
        await w.until(lambda: "There is no file" in result.response.content)


async def test_a_missing_engine_is_said_with_its_cure(world):
    async with world() as w:
        w.shell.unavailable = SandboxUnavailable("There is no engine.", mend="Start Docker.")
        result = await w.alice.slash(w.channel, "duet get", path="report.csv")
        await w.until(lambda: "There is no engine. Start Docker." in result.response.content)


async def test_a_name_that_is_markup_or_a_ping_is_shown_as_text(world):
    async with world() as w:
        name = "**@everyone**.txt"
        w.shell.files[name] = b"x"
        result = await w.alice.slash(w.channel, "duet get", path=name)
        await w.until(lambda: result.response.attachments)
        assert "**" not in result.response.content
        assert not result.response.message.mention_everyone


async def test_where_duet_may_not_attach_files_that_is_said(world):
    async with world() as w:
        w.shell.files["report.csv"] = b"x"
        w.env.inject_error("PATCH", "/webhooks/*", status=403, code=50013)
        result = await w.alice.slash(w.channel, "duet get", path="report.csv")
        await w.until(lambda: "Attach Files" in result.response.content)


async def test_where_commands_are_switched_off_no_file_is_brought_either(world):
    async with world(policy=Policy(commands="off")) as w:
        w.shell.files["report.csv"] = b"x"
        result = await w.alice.slash(w.channel, "duet get", path="report.csv")
        assert result.ephemeral
        assert not result.deferred
        assert "switched off" in result.response.content


async def test_a_stranger_who_writes_directly_gets_no_file(world):
    async with world() as w:
        w.shell.files["report.csv"] = b"x"
        result = await w.env.create_user("mallory").slash("duet get", path="report.csv")
        await w.until(lambda: "people from outside" in result.response.content)
        assert result.response.attachments == []


async def test_a_file_that_a_reset_overtakes_is_taken_back(world, monkeypatch):
    async with world() as w:

        async def overtaken(room, generation, path):
            await w.duet.end(room)
            while room not in w.shell.destroyed:
                await asyncio.sleep(0.01)
            await w.quiet()
            return b"x"

        await w.ask()
        await w.settled()
        monkeypatch.setattr(w.shell, "get", overtaken)
        result = await w.alice.slash(w.channel, "duet get", path="report.csv")
        await w.until(lambda: "was reset meanwhile" in result.response.content)
        assert result.response.attachments == []


async def test_a_get_that_discord_tells_twice_brings_the_file_once(world):
    async with world() as w:
        w.shell.files["report.csv"] = b"x"
        await w.alice.slash(w.channel, "duet get", path="report.csv")
        await w.until(lambda: w.mine() and w.mine()[0].attachments)
        told = next(
            p for kind, name, p in w.env.backend.transcript if (kind, name) == ("GATEWAY", "INTERACTION_CREATE")
        )
        w.env.backend.emit("INTERACTION_CREATE", told)
        await w.env.settle()
        assert len(w.mine()) == 1
