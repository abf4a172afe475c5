"""Setting up and looking after: the manifest is the code's, the steps hold the link, each check names its cure."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import discord
import pytest

from adapters.discord.checks import checks
from adapters.discord.permissions import needed
from adapters.discord.setup import application_of, setup_text, token_fault, wanted_commands, write_env, written_manifest
from adapters.discord.sync import Sync
from bot.checks import Health
from bot.errors import BadInput
from bot.settings import Settings
from tests.doubles.discord import FakeDiscord

MANIFEST = Path(__file__).parents[3] / "manifest" / "discord.json"
GOOD = "MTIzNDU2Nzg5MDEyMzQ1Njc4.GAbCdE.abcdefghijklmnopqrstuvwxyz0123456789AB"


def test_the_manifest_says_what_the_code_registers():
    assert MANIFEST.read_text("utf-8") == written_manifest(), "write it anew: adapters.discord.setup.written_manifest()"


def test_the_commands_keep_to_discords_limits():
    [duet, menu] = wanted_commands()
    assert {option["name"] for option in duet["options"]} == {"ask", "run", "get", "reset", "sources", "status", "help"}
    assert menu["type"] == 3
    for option in duet["options"]:
        assert 1 <= len(option["description"]) <= 100
        for inner in option["options"]:
            assert len(inner["description"]) <= 100
            assert all(len(choice["name"]) <= 100 for choice in inner.get("choices", []))


def test_anyone_may_install_the_app_and_use_it_anywhere_and_the_gate_decides():
    [duet, menu] = wanted_commands()
    for command in (duet, menu):
        assert command["integration_types"] == [0, 1]
        assert command["contexts"] == [0, 1, 2]


def test_the_steps_hold_the_invite_link_with_the_permissions():
    text = setup_text(token=GOOD)
    assert "client_id=123456789012345678" in text
    assert f"permissions={needed().value}" in text
    assert "administrator" not in text.lower()
    assert "once DISCORD_TOKEN is set" in setup_text()
    assert application_of("nonsense") == ""


def test_the_token_is_written_for_its_owner_alone_and_other_lines_are_kept(tmp_path):
    path = tmp_path / ".env"
    path.write_text("DUET_MODEL=x\nDISCORD_TOKEN=old\n")
    write_env(path, GOOD)
    assert path.read_text() == f"DUET_MODEL=x\nDISCORD_TOKEN={GOOD}\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_is_no_token_is_refused_without_being_repeated(tmp_path):
    with pytest.raises(BadInput) as caught:
        write_env(tmp_path / ".env", "hunter2")
    assert "hunter2" not in str(caught.value)
    assert not (tmp_path / ".env").exists()
    assert token_fault(GOOD) == ""


@pytest.fixture
async def double(monkeypatch):
    monkeypatch.setattr(discord.http.Route, "BASE", discord.http.Route.BASE)
    monkeypatch.setattr(discord.gateway.DiscordWebSocket, "DEFAULT_GATEWAY", None)
    async with FakeDiscord() as world:
        yield world
    assert world.violations == []


def settings_for(world, tmp_path, **changes):
    known = {"discord_token": "double-token", "discord_api_base": world.api_base, "discord_gateway": world.gateway}
    return Settings(home=tmp_path, **(known | changes))


async def found(world, tmp_path, **changes):
    return {check.name: check for check in await checks(settings_for(world, tmp_path, **changes))}


async def test_the_doctor_says_when_discord_is_not_set_up(tmp_path):
    [check] = await checks(Settings(home=tmp_path))
    assert check.verdict is Health.OK
    assert "duet setup discord" in check.mend


async def test_the_doctor_finds_a_swapped_or_wrong_token(double, tmp_path):
    [shape] = await checks(Settings(home=tmp_path, discord_token="xoxb-1234"))
    assert (shape.verdict, "xoxb" in shape.seen) == (Health.FAIL, False)
    wrong = await found(double, tmp_path, discord_token="wrong")
    assert wrong["discord token"].verdict is Health.FAIL
    assert "Reset Token" in wrong["discord token"].mend


async def test_the_doctor_is_content_with_a_healthy_server_but_for_commands_never_registered(double, tmp_path):
    seen = await found(double, tmp_path)
    assert seen["discord token"].verdict is Health.OK
    assert seen["discord servers"].seen == "in 1"
    assert seen["discord channels of guild"].verdict is Health.OK
    assert seen["discord commands"].verdict is Health.WARN
    double.commands[""] = wanted_commands()
    assert (await found(double, tmp_path))["discord commands"].verdict is Health.OK
    double.commands[""] = wanted_commands()[1:]
    assert "another form" in (await found(double, tmp_path))["discord commands"].seen


async def test_the_doctor_names_channel_and_permission(double, tmp_path):
    deny = discord.Permissions(attach_files=True).value
    double.channels[double.channel]["permission_overwrites"] = [
        {"id": double.guild, "type": 0, "allow": "0", "deny": str(deny)}
    ]
    plain = double.guild_object
    double.guild_object = lambda: (
        plain()
        | {
            "owner_id": "1",
            "roles": [plain()["roles"][0] | {"permissions": str(needed().value)}],
        }
    )
    check = (await found(double, tmp_path))["discord channels of guild"]
    assert check.verdict is Health.WARN
    assert "#general: Attach Files" in check.seen


async def test_the_doctor_finds_the_intent_that_is_wanted_but_not_granted(double, tmp_path):
    check = (await found(double, tmp_path, discord_message_content=True))["discord intents"]
    assert check.verdict is Health.FAIL
    assert "Message Content Intent" in check.mend


async def test_no_check_shows_the_token(double, tmp_path):
    seen = await checks(settings_for(double, tmp_path))
    assert not [check for check in seen if "double-token" in f"{check.seen}{check.mend}"]


async def test_commands_move_from_one_scope_to_the_other_and_never_stand_in_both(double, tmp_path):
    for guild in (double.guild, ""):
        settings = settings_for(double, tmp_path, discord_guild=guild)
        from typing import cast

        from adapters.discord.app import build_client, point
        from adapters.discord.commands import build_tree
        from adapters.discord.entry import Entry

        point(settings)
        client = build_client(settings)
        tree = build_tree(client, cast(Entry, None))
        await client.login("double-token")
        sync = Sync(client, tree, file=tmp_path / "commands.json", guild=guild)
        assert await sync.run()
        assert not await sync.run()
        await client.close()
        other = "" if guild else double.guild
        assert len(double.commands[guild]) == 2
        assert not double.commands.get(other)
    assert json.loads((tmp_path / "commands.json").read_text())["scope"] == "global"
