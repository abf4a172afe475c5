"""What goes wrong at the command line: one sentence that says what to do, a code, no traceback, nothing lost."""

from __future__ import annotations

import base64
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.adapters.terminal_program import Program, Ran
from tests.scripted_model import Reply, ScriptedModel

CONVENTION = "What is our branch naming convention?"


@pytest.fixture
def duet(tmp_path: Path) -> Program:
    return Program(tmp_path)


def assert_told(ran: Ran, code: int, *words: str) -> None:
    """Hold a failed call to one short message on stderr with these words in it, and nothing on stdout."""
    assert (ran.code, ran.out) == (code, "")
    assert "Traceback" not in ran.err
    assert ran.err.startswith("duet: ")
    assert ran.err.count("\n") <= 2, ran.err
    for word in words:
        assert word in ran.err


def assert_told_as_json(ran: Ran, code: int, kind: str) -> None:
    assert ran.code == code
    assert set(ran.json) == {"error"}
    assert set(ran.json["error"]) == {"kind", "message", "incident"}
    assert ran.json["error"]["kind"] == kind
    assert ran.json["error"]["message"]
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("question", ["", " "])
def test_an_empty_question_is_refused_before_anything_is_opened(duet: Program, question: str) -> None:
    assert_told(duet("ask", question), 2, "empty", "for example")
    assert not (duet.folder / "home").exists()


def test_a_question_of_a_megabyte_is_refused(duet: Program) -> None:
    assert_told(duet("ask", "-", stdin="x" * 1_000_000), 2, "1,000,000 characters", "shorter")
    assert_told_as_json(duet("ask", "-", "--json", stdin="x" * 1_000_000), 2, "bad_input")


def test_a_question_that_is_not_utf_8_is_still_a_question(duet: Program) -> None:
    ran = duet("ask", "-", stdin=b"What is our br\xffanch naming \xc3 convention?\x00")
    assert ran.code == 0
    assert "\\udc" not in ran.out


def bad_folders(folder: Path) -> dict[str, tuple[Path, str]]:
    empty = folder / "empty"
    empty.mkdir()
    file = folder / "file.md"
    file.write_text("# A file")
    return {
        "missing": (folder / "missing", "cannot be read"),
        "empty": (empty, "holds no document"),
        "a file": (file, "cannot be read"),
    }


@pytest.mark.parametrize("which", ["missing", "empty", "a file"])
def test_a_codex_that_cannot_be_read_is_named_with_the_setting(duet: Program, which: str) -> None:
    path, words = bad_folders(duet.folder)[which]
    assert_told(duet("ask", CONVENTION, "--codex", str(path)), 2, words, str(path), "DUET_CODEX")


def test_a_codex_that_cannot_be_read_is_one_object_where_json_was_asked_for(duet: Program) -> None:
    assert_told_as_json(duet("search", CONVENTION, "--json", "--codex", "missing"), 2, "codex_unreadable")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_codex_without_the_right_to_read_is_named(duet: Program) -> None:
    folder = duet.folder / "secret"
    folder.mkdir(mode=0o000)
    assert_told(duet("ask", CONVENTION, "--codex", str(folder)), 2, str(folder))


def test_a_file_that_is_not_utf_8_is_told_and_the_others_are_read(duet: Program) -> None:
    folder = duet.folder / "codex"
    folder.mkdir()
    (folder / "good.md").write_text("# Branches\n\n## Naming\n\nBranches are named by ticket.\n")
    (folder / "bad.md").write_bytes(b"# Caf\xe9\n\n## Opening\n\nThe caf\xe9 opens at nine.\n")
    index = duet("index", "--json", "--codex", str(folder)).json
    assert [d["document"] for d in index["documents"] if d["faults"]] == ["bad.md"]
    assert "UTF-8" in str(index)
    assert "by ticket" in duet("ask", "How are branches named?", "--codex", str(folder)).out


def test_all_wrong_settings_are_told_at_once_with_the_nearest_right_name(duet: Program) -> None:
    (duet.folder / "duet.toml").write_text('modle.url = "http://x/v1"\nturn.timeout_s = "soon"\n')
    ran = duet(
        "ask", CONVENTION, env={"DUET_COMMANDS": "maybe", "DUET_SANDBOX_IMGAE": "x", "SLACK_BOT_TOKEN": "xapp-1"}
    )
    assert (ran.code, ran.out) == (2, "")
    for words in (
        "did you mean model.url?",
        "did you mean DUET_SANDBOX_IMAGE?",
        "turn.timeout_s",
        "must be one of auto, ask, off",
        "must begin with xoxb-",
    ):
        assert words in ran.err
    assert "xapp-1" not in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["frob"],
        ["ask"],
        ["ask", "--frob", CONVENTION],
        ["log", "--format", "xml"],
        ["search", CONVENTION, "--limit", "0"],
    ],
    ids=lambda arguments: " ".join(arguments),
)
def test_wrong_usage_is_told_with_where_to_look(duet: Program, arguments: list[str]) -> None:
    assert_told(duet(*arguments), 2, "--help")


def test_wrong_usage_is_one_object_where_json_was_asked_for(duet: Program) -> None:
    assert_told_as_json(duet("ask", "--json"), 2, "usage")


def test_a_damaged_database_is_told_and_left_as_it_is(duet: Program) -> None:
    path = duet.folder / "home" / "duet.db"
    path.parent.mkdir()
    damaged = b"This is no database. " * 500
    path.write_bytes(damaged)
    assert_told(duet("ask", CONVENTION), 2, str(path), "damaged", "backup")
    assert_told_as_json(duet("log", "--json"), 2, "bad_input")
    assert path.read_bytes() == damaged


def test_a_database_that_another_program_holds_is_told_and_nothing_is_lost(duet: Program) -> None:
    assert duet("ask", CONVENTION).code == 0
    holder = sqlite3.connect(duet.folder / "home" / "duet.db", isolation_level=None)
    try:
        holder.execute("BEGIN EXCLUSIVE")
        ran = duet("ask", "what about for hotfixes?", "--json", timeout_s=90)
    finally:
        holder.close()
    assert ran.code == 1
    assert_told_as_json(ran, 1, "store_unavailable")
    assert len(duet("log", "--json").json["calls"]) == 1
    assert duet("ask", "what about for hotfixes?").code == 0


def test_a_data_folder_that_cannot_be_made_is_told(duet: Program) -> None:
    (duet.folder / "file").write_text("")
    assert_told(duet("ask", CONVENTION, "--home", str(duet.folder / "file" / "home")), 2, "DUET_HOME")


def test_a_reader_that_goes_away_is_no_fault(duet: Program) -> None:
    import subprocess
    import sys

    with subprocess.Popen(
        [sys.executable, "-m", "bot", "config"],
        cwd=duet.folder,
        env=duet.env(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        err = process.stderr.read().decode()
    assert err == ""


async def test_a_model_that_refuses_the_connection_fails_the_turn_and_keeps_the_question(duet: Program) -> None:
    env = {"DUET_MODEL_URL": "http://127.0.0.1:9/v1", "DUET_MODEL": "m"}
    ran = await duet.call("ask", CONVENTION, "--json", env=env)
    assert_told_as_json(ran, 1, "failed")
    assert ran.json["error"]["incident"]
    assert "Traceback" not in ran.err
    assert CONVENTION in str(duet("log", "--json").json)


async def test_a_model_that_refuses_the_key_is_told_without_the_key(duet: Program) -> None:
    key = "sk-verysecretverysecret1234567890"
    refused = Reply(status=401, body='{"error": {"message": "Incorrect API key provided: ' + key + '"}}')
    async with ScriptedModel([refused], repeat_last=True) as model:
        env = {"DUET_MODEL_URL": model.url, "DUET_MODEL": "m", "DUET_MODEL_KEY": key}
        ran = await duet.call("ask", CONVENTION, "--json", env=env)
        log = await duet.call("log", "--json", env=env)
    assert_told_as_json(ran, 1, "failed")
    everything = ran.out + ran.err + log.out + (duet.folder / "home" / "duet.log").read_text()
    assert key not in everything
    assert key not in (duet.folder / "home" / "duet.db").read_bytes().decode("latin-1")


async def test_secrets_are_neither_stored_nor_shown_nor_sent_whoever_says_them(duet: Program) -> None:
    key, pasted, invented = "sk-verysecretverysecret1234567890", "ghp_" + "a1B2" * 9, "glpat-" + "x9Y8" * 5
    encoded = base64.b64encode(key.encode()).decode()
    reply = f"The branch key is {key}, or {encoded}, or {key[:16]}\n{key[16:]}, and the hotfix token {invented}."
    async with ScriptedModel([reply], repeat_last=True) as model:
        env = {"DUET_MODEL_URL": model.url, "DUET_MODEL": "m", "DUET_MODEL_KEY": key}
        ran = await duet.call("ask", f"Which branch is this token for: {pasted} and {key}?", "--json", env=env)
        log = await duet.call("log", env=env)
        sent = str([request.body for request in model.requests])
    assert ran.code == 0
    stored = (duet.folder / "home" / "duet.db").read_bytes()
    stored += b"".join(p.read_bytes() for p in (duet.folder / "home").glob("duet.db-wal"))
    for secret in (key, pasted, invented, encoded):
        assert secret not in ran.out + ran.err + log.out
        assert secret.encode() not in stored
    for secret in (key, pasted):
        assert secret not in sent
    assert key[16:] not in ran.out + log.out
    assert "[secret removed]" in log.out


async def test_the_incident_of_a_failed_turn_stands_in_the_log_with_its_room_and_turn(duet: Program) -> None:
    async with ScriptedModel([Reply(status=401, body="{}")], repeat_last=True) as model:
        env = {"DUET_MODEL_URL": model.url, "DUET_MODEL": "m"}
        incident = (await duet.call("ask", CONVENTION, "--json", env=env)).json["error"]["incident"]
    (line,) = [line for line in (duet.folder / "home" / "duet.log").read_text().splitlines() if incident in line]
    assert re.search(r" WARNING bot\.errors \[terminal/local/main [0-9a-f]{32}\] ", line)


def test_streams_that_are_closed_are_empty_and_no_fault(duet: Program) -> None:
    ran = subprocess.run(
        ["/bin/sh", "-c", f'"{sys.executable}" -m bot ask - <&- >&- 2>&-'],
        cwd=duet.folder, env=duet.env(), timeout=60, check=False,
    )  # fmt: skip
    assert ran.returncode == 2  # an empty question, not a traceback's 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("arguments", [("config",), ("ask", CONVENTION)])
def test_an_output_that_is_full_is_one_sentence(duet: Program, arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "bot", *arguments],
            cwd=duet.folder, env=duet.env(), stdout=full, stderr=subprocess.PIPE, timeout=60, check=False,
        )  # fmt: skip
    assert ran.returncode == 1
    assert ran.stderr == b"duet: The output cannot be written: No space left on device.\n"


def test_what_the_outputs_alphabet_lacks_is_a_question_mark(duet: Program) -> None:
    ran = duet("ask", CONVENTION, env={"PYTHONIOENCODING": "ascii"})
    assert ran.code == 0
    assert "[1] branch-naming.md ? The convention" in ran.out


def test_bytes_that_are_no_text_are_told_like_any_other_fault(duet: Program) -> None:
    assert duet("config", "--json", "--codex", "/nowhere\udcff").json["settings"]["codex"]["value"] == "/nowhere\ufffd"
    assert_told_as_json(duet("search", "--json", "--codex", "/nowhere\udcff", "branch"), 2, "codex_unreadable")


def test_a_flag_that_names_no_setting_names_the_nearest(duet: Program) -> None:
    assert "did you mean http.port?" in duet("config", "--set", "http.prot=1").err


def test_a_file_whose_name_holds_a_newline_is_named_on_one_line(duet: Program) -> None:
    (folder := duet.folder / "codex").mkdir()
    (folder / "two\nlines.md").write_text("# Tabs\n\n## Rule\n\nUse tabs for indentation in every branch.\n")
    assert "two lines.md › Rule" in duet("search", "Which indentation?", "--codex", str(folder)).out
