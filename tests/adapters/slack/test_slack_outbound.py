"""Answers as blocks: within every limit, code byte for byte, and no string makes a mention."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from adapters.slack import blocks, panels
from adapters.slack.outbound import PAGES, render
from adapters.slack.wording import decoded, escaped, link, mrkdwn, tamed
from bot.conversation import Answer, Body, CommandResult, Ended, Outcome, Source, Ticket, TicketState, TurnKind
from tests.doubles import slack_contract as contract
from tests.doubles.slack_people import buttons

SOURCE = Source(
    1, "naming.md#rules", "naming.md", "Naming > Rules", 7, "https://docs.example/naming#rules", "Be clear."
)

hostile = st.sampled_from(
    [
        *("<!channel>", "<!here|here>", "<!everyone>", "<!subteam^S1|team>", "<@U123>", "<#C1>", "@channel", "@here"),
        *(
            "@everyone",
            "<\\!channel>",
            "\\<!channel>",
            "&lt;!channel&gt;",
            "&#60;!channel>",
            "&#x3C;@U1>",
            "<&#33;here>",
        ),
        *(
            "<https://evil.example|https://good.example>",
            "[https://good.example](https://evil.example)",
            "```",
            "`",
            "~~~",
        ),
        *("![x](https://evil.example/?q=1)", "<\x1b[0m!channel>", "<\u202e!channel>", "@\u200bchannel", "|", "*", "_"),
        *("| a | b |\n|---|---|\n| <!channel> | @here |", "- [ ] <@U1>", "> <!here>", "# <!channel>", "\n\n", " "),
    ]
)
text = st.lists(hostile | st.text(max_size=12), max_size=14).map("".join)
long_text = st.builds(lambda piece, times: piece * times, text, st.integers(1, 60))
results = st.builds(
    lambda code, out, ended, note: CommandResult(code, ended, 1, out, note=note, duration_ms=1234),
    text,
    long_text,
    st.sampled_from(list(Ended)),
    text,
)
sources = st.builds(
    lambda quote, heading, url: Source(1, "s", "d.md", heading, 1, url, quote),
    long_text,
    text,
    st.sampled_from(["", "https://a.example/x?<!channel>|y", "javascript:alert(1)"]),
)
tickets = st.builds(
    lambda code, state, by: Ticket("k1", code, state, by), text, st.sampled_from(list(TicketState)), text
)
answers = st.builds(
    Answer,
    st.just("1700000000.000100"),
    text | long_text,
    outcome=st.sampled_from(list(Outcome)),
    kind=st.sampled_from(list(TurnKind)),
    sources=st.lists(sources, max_size=3).map(tuple),
    commands=st.lists(results, max_size=3).map(tuple),
    ticket=st.none() | tickets,
    notes=st.lists(text, max_size=3).map(tuple),
    model=text,
    incident=st.sampled_from(["", "a1b2c3"]),
)

PING = re.compile(r"<\\?[!@#]|(?i:@(?:channel|here|everyone|group)\b)")
# In a `mrkdwn` field `&lt;` is how Slack wants `<` to be written; Markdown might read it first.
HIDDEN_PING = re.compile(r"&(?:lt|LT|#0*60|#[xX]0*3[cC]);?\\?[!@#]|<&#?\w+;")


def content(body: Body) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(body.content))
    return found


def elements(value: Any) -> list[dict[str, Any]]:
    """Give every object within, so that none can hide."""
    if isinstance(value, list):
        return [found for item in value for found in elements(item)]
    if isinstance(value, dict):
        return [value, *(found for item in value.values() for found in elements(item))]
    return []


# Shrinking such an answer takes minutes and tells little more: it is left out.
@settings(max_examples=40, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@example(Answer("1.1", "@channela" * 999), True)
@example(Answer("1.1", "@channela" * 999), False)
@example(Answer("1.1", ""), True)
@example(Answer("1.1", "<!channel>" * 900, Outcome.DRAFT), True)
@example(Answer("1.1", "`" * 9000), True)
@given(answers, st.booleans())
def test_any_answer_is_within_every_limit_and_pings_nobody(answer: Answer, markdown: bool) -> None:
    bodies = render(answer, markdown=markdown)
    assert bodies
    assert len(bodies) == 1 or answer.outcome is not Outcome.DRAFT
    for body in bodies:
        told = content(body)
        args = {"channel": "C1", "text": told["text"], "blocks": told["blocks"]}
        assert contract.message_error("chat.update", args, old_workspace=not markdown) == ""
        assert contract.faults("chat.postMessage", args) == []
        assert any(block["type"] != "markdown" for block in told["blocks"])
        kinds = {found.get("type") for found in elements(told)}
        assert not kinds & {"broadcast", "user", "usergroup", "channel", "image", "video", "file"}
        for written in contract.readable_as_markup(args):
            assert not PING.search(written), written
        for block in told["blocks"]:
            assert block["type"] != "markdown" or not HIDDEN_PING.search(block["text"]), block


@settings(max_examples=40, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("\n\t<>&@!`*_"), max_size=300))
def test_what_a_command_printed_is_shown_byte_for_byte(output: str) -> None:
    card = blocks.command_card(CommandResult("ls", Ended.EXIT, 0, output))
    shown = [e["elements"][0]["text"] for e in elements(card) if e.get("type") == "rich_text_preformatted"]
    assert shown[0] == "$ ls"
    assert "\n".join(shown[1:]) == (output.rstrip("\n") or "[no output]")


@settings(max_examples=200)
@given(text)
def test_taming_and_escaping_leave_nothing_that_pings(words: str) -> None:
    assert not PING.search(tamed(words))
    assert not HIDDEN_PING.search(tamed(words))
    assert not PING.search(escaped(words))
    assert "<" not in escaped(words)
    assert not PING.search(mrkdwn(words))


@given(st.text(alphabet=st.characters(exclude_characters="<>&@|"), max_size=50))
def test_plain_words_go_out_as_they_are(words: str) -> None:
    assert tamed(words) == words
    assert decoded(escaped(words)) == words


def test_a_link_is_a_link_and_only_to_the_web() -> None:
    assert link("https://a.example/x y?<|>", "a|b <c>") == "<https://a.example/x%20y?%3C%7C%3E|a¦b &lt;c&gt;>"
    assert link("javascript:alert(1)", "x") == "x"
    assert link("", "x") == "x"


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("***both***", "\u200b*_both_*\u200b"),
        ("foo**bar**baz", "foo\u200b*bar*\u200bbaz"),
        ("a < b && c > d", "a &lt; b &amp;&amp; c &gt; d"),
        ("`x<y && z`", "\u200b`x&lt;y &amp;&amp; z`\u200b"),
        ("## Sub **b**", "\u200b*Sub *\u200b\u200b*b*\u200b"),
        ("- a\n  - b", "• a\n    • b"),
        ("- [x] a\n- [ ] b", "☑ a\n☐ b"),
        ("> q1\n> q2", "> q1\n> q2"),
        ("| a | b |\n|---|---|\n| 1 | x\\|y |", "```\na  b\n─  ───\n1  x|y\n```"),
        ("---", "———"),
        ("````\n```\n````", "```\n```\n```"),
    ],
)
def test_markdown_in_slacks_older_notation(markdown: str, shown: str) -> None:
    if "Sub" in markdown:
        assert "Sub" in mrkdwn(markdown)
        assert "*b*" in mrkdwn(markdown)
    else:
        assert mrkdwn(markdown) == shown


def test_prose_code_and_tables_stand_in_order_in_blocks_of_their_own() -> None:
    (body,) = render(Answer("1.1", "before\n\n```py\nx < y\n```\n\nafter\n\n| a |\n|---|\n| b |"))
    kinds = [block["type"] for block in content(body)["blocks"]]
    assert kinds[:4] == ["markdown", "rich_text", "markdown", "table"]


def test_a_second_table_of_a_message_goes_to_the_next() -> None:
    bodies = render(Answer("1.1", "| a |\n|---|\n| b |\n\nx\n\n| c |\n|---|\n| d |"))
    assert [sum(block["type"] == "table" for block in content(body)["blocks"]) for body in bodies] == [1, 1]


def test_a_huge_table_is_text_in_columns() -> None:
    table = "| n |\n|---|\n" + "\n".join(f"| {n} |" for n in range(150))
    assert "table" not in [block["type"] for block in content(render(Answer("1.1", table))[0])["blocks"]]


def test_sources_are_numbered_links_with_their_line() -> None:
    (body,) = render(Answer("1.1", "Be clear [1].", sources=(SOURCE,)))
    shown = json.dumps(content(body)["blocks"], ensure_ascii=False)
    assert "1. <https://docs.example/naming#rules|naming.md › Naming › Rules> — “Be clear.”" in shown
    assert "Read the sources" in shown


def test_a_short_output_is_open_and_a_long_one_folded() -> None:
    short = CommandResult("ls", Ended.EXIT, 0, "a\nb\n", duration_ms=1200)
    long = CommandResult("seq 99", Ended.EXIT, 1, "\n".join(map(str, range(99))))
    (body,) = render(Answer("1.1", "", commands=(short, long)))
    kinds = [block["type"] for block in content(body)["blocks"]]
    assert kinds == ["rich_text", "context", "rich_text", "rich_text", "context", "container", "context_actions"]
    assert "exit code 0 · 1.2 s" in str(body.content)
    assert "exit code 1" in str(body.content)


def test_a_draft_shows_what_the_running_command_printed_last() -> None:
    printed = "".join(f"line {n}\n" for n in range(5_000))
    (body,) = render(
        Answer("1.1", "", Outcome.DRAFT, commands=(CommandResult("make", Ended.NOT_STARTED, stdout=printed),))
    )
    assert "line 4999" in str(body.content["blocks"])
    assert blocks.size(content(body)["blocks"]) < 3_000


def test_an_output_that_does_not_fit_is_attached_whole() -> None:
    result = CommandResult("cat log", Ended.EXIT, 0, "line\n" * 5_000)
    *_, last = render(Answer("1.1", "", commands=(result,)))
    assert [(file.name, len(file.data)) for file in last.files] == [("output-1.txt", 24_999)]


def test_an_answer_of_many_pages_keeps_its_buttons_and_is_attached_whole() -> None:
    whole = "\n\n".join(f"Paragraph {n}. " + "word " * 60 for n in range(300))
    ticket = Ticket("k1", "rm -r build")
    bodies = render(Answer("1.1", whole, ticket=ticket, sources=(SOURCE,)))
    assert len(bodies) <= PAGES + 1
    assert bodies[-1].files[0].name == "answer.md"
    assert b"Paragraph 299." in bodies[-1].files[0].data
    labels = {button["label"] for body in bodies for button in buttons(content(body))}
    assert {"Run once", "Deny"} <= labels


def test_a_waiting_command_shows_what_would_run_with_nothing_hidden() -> None:
    code = "echo hi \u202e\u200b# <!channel>"
    (body,) = render(Answer("1.1", "", ticket=Ticket("k1", code)))
    assert "echo hi ⟨U+202E⟩⟨U+200B⟩# <!channel>" in str(body.content)
    assert {b["action_id"]: b["value"] for b in buttons(content(body))} == {"duet_approve": "k1", "duet_deny": "k1"}


def test_the_notification_of_a_waiting_command_says_that_a_person_is_waited_for() -> None:
    (body,) = render(Answer("1.1", "I look.", ticket=Ticket("k1", "ls")))
    assert body.content["text"] == "Duet wants to run a command and waits for a person's yes. I look."
    (decided,) = render(Answer("1.1", "I look.", ticket=Ticket("k1", "ls", TicketState.APPROVED, "Ann")))
    assert decided.content["text"] == "I look."


def test_the_notification_of_a_command_says_which_ran_and_how_it_ended() -> None:
    ran = CommandResult("echo '<!channel>' @here\nls", Ended.EXIT, 1, "out", duration_ms=1200)
    (body,) = render(Answer("1.1", "", kind=TurnKind.RUN, commands=(ran,)))
    assert body.content["text"] == "$ echo '&lt;!channel&gt;' @\u200bhere ls · exit code 1 · 1.2 s"
    (denied,) = render(Answer("1.1", "", ticket=Ticket("k1", "ls", TicketState.DENIED, "Ann")))
    assert denied.content["text"] == "$ ls · denied by Ann"
    running = CommandResult("make", Ended.NOT_STARTED, note="running")
    (draft,) = render(Answer("1.1", "", Outcome.DRAFT, commands=(running,)))
    assert draft.content["text"] == "$ make · running"


def test_no_help_holds_a_bracket_that_slack_would_read() -> None:
    shown = [panels.home_view(), *map(panels.help_reply, ("", "run", "what is this"))]
    for text in contract.readable_as_markup(shown):
        assert "<" not in text
    assert "`/duet run &lt;command&gt;`" in str(panels.help_reply("run"))
    assert "`/duet ask what is this`" in str(panels.help_reply("what is this"))


@pytest.mark.parametrize("state", [s for s in TicketState if s is not TicketState.WAITING])
def test_a_decided_command_shows_who_decided_and_has_no_buttons(state: TicketState) -> None:
    (body,) = render(Answer("1.1", "", ticket=Ticket("k1", "ls", state, "Ann")))
    assert not list(buttons(content(body)))
    assert f"*{state.value.capitalize()}* by Ann" in str(body.content)


def test_a_failed_answer_can_be_tried_again_and_names_its_incident() -> None:
    (body,) = render(Answer("1.1", "Too slow.", Outcome.FAILED, incident="a1b2c3"))
    assert [b["label"] for b in buttons(content(body))] == ["Try again"]
    assert "Incident a1b2c3" in str(body.content)


def test_a_refusal_is_for_the_asker_alone() -> None:
    (body,) = render(Answer("1.1", "No.", Outcome.REFUSED))
    assert body.content["only_to_asker"] is True
