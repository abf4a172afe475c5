"""The `duet` command as a newcomer uses it, on the sample Codex, with nothing configured."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from bot.__main__ import FIRST_COMMAND
from tests.adapters.terminal_program import ROOT, Program

CONVENTION = "What is our branch naming convention?"
SOURCE_FIELDS = {"document", "heading", "line", "url", "quote"}
COMMAND_FIELDS = {"command", "exit_code", "ended", "stdout", "stderr", "output", "truncated", "duration_ms"}


@pytest.fixture
def duet(tmp_path: Path) -> Program:
    return Program(tmp_path)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """A data folder in which two questions were asked, the second without a subject of its own."""
    program = Program(tmp_path_factory.mktemp("asked"))
    assert program("ask", CONVENTION).code == 0
    assert program("ask", "what about for hotfixes?").code == 0
    return program


def quoted_from_corpus(document: str, line: int, quote: str) -> bool:
    """Tell whether the quote stands in the document, below the line that the source names."""
    below = (ROOT / "corpus" / document).read_text("utf-8").split("\n")[line - 1 :]
    return quote in "\n".join(below)


def test_the_first_question_is_answered_with_its_source(duet: Program) -> None:
    ran = duet("ask", CONVENTION)
    assert ran.code == 0
    assert "`<type>/<ticket>-<short-description>`" in ran.out
    assert "[1] branch-naming.md › The convention (line 8)" in ran.out
    assert ran.err == ""


def test_ask_as_json_has_exactly_the_promised_fields(duet: Program) -> None:
    answer = duet("ask", CONVENTION, "--json", "--room", "demo", "--thread", "t1").json
    assert set(answer) == {"answer", "covered", "sources", "commands", "room", "thread", "turn", "model", "total_ms"}
    assert (answer["covered"], answer["room"], answer["thread"], answer["model"]) == (True, "demo", "t1", "offline")
    assert answer["sources"]
    for source in answer["sources"]:
        assert set(source) == SOURCE_FIELDS
        assert quoted_from_corpus(source["document"], source["line"], source["quote"])


def test_the_second_question_is_understood_from_the_first(asked: Program) -> None:
    log = asked("log", "--json").json
    assert [call["question"] for call in log["calls"]] == [CONVENTION, "what about for hotfixes?"]
    first, second = log["calls"]
    assert first["sections"][0] == {**first["sections"][0], "document": "branch-naming.md", "heading": "The convention"}
    assert second["sections"][0]["document"] == "branch-naming.md"
    assert "otfix" in second["sections"][0]["heading"]
    assert CONVENTION in str(second["messages"])


def test_a_thread_is_a_conversation_of_its_own(asked: Program) -> None:
    answer = asked("ask", "what about for hotfixes?", "--room", "elsewhere", "--json").json
    log = asked("log", "--room", "elsewhere", "--json").json
    assert CONVENTION not in str(log["calls"])
    assert answer["room"] == "elsewhere"


def test_a_question_the_standards_do_not_cover_is_answered_so(duet: Program) -> None:
    ran = duet("ask", "What is our vacation policy?", "--json")
    assert (ran.code, ran.json["covered"], ran.json["sources"]) == (0, False, [])


def test_the_log_shows_messages_sections_reply_and_time(asked: Program) -> None:
    log = asked("log", "--format", "md").out
    assert re.search(r"^## Turn `[0-9a-f]{32}`, step 0$", log, re.MULTILINE)
    assert "| branch-naming.md | The convention | 8 |" in log
    assert "**system**" in log
    assert "### Reply" in log
    assert re.search(r"complete, \d+ ms", log)
    assert asked("log", "--format", "json").json == asked("log", "--json").json


def test_rooms_are_listed_and_their_keys_lead_back(asked: Program) -> None:
    rooms = asked("rooms", "--json").json["rooms"]
    main = next(room for room in rooms if room["room"] == "main")
    assert (main["key"], main["turns"]) == ("terminal/local/main", 2)
    assert "terminal/local/main" in asked("rooms").out
    assert len(asked("log", "--room", main["key"], "--json").json["calls"]) == 2


def test_reset_without_a_terminal_does_not_ask_and_forgets(duet: Program) -> None:
    duet("ask", CONVENTION)
    ran = duet("reset", "--json")
    assert ran.code == 0
    assert (ran.json["cleared"], ran.json["room"], ran.json["thread"]) == (True, "main", None)
    assert duet("log", "--json").json["calls"] == []


def test_run_without_an_engine_says_how_to_get_one(duet: Program) -> None:
    ran = duet("run", "uname", "-a")
    assert (ran.code, ran.out) == (125, "")
    assert "Docker" in ran.err
    ran = duet("run", "--json", "uname -a")
    (result,) = ran.json["commands"]
    assert ran.code == 125
    assert set(ran.json) == {"commands", "room"}
    assert set(result) == COMMAND_FIELDS
    assert (result["command"], result["ended"], result["exit_code"]) == ("uname -a", "not_started", None)
    assert duet("rooms", "--json").json["rooms"][0]["turns"] == 2


def test_search_shows_sections_with_scores(duet: Program) -> None:
    found = duet("search", "who approves a hotfix", "--json", "--limit", "3").json
    assert set(found) == {"confidence", "band", "hits"}
    assert found["band"] in ("low", "middle", "high")
    assert 0 < len(found["hits"]) <= 3
    assert all(set(hit) == {"document", "heading", "line", "score"} for hit in found["hits"])
    assert found["hits"][0]["document"] == "pr-review-policy.md"


def test_index_lists_the_five_standards_and_nothing_else(duet: Program) -> None:
    index = duet("index", "--json").json
    assert sorted(d["document"] for d in index["documents"]) == sorted(p.name for p in (ROOT / "corpus").glob("*.md"))
    assert len(index["documents"]) == 5
    assert index["sections"] > 40
    assert "branch-naming.md" in duet("index").out


def test_chat_reads_a_pipe_line_by_line(duet: Program) -> None:
    ran = duet("chat", stdin=f"{CONVENTION}\nwhat about for hotfixes?\n/frob\n")
    assert ran.code == 0
    assert ran.out.index("<short-description>") < ran.out.index("hotfix/<ticket>")
    assert "There is no /frob" in ran.err


def test_a_question_comes_from_the_input_with_a_dash(duet: Program) -> None:
    assert "<short-description>" in duet("ask", "-", stdin=CONVENTION).out


def test_config_shows_where_each_value_came_from_and_no_secret(duet: Program) -> None:
    (duet.folder / "duet.toml").write_text('[model]\nname = "from-toml"\nurl = "http://toml.example/v1"\n')
    (duet.folder / ".env").write_text("DUET_MODEL=from-dotenv\nDUET_MODEL_KEY=sk-abcdefghijklmnop1234\n")
    ran = duet("config", "--json", "--set", "turn.timeout_s=5", env={"SLACK_BOT_TOKEN": "xoxb-123456789-secretsecret"})
    settings = ran.json["settings"]
    assert settings["model.name"] == {"value": "from-dotenv", "origin": ".env", "environment": "DUET_MODEL"}
    assert settings["model.url"]["origin"] == "duet.toml"
    assert settings["turn.timeout_s"] == {"value": 5.0, "origin": "flag", "environment": "DUET_TURN_TIMEOUT_S"}
    assert settings["slack.bot_token"] == {
        "value": "xoxb-…cret",
        "origin": "environment",
        "environment": "SLACK_BOT_TOKEN",
    }
    assert settings["http.port"]["origin"] == "default"
    text = duet("config").out
    assert "abcdefgh" not in ran.out + text
    assert re.search(r"^model\.name +DUET_MODEL +from-dotenv +\.env$", text, re.MULTILINE)


def test_doctor_offline_names_what_is_missing_and_how_to_mend_it(duet: Program) -> None:
    ran = duet("doctor", "--offline", "--json")
    checks = {check["name"]: check for check in ran.json["checks"]}
    assert (ran.code, ran.json["ok"]) == (1, False)
    assert checks["codex"]["verdict"] == "ok"
    assert checks["docker engine"]["verdict"] == "fail"
    assert all(check["mend"] for check in checks.values() if check["verdict"] != "ok")
    assert "→" in duet("doctor", "--offline").out


def test_doctor_fails_where_the_database_is_damaged(duet: Program) -> None:
    home = duet.folder / "home"
    home.mkdir()
    (home / "duet.db").write_bytes(b"not a database at all" * 100)
    ran = duet("doctor", "--offline", "--json")
    database = next(check for check in ran.json["checks"] if check["name"] == "database")
    assert (ran.code, ran.json["ok"], database["verdict"]) == (1, False, "fail")
    assert database["mend"]


def test_eval_measures_the_sample_with_its_own_questions(duet: Program) -> None:
    page = duet.folder / "page.html"
    measured = duet("eval", str(ROOT / "corpus" / "eval.jsonl"), "--json", "--html", str(page)).json
    fields = {"n", "skipped", "recall_at_2", "recall_at_5", "mrr", "auroc", "by_kind", "misses"}
    assert set(measured) == fields
    assert measured["n"] >= 60
    assert measured["skipped"] == 0
    assert set(measured["by_kind"]) == {"direct", "paraphrase", "followup", "typo"}
    assert measured["recall_at_5"] > 0.7
    assert "<table>" in page.read_text("utf-8")


def test_eval_skips_and_counts_questions_about_another_folder(duet: Program) -> None:
    questions = duet.folder / "questions.jsonl"
    other = '{"id": "1", "corpus": "other", "kind": "direct", "question": "q", "gold": [["a.md", ""]]}\n'
    ours = other.replace('"other"', '"corpus"').replace('"q"', '"on-call swap"').replace("a.md", "oncall-rotation.md")
    questions.write_text(other + ours)
    measured = duet("eval", "questions.jsonl", "--json").json
    assert (measured["n"], measured["skipped"], measured["recall_at_2"]) == (1, 1, 1.0)
    questions.write_text("{}")
    assert "Line 1" in duet("eval", "questions.jsonl").err


def test_setup_slack_prints_the_link_and_writes_tokens_that_fit(duet: Program) -> None:
    ran = duet("setup", "slack")
    assert "https://api.slack.com/apps?new_app=1&manifest_json=" in ran.out
    assert not (duet.folder / ".env").exists()
    wrong = duet("setup", "slack", stdin="SLACK_BOT_TOKEN=xapp-123456-abc\n")
    assert (wrong.code, (duet.folder / ".env").exists()) == (2, False)
    assert duet("setup", "slack", stdin="SLACK_BOT_TOKEN=xoxb-123456-abc\nSLACK_APP_TOKEN=xapp-123456-abc\n").code == 0
    assert (duet.folder / ".env").stat().st_mode & 0o777 == 0o600
    shown = duet("config", "--json").json["settings"]["slack.bot_token"]
    assert shown["origin"] == ".env"


def test_setup_discord_prints_the_invite_link_once_the_token_is_known(duet: Program) -> None:
    token = "MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.ZnCjm1XVW7vRze4b7Cq4se7kKWs"  # the one in Discord's documentation
    assert "client_id=" not in duet("setup", "discord").out
    wrong = duet("setup", "discord", stdin="DISCORD_TOKEN=nonsense\n")
    assert (wrong.code, (duet.folder / ".env").exists()) == (2, False)
    ran = duet("setup", "discord", stdin=f"DISCORD_TOKEN={token}\n")
    assert ran.code == 0
    assert "client_id=198622483471925248" in ran.out
    assert token not in ran.out + ran.err
    assert (duet.folder / ".env").stat().st_mode & 0o777 == 0o600


def test_completion_is_a_script_that_calls_us_back_and_knows_the_commands(duet: Program) -> None:
    assert "_DUET_COMPLETE" in duet("completion", "zsh").out
    ran = duet(env={"_DUET_COMPLETE": "bash_complete", "COMP_WORDS": "duet re", "COMP_CWORD": "1"})
    assert "plain,reset" in ran.out


def test_help_names_every_command_with_a_line(duet: Program) -> None:
    ran = duet("--help")
    commands = re.findall(r"^  (\w+)  +\S", ran.out[ran.out.index("Commands:") :], re.MULTILINE)
    assert {"ask", "chat", "run", "search", "index", "reset", "rooms", "log", "config", "serve", "doctor"} <= set(
        commands
    )
    assert {"image", "model", "completion"} <= set(commands)


def test_help_loads_nothing_heavy() -> None:
    heavy = {"asyncio", "httpx", "aiohttp", "sqlite3", "docker", "discord", "slack_bolt", "numpy", "prompt_toolkit"}
    script = f"""
import runpy, sys
sys.argv = ["duet", "--help"]
try:
    runpy.run_module("bot", run_name="__main__")
except SystemExit:
    print(sorted({heavy} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_without_its_dependencies_it_says_what_to_type(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    for package in ("bot", "adapters"):
        shutil.copytree(ROOT / package, tmp_path / "checkout" / package)
    done = subprocess.run(
        [tmp_path / "bare" / "bin" / "python", "-m", "bot", "ask", "hello"],
        cwd=tmp_path / "checkout",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (2, FIRST_COMMAND)
    assert "Traceback" not in done.stderr


def test_the_command_it_names_is_the_readmes_first() -> None:
    readme = ROOT / "README.md"
    if not readme.exists():
        pytest.skip("README.md is not written yet")
    fenced = re.findall(r"```(?:bash|sh|console)?\n(.*?)\n```", readme.read_text("utf-8"), re.DOTALL)
    assert fenced[0].strip() == FIRST_COMMAND


def test_the_page_about_the_command_line_names_every_command_and_field(duet: Program) -> None:
    from bot.__main__ import cli

    page = (ROOT / "docs" / "command-line.md").read_text("utf-8")
    for name, command in cli.commands.items():
        for inner in getattr(command, "commands", {"": None}):
            assert f"`duet {name} {inner}".rstrip() in page
    answer = duet("ask", CONVENTION, "--json").json
    rooms = duet("rooms", "--json").json
    for field in [*answer, *SOURCE_FIELDS, *COMMAND_FIELDS, *rooms["rooms"][0]]:
        assert f"`{field}`" in page
