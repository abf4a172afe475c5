"""What a reply says is cited only where a section given bears it out, word for word where it quotes."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from bot.citations import FALSE_QUOTATION_MARK, NOT_FOUND_NOTE, UNSUPPORTED_MARK, check, cite
from bot.ports import Findings, Hit
from bot.sections import parse_document
from bot.sentences import sentences

DOCUMENT = """# Branches

## Names

Every branch is named `<type>/<ticket>`. Keep the whole name to 60 characters
or fewer, because the preview address is cut off there.

## Types

| Type | Use it for |
|---|---|
| `feature/` | new behaviour that a customer will notice |
| `hotfix/` | a fault in production that cannot wait |

## Review

- Two people approve every pull request.
- A hotfix needs one approval, and a second look within 24 hours.

> Reviews are a conversation, not an exam.

## Empty
"""
SECTIONS = parse_document(DOCUMENT, "branches.md").sections[1:]
FINDINGS = Findings(tuple(Hit(section, 1.0) for section in SECTIONS))
NAMES, TYPES, REVIEW, EMPTY = 1, 2, 3, 4


def url(section):
    return f"https://example.org/{section.document}#{section.anchor}"


def checked(text, **more):
    return check(text, FINDINGS, url=url, **more)


def numbers(result):
    return [source.number for source in result.sources]


def test_a_supported_claim_keeps_its_marker_and_gets_a_source():
    result = checked("Every branch is named after its type and ticket [1].")
    [source] = result.sources
    assert result.text == "Every branch is named after its type and ticket [1]."
    assert (source.number, source.document, source.heading, source.line) == (1, "branches.md", "Names", 3)
    assert source.url == "https://example.org/branches.md#names"
    assert source.quote == "Every branch is named `<type>/<ticket>`."
    assert result.supported


def test_the_quote_of_a_source_stands_verbatim_in_its_section():
    result = checked("Keep a branch's name to 60 characters or fewer [1]. A hotfix is for a fault in production [2].")
    by_number = {source.number: source.quote for source in result.sources}
    assert by_number[NAMES].startswith("Keep the whole name to 60 characters\nor fewer")
    assert by_number[TYPES] == "| `hotfix/` | a fault in production that cannot wait |"
    for source in result.sources:
        assert source.quote in DOCUMENT


def test_a_marker_that_names_no_section_goes():
    result = checked("Two people approve every pull request [3][7]. [12]")
    assert result.text.rstrip() == "Two people approve every pull request [3]."
    assert numbers(result) == [REVIEW]


@pytest.mark.parametrize("marker", ["[3]", "[^3]", "[Source 3]", "【3】", "【3†source】", "[3, 9]", "[3-3]", "[ref 3]"])
def test_markers_are_known_in_the_ways_that_models_write_them(marker):
    result = checked(f"Two people approve every pull request {marker}.")
    assert result.text == "Two people approve every pull request [3]."


def test_a_marker_of_the_wrong_section_is_moved_to_the_right_one():
    assert checked("Two people approve every pull request [1].").text == "Two people approve every pull request [3]."


def test_a_claim_without_support_is_marked_and_cites_nothing():
    result = checked("Two people approve every pull request [3]. Employees must take 25 days of leave [1].")
    assert f"leave.{UNSUPPORTED_MARK}" in result.text
    assert numbers(result) == [REVIEW]


def test_a_number_that_the_section_does_not_give_takes_the_support_away():
    result = checked("Every branch is named after its type [1]. A hotfix needs a second look within 48 hours [3].")
    assert f"48 hours.{UNSUPPORTED_MARK}" in result.text
    assert numbers(result) == [NAMES]


def test_numbers_may_be_written_as_words_or_digits():
    assert numbers(checked("2 people must approve every pull request [3].")) == [REVIEW]


def test_an_answer_without_any_support_is_marked_rather_than_cited():
    result = checked("You get 25 days of vacation every year [1]. Ask the office manager for the form [2].")
    assert (result.sources, result.supported, result.notes) == ((), False, (NOT_FOUND_NOTE,))
    assert "[1]" not in result.text


def test_an_answer_that_cites_nothing_is_given_the_sources_that_bear_it_out():
    result = checked("Two people approve every pull request.")
    assert (result.text, numbers(result)) == ("Two people approve every pull request [3].", [REVIEW])


@pytest.mark.parametrize(
    "text",
    [
        "The sections do not say who pays for lunch [1].",
        "The Codex doesn't mention vacation.",
        "This is not covered by the standards. You could ask your lead.",
        "I could not find anything about that in the sections given.",
        "Nothing in these sections answers this.",
        "There is no information about parking in the documents.",
    ],
)
def test_a_model_that_says_it_is_not_there_is_believed(text):
    result = checked(text)
    assert result.declined
    assert not result.supported
    assert result.sources == ()
    assert "[" not in result.text


def test_a_partial_answer_is_no_refusal():
    result = checked("The sections do not mention lunch. But two people approve every pull request [3].")
    assert not result.declined
    assert numbers(result) == [REVIEW]


# Quotations


@pytest.mark.parametrize(
    "quotation",
    [
        '"Two people approve every pull request"',
        "“two people  approve every pull request.”",
        "«Two people approve every pull request»",
        '"Keep the whole name to 60 characters or fewer"',
        '"Every branch is named <type>/<ticket>"',
        '"…because the preview address is cut off there"',
    ],
)
def test_a_quotation_that_stands_in_the_source_is_kept(quotation):
    result = checked(f"It says {quotation} [2].")
    assert quotation in result.text
    assert result.quoted
    assert numbers(result) in ([NAMES], [REVIEW])


@pytest.mark.parametrize(
    "words",
    [
        "Every branch must be named after a pet",
        "Two people approve every branch",
        "Two people approve … within 24 hours",
        "Every branch is named <type>/<ticket>. Two people approve",
    ],
    ids=["invented", "altered", "stitched", "stitched over sections"],
)
def test_an_invented_or_stitched_quotation_loses_its_marks_and_is_marked(words):
    result = checked(f"Every branch is named after its type [1]. It says “{words}” [1].")
    assert f"{words}{FALSE_QUOTATION_MARK}" in result.text
    assert "“" not in result.text
    assert not result.quoted or numbers(result) == [NAMES]


def test_a_quotation_from_another_section_is_attributed_to_it():
    assert numbers(checked('It says "Two people approve every pull request" [1].')) == [REVIEW]


def test_short_quoted_words_are_left_alone():
    assert '"hotfix"' in checked('A "hotfix" is a fault in production that cannot wait [2].').text


def test_a_block_quotation_is_checked_like_any_other():
    assert "> Reviews are a conversation" in checked("> Reviews are a conversation, not an exam.\n\nSo be kind.").text
    result = checked("> Pets are welcome in every office.\n\nTwo people approve every pull request [3].")
    assert result.text.startswith("Pets are welcome in every office." + FALSE_QUOTATION_MARK)


def test_what_commands_printed_and_people_pasted_may_be_quoted_and_told():
    output = "error: the quick brown fox failed 12 times"
    result = checked('It printed "the quick brown fox failed" and must be fixed 12 times.', also=[output])
    assert '"the quick brown fox failed"' in result.text
    assert UNSUPPORTED_MARK not in result.text


# What is not prose


def test_code_is_left_as_it_is():
    code = '```python\nx = rows[1]  # "a very long quotation here"\n```'
    result = checked(f"Two people approve every pull request [3].\n\n{code}\n\nUse `rows[1]` then.")
    assert code in result.text
    assert "`rows[1]`" in result.text


def test_links_and_footnotes_are_no_markers():
    text = "Two people approve every pull request [3], see [1](https://example.org)."
    assert "[1](https://example.org)" in checked(text).text


def test_lists_and_tables_keep_their_shape():
    text = "- Two people approve every pull request [3]\n- `hotfix/` is for a fault in production [2]\n\n1. Done"
    assert checked(text).text == text
    table = "| Rule |\n|---|\n| Two people approve every pull request [3] |"
    assert checked(table).text == table


def test_talk_is_neither_marked_nor_cited():
    text = "Two people approve every pull request [3].\n\nWould you like me to open one? I can do 3 at once."
    assert checked(text).text == text


def test_without_sections_only_the_markers_go():
    result = check('Here you are [1]: "a long quotation of nothing".', Findings(), url=url)
    assert result.text == 'Here you are: "a long quotation of nothing".'
    assert (result.supported, result.notes) == (False, ())


def test_a_section_without_text_is_shown_by_its_heading():
    result = check('See "Branches > Empty" [4].', FINDINGS, url=url)
    assert [(s.number, s.quote) for s in result.sources] in ([(EMPTY, "Empty")], [])


def test_nothing_said_is_nothing_checked():
    for text in ("", "\n", "Hello!"):
        result = checked(text)
        assert (result.text, result.sources, result.notes) == (text.strip("\n"), (), ())


# Where the program cites


def test_the_program_cites_what_the_sections_bear_out():
    result = cite("Two people approve every pull request. The moon is made of cheese.", FINDINGS, url=url)
    assert "Two people approve every pull request [3]." in result.text
    assert numbers(result) == [REVIEW]


def test_markers_of_a_model_that_is_not_trusted_to_cite_are_replaced():
    assert cite("Two people approve every pull request [1].", FINDINGS, url=url).text.endswith("request [3].")


def test_a_sentence_that_repeats_a_section_counts_as_quoted():
    assert checked("A hotfix needs one approval and a second look within 24 hours [3].").quoted
    assert not checked("A fault in production is what a hotfix is meant for [2].").quoted


def test_a_long_section_supports_only_what_stands_together():
    words = [f"Rule {n} is about subject{n} and thing{n}." for n in range(500)]
    section = parse_document("# Long\n\n" + " ".join(words), "long.md").sections[0]
    findings = Findings((Hit(section, 1.0),))
    good = check("Subject7 and thing7 have a rule [1].", findings, url=url)
    stitched = check("The subject7 must match thing300 and subject450 [1].", findings, url=url)
    assert (good.supported, stitched.supported) == (True, False)


def test_sentences_are_verbatim_and_leave_out_marks_of_blocks():
    found = sentences(DOCUMENT)
    assert all(sentence in DOCUMENT for sentence in found)
    assert "Two people approve every pull request." in found
    assert "|---|---|" not in found
    assert "Reviews are a conversation, not an exam." in found


_PIECES = st.lists(
    st.sampled_from(
        [
            "Two people approve",
            " every pull request",
            ".",
            " [1]",
            "[3]",
            "[99]",
            "\n",
            "\n\n",
            '"',
            "“",
            "”",
            "`",
            "```",
            "> ",
            "- ",
            "a hotfix needs one approval",
            " 25 days",
            "|",
            "[1]: x",
            "[^2]",
            "【3】",
            "not in the sections",
            "?",
            " must ",
        ]
    ),
    max_size=30,
)


def read_as_text(markdown):
    """Give what a Markdown reader shows as text: no code, and nothing that looks like the definition of a link."""
    markdown = re.sub(r"^\[\d+\]:.*$", "", markdown, flags=re.MULTILINE)
    inlines = (token for token in MarkdownIt("commonmark").parse(markdown) if token.type == "inline")
    return "\n".join("".join(c.content for c in inline.children if c.type == "text") for inline in inlines)


@settings(deadline=None)
@given(_PIECES)
def test_whatever_a_model_writes_every_marker_has_a_source_and_every_quote_its_place(pieces):
    for result in (checked("".join(pieces)), cite("".join(pieces), FINDINGS, url=url)):
        assert {int(n) for n in re.findall(r"\[(\d+)\]", read_as_text(result.text))} <= set(numbers(result))
        assert all(source.quote in DOCUMENT for source in result.sources)
        assert bool(result.sources) <= result.supported


def test_a_marker_that_stood_alone_leaves_no_empty_paragraph():
    text = "# T\n\n## Cut\n\nCut it from the tag.\n\n```sh\ngit switch -c x\n```\n\nOne fix and nothing else.\n"
    section = parse_document(text, "t.md").sections[-1]
    reply = "```sh\ngit switch -c x\n\n\ngit push\n```\n\n[7]\n\nOne fix and nothing else [1]."
    result = check(reply, Findings((Hit(section, 1.0),)), url=url)
    assert "```\n\nOne fix" in result.text
    assert "x\n\n\ngit push" in result.text


def test_the_line_shown_is_the_one_that_the_answer_says_first():
    text = "# T\n\n## Names\n\nA branch has its ticket's name. A longer name is cut by the server of previews.\n"
    section = parse_document(text, "t.md").sections[-1]
    reply = "A branch has its ticket's name [1]. A longer name is cut by the server of previews [1]."
    (source,) = check(reply, Findings((Hit(section, 1.0),)), url=url).sources
    assert source.quote == "A branch has its ticket's name."


def test_a_marker_behind_code_in_three_marks_on_one_line_is_a_marker():
    """Such a line opens no fence: https://spec.commonmark.org/0.31.2/#info-string"""
    assert "[9]" not in checked("```x``` Every branch is named so [9].").text


@pytest.mark.parametrize("text", ["\\`a branch [9]\\` is named", "\\`a branch [09]\\` is named"])
def test_what_only_looks_like_code_hides_no_marker(text):
    """A backslash before a backtick: https://spec.commonmark.org/0.31.2/#backslash-escapes"""
    for reply in (text, f"Two people approve every pull request [3]. {text}"):
        assert "9]" not in read_as_text(checked(reply).text)
    assert "`a[9]`" in checked("Two people approve every pull request [3], as in `a[9]`.").text


# What a model may try, by mistake or not


@pytest.mark.parametrize(
    "marker",
    [
        "［3］",
        "[３]",
        "[ 3 ]",
        r"\[3\]",
        "[#3]",
        "[1 and 3]",
        "([3])",
        "(source 3)",
        "<sup>[3]</sup>",
        "[[3]](https://x.y)",
    ],
)
def test_a_marker_in_an_odd_hand_is_a_marker_and_leaves_nothing_behind(marker):
    assert (
        checked(f"Two people approve every pull request {marker}.").text == "Two people approve every pull request [3]."
    )


@pytest.mark.parametrize(
    "tail",
    [
        "[3]: https://evil.example",
        '[3]: <https://evil.example> "Reviews"',
        "[^3]: made-up.md › Nothing",
        "Sources:\n[1] oncall.md > Rota\n[3] made-up.md > Nothing",
        "**References**\n\n- [3] made-up.md › Nothing\n- [9] other.md",
    ],
)
def test_where_a_marker_leads_the_program_says_and_never_the_model(tail):
    assert checked(f"Two people approve every pull request [3].\n\n{tail}").text == (
        "Two people approve every pull request [3]."
    )


def test_a_sentence_that_rests_on_two_sections_keeps_both_markers():
    text = "Every pull request is approved by two people [3], and a branch name has 60 characters or fewer [1]."
    assert checked(text).text == text
    text = "A hotfix needs a second look within 24 hours [3], and a branch name has up to 90 characters [1]."
    assert numbers(checked(text)) == [REVIEW]


@pytest.mark.parametrize(
    "claim",
    [
        "A hotfix needs a second look within 24 minutes",  # the number stands there, of something else
        "A hotfix needs a second look within a week",
        "A hotfix needs one approval and a second look, see https://evil.example/approve",
        "Two people never approve every pull request",
    ],
)
def test_another_unit_an_address_or_a_not_of_the_models_own_takes_the_support_away(claim):
    result = checked(f"{claim} [3].")
    assert (result.sources, result.supported) == ((), False)


@pytest.mark.parametrize(
    "claim",
    [
        "A hotfix needs a second look within a day",
        "A hotfix needs a second look within one day",
        "A hotfix needs 1 approval, and a second look within 24 hours",
        "Every pull request is approved by two people",
    ],
)
def test_the_same_amount_in_another_unit_is_supported(claim):
    assert numbers(checked(f"{claim} [3].")) == [REVIEW]


def test_a_rule_that_forbids_is_no_source_for_doing_it():
    text = "# T\n\n## Own\n\nYou cannot approve your own pull request. Every pull request needs two approvals.\n"
    findings = Findings((Hit(parse_document(text, "t.md").sections[-1], 1.0),))
    assert not check("You can approve your own pull request [1].", findings, url=url).supported
    for right in ("You may not approve your own pull request [1].", "Every pull request needs two approvals [1]."):
        assert check(right, findings, url=url).text == right


def test_single_quotes_and_corner_brackets_quote_as_others_do():
    assert "‘Two people approve every pull request’" in checked("‘Two people approve every pull request’ [3].").text
    for quotation in (
        "'Pets are welcome in every office'",
        "‘Pets are welcome in every office’",
        "「宠物可以随便进入每个办公室里面」",
    ):
        assert FALSE_QUOTATION_MARK in checked(f"It says {quotation} [3].").text
    assert FALSE_QUOTATION_MARK not in checked("The reviewers' branch and the authors' names don't matter.").text


CHINESE = "# 规范\n\n## 分支\n\n每个分支必须以工单编号开头。合并前需要两个人在二十四小时内批准。\n"


@pytest.mark.parametrize(
    ("claim", "is_right"),
    [
        ("分支要以工单编号开头", True),
        ("合并前需要 2 个人批准", True),
        ("合并前需要两个人在24小时内批准", True),
        ("合并前需要三个人批准", False),
        ("合并前需要两个人在二十四天内批准", False),
        ("部署必须在星期五之前完成，需要经理签字", False),
    ],
)
def test_chinese_is_checked_by_its_words_and_numbers(claim, is_right):
    findings = Findings((Hit(parse_document(CHINESE, "zh.md").sections[-1], 1.0),))
    result = check(f"{claim} [1]。", findings, url=url)
    assert (result.supported, [source.number for source in result.sources]) == (is_right, [1] if is_right else [])


def test_a_marker_between_two_pieces_of_code_does_not_join_them():
    assert "[1]" not in read_as_text(checked("` [1]` [1]`").text)


def test_a_rule_that_speaks_of_what_is_not_there_is_no_refusal():
    rule = "If it is not clear that we have a person's consent, then we must find and delete any data we have."
    section = parse_document(f"# Data\n\n## Consent\n\n{rule}\n", "d.md").sections[-1]
    findings = Findings((Hit(section, 1.0),))
    result = check(rule.replace("have.", "have [1]."), findings, url=url)
    assert (result.supported, result.declined, numbers(result)) == (True, False, [1])
    assert check("The sections do not say how long data is kept.", findings, url=url).declined
