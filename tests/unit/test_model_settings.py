"""The settings that choose a language model."""

from pathlib import Path

import pytest

from bot.errors import SettingsError
from bot.settings import Settings, load_settings

TOML = """\
models = ["workers-ai", "local", "offline"]

[endpoints.workers-ai]
url = "https://api.example/accounts/0123456789abcdef/ai/v1"
name = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
key = "a-very-secret-key-0123456789"
"""


def loaded(folder: Path, text: str) -> Settings:
    (folder / "duet.toml").write_text(text)
    return load_settings(environ={}, folder=folder)


def test_several_models_are_named_in_order_and_their_keys_are_secrets(tmp_path):
    settings = loaded(tmp_path, TOML)
    assert settings.models == ("workers-ai", "local", "offline")
    assert settings.endpoints is not None
    assert settings.endpoints["workers-ai"]["name"].startswith("@cf/")
    assert "a-very-secret-key-0123456789" in settings.secrets
    assert "a-very-secret-key" not in str(settings.shown())


def test_a_password_in_an_address_is_not_shown(tmp_path):
    text = (
        TOML.replace("https://", "https://ada:hunter2@") + "[model]\nurl = 'http://:hunter2@models.example:8080/v1'\n"
    )
    shown = str(loaded(tmp_path, text).shown())
    assert "hunter2" not in shown
    assert "http://…@models.example:8080/v1" in shown


def test_a_password_in_a_wrong_address_is_not_repeated(tmp_path):
    with pytest.raises(SettingsError, match="must begin with http:// or https://") as faults:
        loaded(tmp_path, "[model]\nurl = 'ftp://ada:hunter2@models.example/v1'")
    assert "hunter2" not in str(faults.value)


def test_the_list_can_come_from_the_environment(tmp_path):
    assert load_settings(environ={"DUET_MODELS": "model, offline"}, folder=tmp_path).models == ("model", "offline")


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("[endpoints.x]\nname = 'm'", "needs a url in [endpoints.x]"),
        ("[endpoints.x]\nurl = 'ftp://x'", "must begin with http"),
        ("[endpoints.x]\nurl = 'https://x/v1/chat/completions'", "must end before"),
        ("[model]\nurl = 'https://x/v1/chat/completions/?version=1'", "must end before"),
        ("[endpoints.x]\nurl = 'https://x/v1'\nprofle = 'one'", "did you mean profile?"),
        ("[endpoints.local]\nurl = 'https://x/v1'", "a meaning of its own"),
        ("[model]\nurl = 'http://host:no/v1'", "must be a web address such as https://host/v1"),
        ("[model]\nurl = 'http:///v1'", "must be a web address"),
        ("[model]\nprofile = 'tiny'", "must be one of auto, one, split"),
        ("[model]\ncontext_tokens = -1", "at least 0"),
    ],
)
def test_a_wrong_table_is_told_with_what_is_wrong(tmp_path, table, words):
    with pytest.raises(SettingsError) as faults:
        loaded(tmp_path, table)
    assert words in str(faults.value)
