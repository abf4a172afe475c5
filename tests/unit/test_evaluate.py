"""Questions with known sections -> recall, rank, confidence, thresholds and a page."""

import json
import math

import pytest

from bot.conversation import RoomKey
from bot.errors import BadInput
from bot.evaluate import as_json, calibrated, page, read_questions, run
from bot.ports import Band, Findings, Hit
from bot.sections import parse_document

ROOM = RoomKey("terminal", "local", "x")
PARSED = parse_document("# T\n\nintro\n\n## A\n\na\n\n### A1\n\na1\n\n## [B `x`](y)\n\nb\n", "t.md")
BY_HEADING = {section.heading: section for section in PARSED.sections}


class Canned:
    """A retriever that gives what it was told to."""

    def __init__(self, given):
        self._given = given

    async def search(self, question, earlier, *, room, limit):
        headings, confidence = self._given[question]
        hits = tuple(Hit(BY_HEADING[heading], 1.0) for heading in headings)
        return Findings(hits, confidence, Band.HIGH if confidence > 0.5 else Band.LOW)

    def sections(self, room, document):
        return PARSED.sections if document == "t.md" else ()


def line(id, kind, question, gold=(), **more):
    return json.dumps({"id": id, "kind": kind, "question": question, "gold": gold, **more})


async def report_of(given, *lines, corpus="c"):
    return await run(read_questions("\n".join(lines)), Canned(given), corpus=corpus, room=ROOM)


async def test_recall_rank_and_auroc_are_counted_by_kind():
    report = await report_of(
        {"q1": (["A", "T"], 0.9), "q2": (["T", "A", "B x"], 0.8), "q3": (["T"], 0.2), "q4": (["A"], 0.5)},
        line("1", "direct", "q1", [["t.md", "A"]]),
        line("2", "typo", "q2", [["t.md", "B x"]]),
        line("3", "typo", "q3", [["t.md", "A"]]),
        line("4", "unanswerable", "q4"),
    )
    result = as_json(report)
    assert (result["n"], result["skipped"]) == (4, 0)
    assert result["recall_at_2"] == round(1 / 3, 4)
    assert result["recall_at_5"] == round(2 / 3, 4)
    assert result["mrr"] == round((1 + 1 / 3) / 3, 4)
    assert result["auroc"] == round(2 / 3, 4)
    assert result["by_kind"]["typo"] == {"n": 2, "recall_at_2": 0.0, "recall_at_5": 0.5, "mrr": 0.1667}
    assert [miss["id"] for miss in result["misses"]] == ["2", "3"]
    assert result["misses"][1]["rank"] is None


@pytest.mark.parametrize(
    ("gold", "given", "is_found"),
    [
        (["t.md", "A"], "A", True),
        (["t.md", "a"], "A", True),
        (["t.md", "B x"], "B x", True),
        (["t.md", "[B `x`](y)"], "B x", True),
        (["t.md", ""], "A > A1", True),
        (["t.md", "A1"], "A", True),
        (["t.md", "A1"], "T", False),
        (["t.md", "A"], "A > A1", False),
        (["t.md", "A1", "A"], "A > A1", True),
        (["t.md", "A1", "B x"], "A > A1", False),
        (["other.md", "A"], "A", False),
        (["t.md", "T"], "T", True),
    ],
)
async def test_what_counts_as_found(gold, given, is_found):
    report = await report_of({"q": ([given], 1.0)}, line("1", "direct", "q", [gold]))
    assert bool(report.results[0].rank) is is_found


async def test_an_alternate_counts_like_the_gold():
    report = await report_of(
        {"q": (["A"], 1.0)}, line("1", "direct", "q", [["t.md", "B x"]], alternates=[["t.md", "A"]])
    )
    assert report.scores.recall_at_2 == 1


async def test_questions_about_another_corpus_are_skipped_and_counted():
    report = await report_of(
        {"q": (["A"], 1.0)},
        line("1", "direct", "q", [["t.md", "A"]], corpus="c"),
        line("2", "direct", "other", [["t.md", "A"]], corpus="d"),
        line("3", "direct", "q", [["t.md", "A"]]),
    )
    assert (len(report.results), report.skipped) == (2, 1)


async def test_without_unanswerable_questions_there_is_no_auroc():
    report = await report_of({"q": (["A"], 1.0)}, line("1", "direct", "q", [["t.md", "A"]]))
    assert math.isnan(report.auroc)
    assert as_json(report)["auroc"] is None
    assert "AUROC –" in page(report, title="x")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no question"),
        ('{"id": "1"}', "Line 1"),
        ('\n{"id"', "Line 2"),
        ("[1]", "Line 1"),
        ('{"id": "1", "kind": "direct", "question": "q"}', "gold is empty"),
        ('{"id": "1", "kind": "direct", "question": "q", "gold": "x"}', "gold must be a list"),
        ('{"id": "1", "kind": "direct", "question": "q", "gold": [["only a file"]]}', "Line 1"),
    ],
)
def test_a_faulty_file_of_questions_is_named_by_its_line(text, reason):
    with pytest.raises(BadInput, match=reason):
        read_questions(text)


async def test_thresholds_keep_the_covered_and_bar_the_uncovered():
    covered = {f"c{n}": (["A"], 0.4 + n / 50) for n in range(20)}
    others = {f"u{n}": (["A"], n / 50) for n in range(11)} | {"u11": (["A"], 0.7)}
    report = await report_of(
        covered | others,
        *(line(q, "direct", q, [["t.md", "A"]]) for q in covered),
        *(line(q, "unanswerable", q) for q in others),
    )
    bands = calibrated(report)
    assert 0.2 < bands.low <= 0.42
    assert bands.low <= bands.high <= 0.42


async def test_calibrating_with_too_few_questions_says_how_many_are_needed():
    report = await report_of({"q": (["A"], 1.0)}, line("1", "direct", "q", [["t.md", "A"]]))
    with pytest.raises(BadInput, match="at least 5 answerable and 5 unanswerable"):
        calibrated(report)


async def test_the_page_shows_each_question_with_what_came_back_and_was_expected():
    report = await report_of(
        {"<q1> & more?": (["A"], 0.9), "q2": (["T"], 0.2)},
        line("1", "direct", "<q1> & more?", [["t.md", "A"]], history=["before <that>"]),
        line("2", "unanswerable", "q2"),
    )
    text = page(report, title="Search on c")
    assert "&lt;q1&gt; &amp; more?" in text
    assert "<q1>" not in text
    assert "before &lt;that&gt;" in text
    assert "t.md &gt; A" in text
    assert text.count("<tr class=") == 2
