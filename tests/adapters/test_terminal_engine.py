"""The program with a real engine and a scripted model: what it asks to run is run, and it sees what came of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapters.terminal_program import Program
from tests.sandbox_engine import TINY, bench
from tests.scripted_model import ScriptedModel


@pytest.fixture
def duet(tmp_path: Path) -> Iterator[Program]:
    """Give the program on the engine; its containers go with it."""
    (tmp_path / "home").mkdir()
    with bench(tmp_path / "home") as engine:
        (tmp_path / "duet.toml").write_text(f'docker.host = "{engine.address}"\nsandbox.image = "{TINY}"\n')
        program = Program(tmp_path)
        try:
            yield program
        finally:
            with contextlib.suppress(FileNotFoundError):
                engine.install_id = (tmp_path / "home" / "install-id").read_text("ascii").strip()


def env() -> dict[str, str]:
    return {"DOCKER_HOST": ""}  # what duet.toml says counts


async def test_two_commands_of_a_reply_run_and_the_model_sees_their_output(duet: Program) -> None:
    replies = [
        "I will list the files and ask the kernel.\n\n<run>echo here > a.txt; ls</run>\n<run>uname -s</run>",
        "There is one file, a.txt, and the kernel is Linux.",
    ]
    async with ScriptedModel(replies) as model:
        ran = await duet.call(
            "ask",
            "list the files here and show the kernel version",
            "--json",
            env=env() | {"DUET_MODEL_URL": model.url, "DUET_MODEL": "scripted"},
        )
        assert ran.code == 0, ran
        first, second = ran.json["commands"]
        assert (first["exit_code"], first["ended"], first["stdout"]) == (0, "exit", "a.txt\n")
        assert (second["command"], second["output"]) == ("uname -s", "Linux")
        assert "<run>" not in ran.json["answer"]
        assert ran.json["answer"].endswith("There is one file, a.txt, and the kernel is Linux.")
        assert len(model.requests) == 2
        assert "a.txt" in model.requests[1].last
        assert "Linux" in model.requests[1].last


def test_a_command_of_ones_own_has_its_streams_its_code_and_its_room(duet: Program) -> None:
    ran = duet("run", "echo a; echo b >&2; exit 3", env=env())
    assert (ran.code, ran.out, ran.err) == (3, "a\n", "b\n")
    (result,) = duet("run", "--json", "echo a; echo b >&2; exit 3", env=env()).json["commands"]
    assert (result["exit_code"], result["stdout"], result["stderr"], result["output"]) == (3, "a\n", "b\n", "a\nb")


def test_files_stay_in_the_room_are_not_in_another_and_go_with_a_reset(duet: Program) -> None:
    assert duet("run", "echo kept > note", env=env()).code == 0
    assert duet("run", "cat note", env=env()).out == "kept\n"
    assert duet("run", "cat note", "--room", "other", env=env()).code != 0
    assert duet("reset", env=env()).code == 0
    assert duet("run", "cat note", env=env()).code != 0


def test_output_cannot_command_the_terminal(duet: Program) -> None:
    ran = duet("run", r"printf '\033]52;c;cm0=\007\033[2Jplain\n'", env=env())
    assert ran.out == "plain\n"
