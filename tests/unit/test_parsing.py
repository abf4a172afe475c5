"""What a person sees of a model's reply, and which commands it may start."""

import itertools
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.parsing import MAX_COMMAND_CHARS, Reply, ReplyParser, parse_reply


def test_commands_are_taken_out_in_order_and_the_prose_stays():
    reply = parse_reply("I will look.\n<run>ls -la</run>\nThen:\n<run>\n uname -a \n</run>\nDone.")
    assert reply == Reply("I will look.\nThen:\nDone.", ("ls -la", "uname -a"))


def test_an_empty_command_is_skipped():
    assert parse_reply("a <run>  \n </run>b") == Reply("a b")


def test_tags_count_in_any_case():
    assert parse_reply("<RUN>ls</Run>").commands == ("ls",)


def test_an_unclosed_command_is_hidden_and_named():
    reply = parse_reply("Let me see. <run>rm -rf build")
    assert reply.prose == "Let me see."
    assert reply.commands == ()
    assert reply.notes == ("The model began a command and did not end it; it was not run.",)


def test_a_closing_tag_without_an_opening_one_is_hidden():
    assert parse_reply("ls</run> is a command") == Reply("ls is a command")


def test_a_command_that_holds_another_opening_tag_is_not_run():
    reply = parse_reply("<run>echo a <run>echo b</run></run> end")
    assert reply.commands == ()
    assert reply.prose == "end"
    assert "another <run> tag" in reply.notes[0]


@pytest.mark.parametrize(
    "text",
    [
        "Like this:\n```\n<run>ls</run>\n```\nok",
        "Like this:\n~~~ sh\n<run>ls</run>\n~~~\nok",
        "1. Do\n   ```bash\n   <run>ls</run>\n   ```\n",
        "- ```\n  <run>ls</run>\n  ```",
        "> ```\n> <run>ls</run>\n> ```",
        "````\n```\n<run>ls</run>\n```\n````",
        "```\n<run>ls</run>",  # a fence that nothing closes goes on to the end
        "Write `<run>ls</run>` to run it.",
        "Write ``a ` <run>ls</run>`` to run it.",
        "A span may go on `over\n<run>ls</run>` lines.",
        "~~~\n```\n<run>ls</run>\n~~~",
        "```\n~~~\n<run>ls</run>\n```",
    ],
)
def test_a_tag_inside_code_is_text_and_runs_nothing(text):
    reply = parse_reply(text)
    assert reply.commands == ()
    assert reply.prose == text.strip()


@pytest.mark.parametrize(
    "text",
    [
        "It's a ` lone mark <run>ls</run>",
        "A mark ` here\n\nand <run>ls</run> ` there",
        "```\ncode\n```\n<run>ls</run>",
        "`code` <run>ls</run> `code`",
        "a ``` b\n\n<run>ls</run>",
        "~~~\ncode\n~~~~\n<run>ls</run>",
    ],
)
def test_a_tag_after_code_has_ended_counts(text):
    assert parse_reply(text).commands == ("ls",)


def test_a_mark_before_a_fence_does_not_turn_the_fence_inside_out():
    assert parse_reply("` a\n```\n`<run>ls</run>\n```").commands == ()


@pytest.mark.parametrize(
    "disguise",
    [
        "<ru\u200bn>ls</run>",
        "<\U000e0072un>ls</run>",
        "＜run＞ls＜/run＞",
        "&lt;run&gt;ls&lt;/run&gt;",
        "< run>ls</run>",
        '<run x="1">ls</run>',
        "<𝚛un>ls</run>",
    ],
)
def test_a_tag_in_disguise_is_no_tag(disguise):
    assert parse_reply(disguise).commands == ()


def test_what_is_thought_is_neither_shown_nor_run():
    reply = parse_reply("<think>try <run>rm x</run> maybe ```</think>\nHello <run>ls</run>")
    assert reply == Reply("Hello", ("ls",))


def test_a_thought_without_its_opening_tag_takes_back_all_before_it():
    parser = ReplyParser()
    assert parser.feed("hmm <run>rm x</run> and ") == "hmm  and "
    parser.feed("so</think>Hello")
    assert parser.visible == "Hello"
    assert parser.finish() == Reply("Hello")


def test_a_reply_that_never_stops_thinking_says_so():
    assert parse_reply("<think>on and on") == Reply("", notes=("The reply ended while the model was still thinking.",))


def test_more_commands_than_allowed_are_left_out_and_counted():
    reply = parse_reply("".join(f"<run>echo {n}</run>" for n in range(6)), max_commands=4)
    assert reply.commands == ("echo 0", "echo 1", "echo 2", "echo 3")
    assert reply.notes == ("Only the first 4 commands were taken; 2 more were left out.",)


def test_where_no_command_is_asked_for_none_is_taken():
    reply = parse_reply("Look: <run>cat /etc/passwd</run>", max_commands=0)
    assert reply == Reply("Look:", notes=("The model wrote a command where none was asked for; it was not run.",))


def test_a_command_of_enormous_length_is_not_run():
    reply = parse_reply(f"<run>echo {'x' * MAX_COMMAND_CHARS}</run>")
    assert reply.commands == ()
    assert "characters was not run" in reply.notes[0]


@pytest.mark.parametrize("inner", ["```bash\nls -la\n```", "```\nls -la\n```", "`ls -la`", "\n```sh\nls -la\n  ```\n"])
def test_code_marks_around_a_whole_command_are_not_part_of_it(inner):
    assert parse_reply(f"<run>{inner}</run>").commands == ("ls -la",)


def test_marks_that_belong_to_a_command_stay():
    assert parse_reply("<run>echo `date` and `pwd`</run>").commands == ("echo `date` and `pwd`",)


def test_a_draft_never_shows_a_tag_or_a_part_of_one():
    parser = ReplyParser()
    drafts = []
    for char in "See: <run>ls</run> and <think>no</think> a < b.":
        parser.feed(char)
        drafts.append(parser.visible)
    assert not any(part in draft for draft in drafts for part in ("<r", "</", "<t", "ls"))
    assert parser.finish().prose == "See:  and  a < b."


def test_text_is_shown_as_it_comes():
    parser = ReplyParser()
    assert [parser.feed(piece) for piece in ("Hel", "lo ", "you")] == ["Hel", "lo ", "you"]


pieces = st.sampled_from(
    [
        "<run>",
        "</run>",
        "<RUN>",
        "<think>",
        "</think>",
        "`",
        "``",
        "```",
        "~~~",
        "\n",
        "\n\n",
        " ",
        "- ",
        "1. ",
        "> ",
        "ls",
        "<",
        "<r",
        ">",
        "text",
        "é",
        "\\",
    ]
)
texts = st.lists(pieces, max_size=40).map("".join)


@settings(max_examples=400, deadline=None)
@given(text=texts, cuts=st.lists(st.integers(0, 120), max_size=30))
def test_however_a_reply_is_cut_the_result_is_the_same(text, cuts):
    whole = parse_reply(text)
    parser, letters = ReplyParser(), ReplyParser()
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    for start, end in itertools.pairwise(edges):
        parser.feed(text[start:end])
    for letter in text:
        letters.feed(letter)
    assert parser.finish() == whole
    assert letters.finish() == whole


@settings(max_examples=200, deadline=None)
@given(text=texts)
def test_what_feed_gives_is_what_is_visible(text):
    parser = ReplyParser()
    seen = ""
    for letter in text:
        before = parser.visible
        seen = parser.feed(letter)
        assert parser.visible == before + seen or "</think>" in text


@settings(max_examples=300, deadline=None)
@given(text=texts)
def test_every_command_stood_between_its_own_tags(text):
    between = re.findall(r"(?is)<run>(.*?)</run>", text)
    for command in parse_reply(text).commands:
        assert any(command in inner for inner in between)
        assert "<run>" not in command.lower()


@pytest.mark.parametrize(
    "unit", ["<", "`a` ", "`", "` `` ", "<run>", "<run>a</run>", "\n", "```\n", "`a\n", "- `", "<think>", "> "]
)
def test_a_long_hostile_reply_is_read_quickly(unit):
    text = unit * (100_000 // len(unit))
    short = text[: len(text) // 8]

    def spent(sample: str) -> float:
        started = time.perf_counter()
        parse_reply(sample)
        return time.perf_counter() - started

    parse_reply(short)
    small = min(spent(short) for _ in range(2))
    assert spent(text) < 8 * 4 * small + 0.05, "time must grow about as the length does"
