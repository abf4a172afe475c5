"""Setting Slack up: manifest and code say the same, the link works, `.env` is private, doctor says how to mend."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from adapters.slack import checks as checking
from adapters.slack.checks import checks
from adapters.slack.setup import creation_link, manifest, manifest_for_http, setup_text, shape_faults, write_env
from bot.checks import Health
from bot.errors import BadInput
from bot.settings import Settings
from tests.adapters.slack.conftest import settings_for
from tests.doubles import slack as double
from tests.doubles import slack_contract as contract
from tests.doubles.slack import FakeSlack, Fault

BOT = "xoxb-1234567890-abcdef"
APP = "xapp-1-A1-1234567890"
SECRET = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize("made", [manifest(), manifest_for_http("https://duet.example/slack/events")])
def test_the_manifest_is_valid_against_slacks_published_schema(made: dict[str, Any]) -> None:
    assert contract.faults("manifest", made) == []


def test_the_manifest_asks_for_what_the_code_calls_and_hears() -> None:
    made = manifest()
    scopes = set(made["oauth_config"]["scopes"]["bot"])
    assert set(double.SCOPES.values()) <= scopes
    assert scopes == double.ALL_SCOPES
    assert "chat:write.public" not in scopes  # it would post where it cannot hear replies
    code = "\n".join(path.read_text("utf-8") for path in Path("adapters/slack").glob("*.py"))
    heard = set(made["settings"]["event_subscriptions"]["bot_events"])
    for event in heard:
        assert f'"{event.split(".")[0]}"' in code, event
    for history in ("channels", "groups", "im", "mpim"):
        assert f"message.{history}" in heard
        assert f"{history}:history" in scopes
    assert [shortcut["callback_id"] for shortcut in made["features"]["shortcuts"]] == ["ask_duet", "reset_duet"]
    assert all(f'"{shortcut["callback_id"]}"' in code for shortcut in made["features"]["shortcuts"])
    (command,) = made["features"]["slash_commands"]
    for word in command["usage_hint"].split(" | "):
        assert f"`/duet {word}" in code or word == "help"


def test_42_tokens_do_not_rotate_since_one_workspace_needs_no_such_race() -> None:
    assert manifest()["settings"]["token_rotation_enabled"] is False


def test_direct_messages_to_the_app_are_switched_on() -> None:
    home = manifest()["features"]["app_home"]
    assert home["messages_tab_enabled"] is True
    assert home["messages_tab_read_only_enabled"] is False


def test_the_link_carries_the_manifest() -> None:
    link = creation_link(manifest())
    query = parse_qs(urlsplit(link).query)
    assert json.loads(query["manifest_json"][0]) == manifest()
    assert query["new_app"] == ["1"]
    assert len(link) < 8_000
    assert link in setup_text()


def test_the_steps_for_http_name_the_address_and_the_secret() -> None:
    text = setup_text(events_url="https://duet.example/slack/events")
    assert "SLACK_SIGNING_SECRET" in text
    assert "SLACK_APP_TOKEN" not in text
    made = manifest_for_http("https://duet.example/slack/events")
    assert made["settings"]["socket_mode_enabled"] is False
    assert made["features"]["slash_commands"][0]["url"] == "https://duet.example/slack/events"


def test_tokens_are_written_privately_and_other_lines_are_kept(tmp_path: Path) -> None:
    env = tmp_path / ".env"
    env.write_text("# mine\nDUET_MODEL=x\nexport SLACK_BOT_TOKEN=old\n")
    env.chmod(0o644)
    write_env(env, {"SLACK_BOT_TOKEN": BOT, "SLACK_APP_TOKEN": f" {APP}\n", "SLACK_SIGNING_SECRET": SECRET})
    assert env.read_text().splitlines() == [
        "# mine",
        "DUET_MODEL=x",
        f"SLACK_BOT_TOKEN={BOT}",
        f"SLACK_APP_TOKEN={APP}",
        f"SLACK_SIGNING_SECRET={SECRET}",
    ]
    assert stat.S_IMODE(env.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [".env"]


def test_swapped_tokens_are_noticed_and_never_repeated(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        write_env(tmp_path / ".env", {"SLACK_BOT_TOKEN": APP, "SLACK_APP_TOKEN": BOT})
    said = str(caught.value)
    assert "SLACK_BOT_TOKEN must be the Bot User OAuth Token" in said
    assert "looks like SLACK_APP_TOKEN" in said
    assert APP not in said
    assert BOT not in said
    assert not (tmp_path / ".env").exists()


@pytest.mark.parametrize("value", ["", "xoxp-123456789", "Bearer xoxb-1", "xoxb-", "xoxb-1234567 x", "<xoxb-1234567>"])
def test_a_token_of_the_wrong_shape_is_refused(value: str) -> None:
    assert shape_faults({"SLACK_BOT_TOKEN": value})


def test_an_env_that_cannot_be_written_is_said_plainly(tmp_path: Path) -> None:
    (tmp_path / ".env").mkdir()
    with pytest.raises(BadInput, match="cannot be written"):
        write_env(tmp_path / ".env", {"SLACK_BOT_TOKEN": BOT})


# Doctor.


async def verdicts(settings: Settings, **more: Any) -> dict[str, tuple[Health, str, str]]:
    found = await checks(settings, **more)
    for check in found:
        assert double.BOT_TOKEN not in check.seen + check.mend
        assert double.APP_TOKEN not in check.seen + check.mend
    return {check.name: (check.verdict, check.seen, check.mend) for check in found}


async def test_doctor_finds_a_sound_set_up_sound(slack: FakeSlack) -> None:
    found = await verdicts(settings_for(slack))
    assert {name: verdict for name, (verdict, _, _) in found.items()} == {
        "slack tokens": Health.OK,
        "slack bot token": Health.OK,
        "slack permissions": Health.OK,
        "slack channels": Health.OK,
        "slack events": Health.OK,
    }


async def test_doctor_says_where_slack_is_not_set_up() -> None:
    (check,) = await checks(Settings())
    assert (check.verdict, check.seen) == (Health.OK, "not set up")


async def test_doctor_names_missing_scopes_and_says_reinstall(slack: FakeSlack) -> None:
    slack.scopes -= {"files:write", "im:history"}
    found = await verdicts(settings_for(slack))
    assert found["slack permissions"] == (Health.FAIL, "missing: files:write, im:history", checking.REINSTALL)


@pytest.mark.parametrize(
    ("method", "word", "name"),
    [
        ("auth.test", "invalid_auth", "slack bot token"),
        ("auth.test", "account_inactive", "slack bot token"),
        ("apps.connections.open", "not_allowed_token_type", "slack events"),
        ("apps.connections.open", "missing_scope", "slack events"),
    ],
)
async def test_doctor_says_what_slack_refuses(slack: FakeSlack, method: str, word: str, name: str) -> None:
    slack.fault(method, Fault("error", word))
    verdict, seen, mend = (await verdicts(settings_for(slack)))[name]
    assert verdict is Health.FAIL
    assert word in seen
    assert mend


async def test_doctor_says_when_slack_is_not_reached() -> None:
    given = {"slack_bot_token": BOT, "slack_app_token": APP, "slack_api_url": "http://127.0.0.1:9/api/"}
    found = await verdicts(Settings(**given))
    assert found["slack bot token"][0] is Health.FAIL
    assert "not reached" in found["slack bot token"][1]


async def test_doctor_says_when_duet_is_in_no_channel(slack: FakeSlack) -> None:
    for channel in slack.channels.values():
        channel.members.discard(double.BOT_USER)
    verdict, _, mend = (await verdicts(settings_for(slack)))["slack channels"]
    assert verdict is Health.WARN
    assert "/invite @duet" in mend


async def test_offline_and_swapped_tokens_ask_nobody(slack: FakeSlack) -> None:
    await verdicts(settings_for(slack), offline=True)
    swapped = Settings(slack_bot_token=double.APP_TOKEN, slack_app_token=double.BOT_TOKEN, slack_api_url=slack.api_url)
    (check,) = await checks(swapped)
    assert check.verdict is Health.FAIL
    assert slack.calls == []
