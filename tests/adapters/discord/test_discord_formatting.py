"""Markdown as Discord shows it: every piece fits, every fence is closed, nothing fires, nothing is slow."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.discord.formatting import Fence, blocks, coloured, fence, link, pieces, prose, visible
from adapters.discord.outbound import render
from bot.conversation import Answer, CommandResult, Ended, Outcome, Source, Ticket, TicketState, TurnKind

FENCE = "```"
ZERO_WIDTH = "\u200b"


def shown(markdown: str, limit: int = 2000) -> list[str]:
    return pieces(blocks(markdown), limit=limit)


def is_balanced(text: str) -> bool:
    return text.count(FENCE) % 2 == 0


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("#### Deep", "**Deep**"),
        ("###### **Deeper** #", "**Deeper**"),
        ("### Kept", "### Kept"),
        ("Title\n=====", "# Title"),
        ("- [ ] one\n- [x] two", "- ☐ one\n- ☑ two"),
        ("+ one", "- one"),
        ("see https://a.example/x.", "see <https://a.example/x>."),
        ("[doc](https://a.example/x)", "[doc](<https://a.example/x>)"),
        ("<https://a.example>", "<https://a.example>"),
        ("a ||b|| c", "a \\|\\|b\\|\\| c"),
        ("`a || https://x.example`", "`a || https://x.example`"),
        ("__bold__ but a__b__c", "**bold** but a__b__c"),
        (">>> quoted", "> quoted"),
        ("one\n\n***\n\ntwo", "one\n\n———\n\ntwo"),
        ("![alt](https://a.example/i.png)", "[alt](<https://a.example/i.png>)"),
        ("a<br>b", "a\nb"),
        ("use ``` to fence", f"use `{ZERO_WIDTH}`{ZERO_WIDTH}` to fence"),
        ("(see https://a.example/x_y)", "(see <https://a.example/x_y>)"),
        ("(https://a.example/x)", "(<https://a.example/x>)"),
        ('[t](https://a.example "title")', '[t](<https://a.example> "title")'),
        ("[https://a.example/x](https://a.example/x)", "<https://a.example/x>"),
        ("![i](https://a.example/i) https://b.example/x_y", "[i](<https://a.example/i>) <https://b.example/x_y>"),
        ("<https://a.example x", "<https://a.example> x"),
        ("a &amp; b&nbsp;c &lt;d&gt;", "a & b c \\<d\\>"),
        ("hi @everyone", f"hi @{ZERO_WIDTH}everyone"),
    ],
)
def test_prose_becomes_what_discord_shows(markdown, expected):
    assert shown(markdown) == [expected]


def test_a_table_becomes_an_aligned_block_and_never_raw_pipes():
    [text] = shown("| name | n |\n|---|---|\n| a | 1 |\n| longer | 22 |")
    assert text == f"{FENCE}\nname    n\n──────  ──\na       1\nlonger  22\n{FENCE}"


@pytest.mark.parametrize("mark", ["~~~", "````", "`````"])
def test_other_fences_become_discords_and_keep_their_language(mark):
    assert shown(f"{mark}py\nprint(1)\n{mark}") == [f"{FENCE}py\nprint(1)\n{FENCE}"]


def test_a_fence_inside_a_fence_is_broken_up():
    [text] = shown("````\n```\ninner\n```\n````")
    assert text.count(FENCE) == 2
    assert "inner" in text


@pytest.mark.parametrize(
    "markdown",
    [
        f"{FENCE}py\n" + "print(1)\n" * 300 + FENCE,
        f"{FENCE}\n" + "x" * 1998 + f"\n{FENCE}",
        f"{FENCE}{'i' * 300}\ncode\n{FENCE}",
        f"{FENCE}\nnever closed " + "y" * 5000,
        "word " * 3000,
        "x" * 9000,
        "\n".join(f"line {n}" for n in range(1500)),
        f"text\n{FENCE}a\n1\n{FENCE}\nmore\n{FENCE}b\n" + "2\n" * 2000 + FENCE,
        "`" * 2001,
        "😀" * 2500,
        f"- item\n  {FENCE}\n  code\n  {FENCE}\n- next",
        "> quote\n" * 900,
        "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 900,
        "",
    ],
    ids=range(14),
)
def test_every_piece_fits_is_not_blank_and_has_its_fences_closed(markdown):
    for piece in shown(markdown):
        assert 0 < len(piece) <= 2000
        assert piece.strip()
        assert is_balanced(piece)


def test_a_block_over_several_pieces_keeps_its_language_in_each():
    parts = shown(f"{FENCE}py\n" + "print(1)\n" * 600 + FENCE)
    assert len(parts) > 1
    assert all(part.startswith(f"{FENCE}py\n") for part in parts)


def test_a_block_that_must_be_cut_fills_the_message_before_it():
    first, *_ = shown(f"Intro.\n{FENCE}\n" + "x = 1\n" * 900 + FENCE)
    assert first.startswith("Intro.")
    assert len(first) > 1900


SIGNS = [*"ab `~*_|>#-[]()<@!&:.\n\t1/", "```", "\n\n", "~~~", "<@&1>", "@everyone", "http://x.y"]
markdown_like = st.lists(st.sampled_from(SIGNS), max_size=300).map("".join)


@given(markdown_like, st.sampled_from([120, 500, 2000]))
@settings(max_examples=300, deadline=None)
def test_no_text_whatever_makes_a_piece_too_long_or_leaves_a_fence_open(text, limit):
    for piece in shown(text, limit):
        assert len(piece) <= limit
        assert is_balanced(piece)
        assert piece.strip()


PARTS = ["https://e.example/a_b", *"()<>[]_ \\\n|*!x", "![i](https://e.example/q)", "[l](https://e.example/(x))"]


@given(st.lists(st.sampled_from(PARTS), max_size=30).map("".join))
@settings(max_examples=300, deadline=None)
def test_no_address_whatever_stands_bare_so_that_discord_would_fetch_it(text):
    for piece in shown(text):
        assert "://" not in re.sub(r"<https://[^\s<>]*>", "", piece)


@given(st.text(max_size=3000))
@settings(max_examples=100, deadline=None)
def test_code_is_lost_in_no_cut(code):
    code = re.sub(r"[^\x20-\x7e\n]", "x", code).replace("`", "'")
    texts = pieces([Fence(code)] if code.strip() else [], limit=300)
    inside = "".join(text.removeprefix(f"{FENCE}\n").removesuffix(f"\n{FENCE}") for text in texts)
    assert re.sub(r"\s", "", inside) == re.sub(r"\s", "", code)


@given(st.text(max_size=500), st.sampled_from(list(Outcome)), st.sampled_from([TurnKind.ASK, TurnKind.RUN]))
@settings(max_examples=200, deadline=None)
def test_no_answer_whatever_breaks_a_limit_or_pings(text, outcome, kind):
    results = (CommandResult(text, Ended.EXIT, 1, stdout=text, stderr=text, duration_ms=1),) if text else ()
    source = Source(1, "d#s", text, text, 1, "https://x.example/" + "a" * 30, text)
    ticket = Ticket("t" * 32, text or "ls", TicketState.WAITING)
    answer = Answer("1" * 19, text, outcome, kind, sources=(source,), commands=results, ticket=ticket, notes=(text,))
    bodies = render(answer)
    assert len(bodies) == 1 if outcome is Outcome.DRAFT else 1 <= len(bodies) <= 3
    for body in bodies:
        said = body.content["content"]
        assert 0 < len(said) <= 2000
        assert is_balanced(said)
        assert "allowed_mentions" not in body.content
        buttons = [button for row in body.content["components"] for button in row["components"]]
        assert len(buttons) <= 5
        assert all(len(button["custom_id"]) <= 100 and len(button["label"]) <= 80 for button in buttons)


@pytest.mark.parametrize(
    "text",
    [
        "`a ``b ```c " * 5000,
        "[a](b " * 8000,
        "[[" * 30000,
        "__a " * 15000,
        "||" * 30000,
        "https://x.y/" * 5000,
        "- [ ] " * 10000,
        "lorem ipsum " * 5000,
        "[a](<https://x.y((" * 4000,
        "<br" * 20000,
    ],
    ids=range(10),
)
def test_sixty_thousand_hostile_characters_are_shown_without_holding_the_loop_up(text):
    started = time.perf_counter()
    prose(text)
    plain = time.perf_counter() - started
    started = time.perf_counter()
    for n in range(0, 60_000, 60):
        re.sub(r"[a-z]+", "", text[n : n + 60])
    floor = time.perf_counter() - started
    assert plain < 200 * floor


def test_only_the_colours_that_discord_shows_are_kept():
    block = coloured("\x1b[31mred\x1b[0m \x1b[38;5;9mx\x1b[0m \x1b]8;;http://evil\x07link\x1b[2J\x1b[1;32mok\x1b[m")
    assert str(block) == f"{FENCE}ansi\n\x1b[31mred\x1b[0m x\x1b[0m link\x1b[1;32mok\x1b[m\n{FENCE}"
    assert str(coloured("plain \x1b[2J\x1b]0;title\x07text")) == f"{FENCE}\nplain text\n{FENCE}"


def test_what_cannot_be_seen_in_a_command_is_written_out():
    assert visible("rm \u202e/tmp\u200b\r") == "rm \\u202e/tmp\\u200b\\u000d"
    [body] = render(Answer("1", "", ticket=Ticket("t1", "echo a\u202eb", TicketState.WAITING)))
    assert "\\u202e" in body.content["content"]


def test_a_command_with_a_fence_is_shown_whole_in_a_file_too():
    [body] = render(Answer("1", "", ticket=Ticket("t1", "echo '```'", TicketState.WAITING)))
    assert [(file.name, file.data) for file in body.files] == [("command.sh", b"echo '```'")]


def test_a_source_is_a_link_without_a_preview_with_its_verbatim_line():
    source = Source(1, "a#b", "branch-naming.md", "Rules > Names", 12, "https://x.example/a#b", "Use `type/short`.")
    [body] = render(Answer("1", "Text [1].", sources=(source,)))
    text = body.content["content"]
    assert "(<https://x.example/a#b>), line 12" in text
    assert "> Use \\`type/short\\`." in text
    assert link("a", "https://x.example/ bad") == "a"


def test_a_long_answers_file_holds_everything():
    source = Source(1, "a#b", "d.md", "H", 3, "https://x.example", "the line")
    result = CommandResult("ls", Ended.EXIT, 0, stdout="out", duration_ms=5)
    [body] = render(Answer("1", "word " * 3000, sources=(source,), commands=(result,), notes=("a note",)))
    data = body.files[-1].data.decode()
    assert data.startswith("word word")
    for part in ("$ ls", "out", "the line", "a note"):
        assert part in data
    assert "the line" in body.content["content"]


def test_an_empty_fence_is_still_a_block():
    assert str(fence("")) == f"{FENCE}\n \n{FENCE}"


def test_a_quote_that_its_paragraph_wrapped_stands_on_one_line() -> None:
    source = Source(1, "a#b", "d.md", "H", 3, "", "the rule begins here\nand ends here")
    text = str(render(Answer("t", "As said [1].", sources=(source,)))[0].content)
    assert "the rule begins here and ends here" in text


def test_the_colours_of_an_output_are_shown_where_discord_shows_them() -> None:
    result = CommandResult("ls", Ended.EXIT, 0, stdout="ok", painted="\x1b[32mok\x1b[0m")
    text = str(render(Answer("t", "", kind=TurnKind.RUN, commands=(result,)))[0].content["content"])
    assert "```ansi\n\x1b[32mok\x1b[0m" in text
