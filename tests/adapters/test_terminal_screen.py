"""What stands on a screen at the end of a turn, whatever was drawn meanwhile."""

from __future__ import annotations

import io
import re

import pytest

from adapters.terminal.screen import Screen, rows
from bot.conversation import (
    Answer,
    CommandEnded,
    CommandOutput,
    CommandResult,
    CommandStarted,
    Drafted,
    Ended,
    Event,
    Settled,
    Source,
)

SOURCE = Source(1, "naming.md#n", "naming.md", "Naming", 3, "", "Branches are named so.")
LS = CommandResult("ls", Ended.EXIT, 0, stdout="a.txt\n", duration_ms=120)


def drawn(events: list[Event], *, is_live: bool = True, size: tuple[int, int] = (80, 24)) -> str:
    out = io.StringIO()
    screen = Screen(out, is_live=is_live, size=lambda: size)
    for event in events:
        screen.show(event)
    return out.getvalue()


def seen(written: str, columns: int = 80) -> str:
    """Give what a terminal of this width shows: text, and the two sequences that we use."""
    lines = [""]
    for piece in re.split(r"(\x1b\[\d+F\x1b\[0J|\r\x1b\[0J)", written):
        if up := re.fullmatch(r"\x1b\[(\d+)F\x1b\[0J", piece):
            lines = [*lines[: len(lines) - 1 - int(up[1])], ""]
        elif piece == "\r\x1b[0J":
            lines[-1] = ""
        else:
            for number, line in enumerate(piece.split("\n")):
                if number:
                    lines.append("")
                text = lines[-1] + line
                lines[-1:] = [text[i : i + columns] for i in range(0, len(text), columns)] or [""]
    return "\n".join(lines)


def test_a_pipe_gets_the_finished_answer_once_and_no_escape() -> None:
    answer = Answer("t", "Named so [1].", sources=(SOURCE,))
    written = drawn([Drafted("Named"), Drafted("Named so"), Settled(answer)], is_live=False)
    assert written == ("Named so [1].\n\nSources\n[1] naming.md › Naming (line 3)\n    “Branches are named so.”\n")


def test_drafts_grow_in_place_and_the_sources_follow() -> None:
    answer = Answer("t", "Named so [1].", sources=(SOURCE,))
    written = drawn([Drafted("Named"), Drafted("Named so"), Settled(answer)])
    assert "\x1b" not in written
    assert written.startswith("Named so [1].\n\nSources\n")


def test_a_draft_that_was_taken_back_is_not_left_standing() -> None:
    wrong = "I am sure it is [9] that\n" + "long " * 40
    written = drawn([Drafted(wrong), Settled(Answer("t", "The standards do not cover it."))])
    assert seen(written) == "The standards do not cover it.\n"


def test_a_draft_of_one_line_is_written_over() -> None:
    written = drawn([Drafted("Hm"), Settled(Answer("t", "No."))])
    assert seen(written) == "No.\n"


def test_what_has_scrolled_away_is_followed_by_the_whole_answer() -> None:
    draft = "\n".join(f"line {n}" for n in range(40))
    written = drawn([Drafted(draft), Settled(Answer("t", "Short."))], size=(80, 24))
    assert "\x1b" not in written
    assert written.endswith("The answer, set right:\n\nShort.\n")


def test_a_command_is_shown_with_its_output_and_how_it_ended_and_not_twice() -> None:
    answer = Answer("t", "I will look.\n\nThere is one file.", commands=(LS,))
    written = drawn(
        [
            Drafted("I will look."),
            CommandStarted("ls"),
            CommandOutput("a.txt\n"),
            CommandEnded(LS),
            Drafted("I will look.\n\nThere is"),
            Settled(answer),
        ]
    )
    assert written == ("I will look.\n\n$ ls\na.txt\n[exit code 0 · 0.1 s]\n\nThere is one file.\n")


def test_a_command_that_was_not_seen_running_is_shown_at_the_end() -> None:
    written = drawn([Drafted("I will look."), Settled(Answer("t", "I will look.", commands=(LS,)))])
    assert seen(written) == "I will look.\n\n$ ls\na.txt\n[exit code 0 · 0.1 s]\n"


@pytest.mark.parametrize(
    "event",
    [
        Drafted("a\x1b]52;c;cm0=\x07\u202eb"),
        CommandStarted("a\x1b[2J\u202eb"),
        CommandOutput("a\x1b]0;t\x07\x9b2Jb\r"),
    ],
    ids=["draft", "command", "output"],
)
def test_nothing_that_the_terminal_would_obey_passes(event: Event) -> None:
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", drawn([event]))


def test_the_incident_of_a_failed_turn_is_named() -> None:
    written = drawn([Settled(Answer("t", "The model is away.", incident="ab12cd"))])
    assert written == "The model is away.\n\nIncident ab12cd: look for it in duet.log, in the data folder.\n"


@pytest.mark.parametrize(("text", "expected"), [("", 1), ("a" * 80, 1), ("a" * 81, 2), ("你" * 41, 2), ("a\n\nb", 3)])
def test_rows_are_counted_as_a_terminal_wraps(text: str, expected: int) -> None:
    assert rows(text, 80) == expected
