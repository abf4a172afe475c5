"""Markdown as people really write it is cut into the sections that a reader sees, with GitHub's anchors."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.sections import parse_document


def headings(text, name="x.md"):
    return [s.headings[-1] if s.headings else s.title for s in parse_document(text, name).sections if s.level]


def anchors(text, name="x.md"):
    return [s.anchor for s in parse_document(text, name).sections]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# A\n```bash\n# not a heading\n## nor this\n```\n## B\nx", ["A", "B"]),
        ("# A\n~~~py\n# no\n~~~\n## B", ["A", "B"]),
        ("# A\n```\n~~~\n# no\n```\n## B", ["A", "B"]),
        ("# A\n````md\n```\n# no\n```\n````\n## B", ["A", "B"]),
        ("# A\n```\n```python\n# no\n```\n## B", ["A", "B"]),
        ("# A\n```\n## no\ntext", ["A"]),
        ("# A\n\n    # no\n\n## B", ["A", "B"]),
        ("- item\n  ```\n  # no\n  ```\n\n## B", ["B"]),
        ("> ```\n> # no\n> ```\n\n## B", ["B"]),
    ],
    ids=[
        "a fence",
        "a tilde fence",
        "tildes do not close backticks",
        "four backticks hold three",
        "an info string does not close",
        "an unclosed fence runs to the end",
        "indented code",
        "a fence in a list",
        "a fence in a quotation",
    ],
)
def test_a_hash_in_code_is_no_heading(text, expected):
    assert headings(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Title\n=====\ntext\n\nSub\n---\nmore", ["Title", "Sub"]),
        ("# A\ntext\n\n---\n\nmore", ["A"]),
        ("# A\n\n|a|b|\n|-|-|\n|1|2|", ["A"]),
        ("# A\n\na | b\n--- | ---\n1 | 2\n", ["A"]),
        ("\ufeff# A\nx", ["A"]),
        ("# A\r\n\r\n```\r\n# no\r\n```\r\n## B\r\n", ["A", "B"]),
        ("# A\rtext\r## B\r", ["A", "B"]),
        ("## A ##\nx", ["A"]),
        ("## C#\nx\n## F#", ["C#", "F#"]),
        ("# A\n#tag line\n#5 fixed", ["A"]),
        ("## [Use `main`](x) **now**", ["Use main now"]),
        ("# A\n<!--\n## no\n-->\n## B", ["A", "B"]),
        ("## A {#custom}", ["A"]),
        ("## A {: .note }", ["A"]),
        ("# A\n####### no", ["A"]),
        ("   ## A\n", ["A"]),
        ("# A\n\n<h2 align='center'>From <b>HTML</b></h2>\n\ntext", ["A", "From HTML"]),
        ("## a/b: c?\nx", ["a/b: c?"]),
        ("## ![logo](l.png) Name\nx", ["logo Name"]),
    ],
)
def test_headings_are_found_however_they_are_written(text, expected):
    assert headings(text) == expected


def test_front_matter_is_no_heading_and_names_the_document():
    parsed = parse_document("---\ntitle: The rules\nowner: x\n---\n# Rules\nb\n## Part\nc", "rules.md")
    assert parsed.document.title == "The rules"
    assert [s.heading for s in parsed.sections] == ["Rules", "Rules > Part"]
    assert [s.line for s in parsed.sections] == [5, 7]


def test_toml_front_matter_is_read_too():
    parsed = parse_document('+++\ntitle = "Hugo"\naliases = ["other words"]\n+++\ntext', "x.md")
    assert (parsed.document.title, parsed.aliases) == ("Hugo", ("other words",))


def test_broken_front_matter_is_named_and_the_text_is_kept():
    parsed = parse_document("---\ntitle: [unclosed\n---\n# A\ntext", "x.md")
    assert parsed.document.title == "A"
    assert "x.md: its front matter cannot be read" in parsed.document.faults[0]
    assert parsed.sections[0].text == "text"


def test_a_document_whose_channels_cannot_be_read_is_for_nobody():
    assert parse_document("---\nchannels: [unclosed\n---\ntext", "x.md").channels == ()
    assert parse_document("---\nchannels: 5\n---\ntext", "x.md").channels == ()
    assert parse_document("---\nchannels: C1, C2\n---\ntext", "x.md").channels == ("C1", "C2")
    assert parse_document("---\ntitle: [unclosed\n---\ntext", "x.md").channels is None


def test_two_rules_around_prose_are_no_front_matter():
    parsed = parse_document("---\nJust a sentence\n---\n\ntext", "x.md")
    assert [(s.text, s.heading) for s in parsed.sections] == [("---", "x"), ("text", "Just a sentence")]


def test_duplicate_headings_are_numbered_as_github_does():
    assert anchors("# E\n## Errors\n## Errors\n## Errors-1\n") == ["e", "errors", "errors-1", "errors-1-1"]


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("What’s *new*? (v2.0)", "whats-new-v20"),
        ("Naming & style", "naming--style"),
        ("Größe über alles", "größe-über-alles"),
        ("日本語 見出し", "日本語-見出し"),
        ("x² and ½ of ①, Ⅳ", "x-and--of--ⅳ"),
        ("snake_case names", "snake_case-names"),
        ("🚀 Launch", "-launch"),
        ("`code` and [link](x)", "code-and-link"),
        ("A {#custom}", "a-custom"),
        ("C# / F#", "c--f"),
        ("1. First", "1-first"),
        ("Ünïcödé", "ünïcödé"),
        ("a <b>bold</b> word", "a-bold-word"),
        ("![logo](l.png) Name", "name"),
        ("trailing ##", "trailing"),
        ("AT&amp;T", "att"),
    ],
)
def test_anchors_are_those_that_github_makes(heading, anchor):
    assert anchors(f"## {heading}\n") == [anchor]


def test_headings_in_quotations_and_lists_count_for_anchors_but_cut_nothing():
    parsed = parse_document("# T\n\n> ## Note\n> text\n\n## Note\nbody\n", "x.md")
    assert [s.anchor for s in parsed.sections] == ["t", "note-1"]
    assert "> ## Note" in parsed.sections[0].text


def test_the_path_holds_no_stale_parent():
    parsed = parse_document("# T\n## A\n### A1\n## B\n#### B1\n### B2\n", "x.md")
    assert [s.heading for s in parsed.sections] == ["T", "A", "A > A1", "B", "B > B1", "B > B2"]


def test_a_deep_heading_before_a_shallow_one_has_no_parent_of_its_own():
    assert [s.heading for s in parse_document("### Deep\nx\n## Next\ny\n", "x.md").sections] == ["Deep", "Next"]


def test_a_second_h1_is_a_heading_below_the_title():
    parsed = parse_document("# One\na\n## Sub\nb\n# Two\nc\n## Sub\nd\n", "x.md")
    assert [s.heading for s in parsed.sections] == ["One", "Sub", "Two", "Two > Sub"]
    assert [s.anchor for s in parsed.sections] == ["one", "sub", "two", "sub-1"]


def test_text_before_the_first_heading_is_a_section_of_its_own():
    first, second = parse_document("intro\n\n## A\nx\n", "docs/some-page.md").sections
    assert (first.text, first.headings, first.anchor, first.line, first.level) == ("intro", (), "", 1, 0)
    assert first.title == second.title == "some page"


def test_lines_count_from_one_and_span_the_section():
    sections = parse_document("# A\n\ntext\nmore\n\n\n## B\n", "x.md").sections
    assert [(s.line, s.end_line) for s in sections] == [(1, 4), (7, 7)]


def test_a_setext_heading_is_two_lines_and_no_part_of_the_text():
    [section] = parse_document("Title\n=====\n\nbody\n", "x.md").sections
    assert (section.line, section.text) == (1, "body")


def test_empty_headings_and_empty_files_do_no_harm():
    assert [s.heading for s in parse_document("##\nx\n", "some.md").sections] == ["some"]
    assert parse_document("", "empty.md").sections == ()
    assert parse_document("\n\n \n", "empty.md").document.title == "empty"


def test_mdx_components_and_comments_hide_no_heading_and_show_none():
    note = "import X from 'x'\n\n<Note>\n## Inside\ntext\n</Note>\n\n"
    text = note + "{/*\n## no\n*/}\n\n```jsx\n{/* ## code */}\n```\n## B\n"
    assert headings(text, "x.mdx") == ["Inside", "B"]


def test_a_heading_that_is_a_template_expression_leaves_the_title():
    text = "---\ntitle: Pair programming\n---\n# <%= current_page.data.title %>\n\nx\n\n## Why\ny\n"
    assert [s.heading for s in parse_document(text, "x.md").sections] == ["Pair programming", "Why"]


def test_readme_and_index_are_named_after_their_folder():
    assert parse_document("text", "guides/on-call/README.md").document.title == "on call"
    assert parse_document("text", "index.md").document.title == "index"


def test_ids_are_unique_within_a_document():
    parsed = parse_document("pre\n\n##\na\n##\nb\n# T\nc\n## X\n## X\n", "x.md")
    ids = [s.id for s in parsed.sections]
    assert len(set(ids)) == len(ids) == 6


def test_a_very_long_section_stays_one_section():
    body = " ".join(f"word{n}" for n in range(14_000))
    [section] = parse_document(f"# Long\n{body}\n", "x.md").sections
    assert section.text == body


_LINES = st.lists(
    st.one_of(
        st.sampled_from(
            ["# A", "## B", "### C ###", "```", "~~~", "---", "===", "", "    code", "> q", "- i", "<div>", "|a|b|"]
        ),
        st.text(max_size=30).filter(lambda line: "\n" not in line and "\r" not in line),
    ),
    max_size=40,
)


@settings(deadline=None)
@given(_LINES)
def test_whatever_is_written_every_line_of_text_stands_where_it_is_said_to_stand(lines):
    parsed = parse_document("\n".join(lines), "x.md")
    source = [line.replace("\0", "\ufffd") for line in "\n".join(lines).removeprefix("\ufeff").split("\n")]
    assert len({s.id for s in parsed.sections}) == len(parsed.sections) == parsed.document.sections
    for section in parsed.sections:
        assert 1 <= section.line <= section.end_line <= len(source)
        assert section.text in "\n".join(source[section.line - 1 : section.end_line])
