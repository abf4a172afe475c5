"""What is said of settings that cannot be used: each fault one sentence, all at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.errors import SettingsError
from bot.settings import load_settings


@pytest.mark.parametrize(
    ("toml", "fault"),
    [
        (b"home = 5", "home (duet.toml) must be text, not 5."),
        (b"codex = true", "codex (duet.toml) must be text, not True."),
        (b"sandbox.memory_mb = 64.5", "sandbox.memory_mb (duet.toml) must be a whole number, not 64.5."),
        (b"http.port = 99999", "http.port (duet.toml) must be 0 to 65535, not 99999."),
        (b"turn.timeout_s = nan", "turn.timeout_s (duet.toml) must be at least 1, not nan."),
        (
            b"[endpoints.a]\nurl = 'http://x/v1'\nkeyy = 'k'",
            "endpoints (duet.toml) has an unknown key 'keyy' in [endpoints.a]; did you mean key?",
        ),
        (b"name = '\xff'", "duet.toml cannot be read: it is not UTF-8 (byte 8). Mend it or move it away."),
    ],
)
def test_a_fault_is_one_sentence_that_names_setting_and_origin(tmp_path: Path, toml: bytes, fault: str) -> None:
    (tmp_path / "duet.toml").write_bytes(toml)
    with pytest.raises(SettingsError) as raised:
        load_settings(environ={}, folder=tmp_path)
    assert raised.value.faults == (fault,)


def test_a_folder_in_the_place_of_the_file_is_said_plainly(tmp_path: Path) -> None:
    (tmp_path / "duet.toml").mkdir()
    with pytest.raises(SettingsError, match=r"^duet\.toml cannot be read: Is a directory\. Mend it or move it away\.$"):
        load_settings(environ={}, folder=tmp_path)


def test_each_layer_stands_before_the_next_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "duet.toml").write_text('log.level = "ERROR"\nmodel.name = "t"\ncommands = "off"\nhttp.port = 1\n')
    (tmp_path / ".env").write_text("DUET_LOG_LEVEL=WARNING\nDUET_MODEL=d\nDUET_COMMANDS=ask\n")
    environ = {"DUET_LOG_LEVEL": "DEBUG", "DUET_MODEL": "e"}
    settings = load_settings({"log_level": "INFO"}, environ=environ, folder=tmp_path)
    assert (settings.log_level, settings.model_name, settings.commands, settings.http_port) == ("INFO", "e", "ask", 1)
    assert [settings.origins[name] for name in ("log_level", "model_name", "commands", "http_port")] == [
        "flag",
        "environment",
        ".env",
        "duet.toml",
    ]
