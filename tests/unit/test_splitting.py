"""Splitting: every piece is within the limit and stands by itself."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bot.markdown import Code, segments
from bot.splitting import LEAST_LIMIT, fenced, split, split_code, split_prose

markup = st.text(alphabet="`~*_[]()<>!#-+1. \n\tab|\\&:@é", max_size=200)
code_block = st.builds(
    lambda text, language: fenced(Code(text, language)),
    st.text(alphabet="ab `~\n xyz", max_size=300),
    st.sampled_from(["", "python", "averyveryverylonglanguagename"]),
)
document = st.lists(markup | code_block | st.text(max_size=80), max_size=5).map("\n\n".join)


def marks_closed(piece: str) -> bool:
    """Tell whether every fence of the piece is closed: text after it would be prose."""
    *_, last = segments(piece + "\n\nZZZ")
    return not isinstance(last, Code) and last.text.endswith("ZZZ")


def letters(text: str) -> str:
    """Give what must survive every cut: letters of prose and code, without markers, languages and white space."""
    words = "".join(
        segment.text
        if not hasattr(segment, "head")
        else "".join([*segment.head, *(c for r in segment.rows for c in r)])
        for segment in segments(text)
    )
    return re.sub(r"[^\w]", "", words)


@settings(max_examples=400, deadline=None)
@example("```\n" + "`" * 120 + "\n```", 40)
@example("````````\n" + "`" * 7 + "\n" + "~" * 7 + "\n````````", 40)
@example("word " * 30 + "``` x " * 10, 40)
@given(document, st.integers(LEAST_LIMIT, 300))
def test_pieces_are_within_the_limit_closed_and_complete(text: str, limit: int) -> None:
    pieces = split(text, limit)
    assert all(0 < len(piece) <= limit for piece in pieces)
    assert all(map(marks_closed, pieces))
    assert "".join(map(letters, pieces)) == letters(text)


@settings(max_examples=200)
@given(st.text(alphabet="ab\n `", max_size=300), st.integers(1, 50))
def test_code_is_cut_without_losing_a_character(code: str, limit: int) -> None:
    pieces = split_code(code, limit)
    assert all(len(piece) <= limit for piece in pieces)
    at = 0
    for number, piece in enumerate(pieces, 1):
        assert code.startswith(piece, at)
        at += len(piece)
        at += number < len(pieces) and code[at] == "\n"
    assert at == len(code)


def test_a_fence_that_fits_is_not_cut() -> None:
    text = "x" * 50 + "\n\n```py\n" + "y\n" * 20 + "```"
    assert split(text, 70) == ["x" * 50, "```py\n" + "y\n" * 19 + "y\n```"]


def test_a_long_fence_is_closed_and_opened_again_with_its_language() -> None:
    pieces = split("```py\n" + "\n".join(f"line {n}" for n in range(20)) + "\n```", 60)
    assert len(pieces) > 2
    assert all(piece.startswith("```py\n") and piece.endswith("\n```") for piece in pieces)


def test_a_cut_falls_between_paragraphs_then_lines_then_words() -> None:
    assert split_prose("one two three", 8) == ["one two", "three"]
    assert split_prose("aaaa aaaa\nbbbb", 12) == ["aaaa aaaa", "bbbb"]
    assert split("a" * 30 + "\n\n" + "b" * 30, 40) == ["a" * 30, "b" * 30]


def test_a_long_table_repeats_its_head() -> None:
    table = "| n | name |\n|---|---|\n" + "\n".join(f"| {n} | row number {n} |" for n in range(9))
    pieces = split(table, 80)
    assert len(pieces) > 1
    assert all(piece.startswith("| n | name |\n| --- | --- |\n") for piece in pieces)


def test_tables_become_code_where_a_platform_draws_none() -> None:
    assert split("| a |\n|---|\n| b |", 100, tables_as_code=True) == ["```\na\n─\nb\n```"]


def test_a_limit_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="at least"):
        split("x", LEAST_LIMIT - 1)
