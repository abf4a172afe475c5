"""Questions and what a search gave for them -> recall, rank, how well "not covered" is told, and a page to read.

How `duet eval QUESTIONS [--codex DIR] [--html FILE] [--calibrate]` uses it:

    questions = read_questions(path.read_text("utf-8"))                 # BadInput names the faulty line
    await codex.embedded(progress=draw)                                 # never measure a half-made index
    report = await run(questions, codex, corpus=codex.folder.name, room=room, on_question=draw)
    print(json.dumps(as_json(report)))                                  # or page(report, title=…) for --html
    bands = calibrated(report); await codex.calibrate(bands.low, bands.high)

A question counts as found where a section given is one of its gold or alternate sections, or an ancestor of one of
level 2 or deeper. A gold heading `""` is the whole document. Unanswerable questions count for the confidence only.
"""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bot.conversation import Json, RoomKey
from bot.errors import BadInput
from bot.ports import Band, Findings, Retriever
from bot.sections import Section

UNANSWERABLE = "unanswerable"
LEAST_TO_CALIBRATE = 5  # questions of each sort
KEPT_SHARE = 0.95  # of the answerable questions must stay above the lower threshold
WRONG_SHARE = 0.10  # of the unanswerable ones may reach the upper one


@dataclass(frozen=True, slots=True)
class Place:
    """A section as a question names it: its own heading, and perhaps one it stands under."""

    document: str
    heading: str
    parent: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """`history` holds the questions before it, oldest first; `gold` is empty for an unanswerable one."""

    id: str
    kind: str
    text: str
    corpus: str = ""
    history: tuple[str, ...] = ()
    gold: tuple[Place, ...] = ()
    alternates: tuple[Place, ...] = ()

    @property
    def is_answerable(self) -> bool:
        return self.kind != UNANSWERABLE


@dataclass(frozen=True, slots=True)
class Result:
    """What came back for a question. `rank` counts from 1; 0 is not found, None has nothing to find."""

    question: Question
    rank: int | None
    confidence: float
    band: Band
    given: tuple[tuple[str, str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Scores:
    """Shares from 0 to 1 over the answerable questions."""

    n: int
    recall_at_2: float
    recall_at_5: float
    mrr: float


@dataclass(frozen=True, slots=True)
class Report:
    """Every result, and how many questions were meant for another corpus."""

    results: tuple[Result, ...]
    skipped: int = 0

    @property
    def answerable(self) -> list[Result]:
        return [result for result in self.results if result.question.is_answerable]

    @property
    def scores(self) -> Scores:
        return _scores(self.answerable)

    @property
    def by_kind(self) -> dict[str, Scores]:
        kinds = dict.fromkeys(result.question.kind for result in self.answerable)
        return {kind: _scores([r for r in self.answerable if r.question.kind == kind]) for kind in kinds}

    @property
    def auroc(self) -> float:
        """How often an answerable question's confidence is above an unanswerable one's; nan without both."""
        covered = [result.confidence for result in self.answerable]
        others = [result.confidence for result in self.results if not result.question.is_answerable]
        if not covered or not others:
            return math.nan
        wins = sum((one > other) + 0.5 * (one == other) for one in covered for other in others)
        return wins / (len(covered) * len(others))

    @property
    def misses(self) -> list[Result]:
        """Answerable questions whose section was not among the first two."""
        return [result for result in self.answerable if not result.rank or result.rank > 2]


@dataclass(frozen=True, slots=True)
class Bands:
    """Thresholds made from a report: below `low` not covered, from `high` on surely covered."""

    low: float
    high: float


def read_questions(text: str) -> tuple[Question, ...]:
    """Give the questions of a JSON Lines text. Raises: BadInput naming the line at fault."""
    found: list[Question] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                found.append(_question(json.loads(line)))
            except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
                raise BadInput(
                    f"Line {number} of the questions cannot be used ({error}): it must be a JSON object with id, kind, "
                    "question, history, gold and alternates."
                ) from error
    if not found:
        raise BadInput("There is no question in the file: put one JSON object on each line.")
    return tuple(found)


def _question(row: Mapping[str, object]) -> Question:
    def places(name: str) -> tuple[Place, ...]:
        value = row.get(name) or []
        if not isinstance(value, list):
            raise TypeError(f"{name} must be a list")
        return tuple(Place(*(str(part) for part in place)) for place in value)

    history = row.get("history") or []
    if not isinstance(history, list):
        raise TypeError("history must be a list")
    question = Question(
        str(row["id"]),
        str(row["kind"]),
        str(row["question"]),
        str(row.get("corpus") or ""),
        tuple(str(earlier) for earlier in history),
        places("gold"),
        places("alternates"),
    )
    if question.is_answerable and not question.gold:
        raise ValueError("gold is empty, and its kind is not unanswerable")
    return question


async def run(
    questions: Sequence[Question],
    retriever: Retriever,
    *,
    corpus: str,
    room: RoomKey,
    limit: int = 10,
    on_question: Callable[[int, int], None] = lambda done, whole: None,
) -> Report:
    """Ask every question that is meant for `corpus`, the folder's name, or names none."""
    meant = [question for question in questions if question.corpus in ("", corpus)]
    results: list[Result] = []
    for number, question in enumerate(meant, 1):
        findings = await retriever.search(question.text, question.history, room=room, limit=limit)
        wanted = _Wanted.of(question, lambda document: retriever.sections(room, document))
        results.append(_result(question, findings, wanted))
        on_question(number, len(meant))
    return Report(tuple(results), len(questions) - len(meant))


def _result(question: Question, findings: Findings, wanted: _Wanted) -> Result:
    ranks = (number for number, hit in enumerate(findings.hits, 1) if hit.section.id in wanted.ids)
    return Result(
        question,
        next(ranks, 0) if question.is_answerable else None,
        findings.confidence,
        findings.band,
        tuple((hit.section.document, hit.section.heading, hit.score) for hit in findings.hits[:5]),
    )


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The ids of all sections that count as found."""

    ids: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def of(cls, question: Question, sections_of: Callable[[str], Iterable[Section]]) -> _Wanted:
        ids: set[str] = set()
        for place in (*question.gold, *question.alternates):
            ids |= _ids(place, list(sections_of(place.document)))
        return cls(frozenset(ids))


def _ids(place: Place, sections: Sequence[Section]) -> set[str]:
    if not place.heading:
        return {section.id for section in sections}
    parent = _plain(place.parent)
    ids: set[str] = set()
    for section in sections:
        path = [_plain(heading) for heading in section.headings] or [_plain(section.title)]
        if path[-1] == _plain(place.heading) and (not parent or parent in path[:-1]):
            ids |= {other.id for other in sections if other is section or _contains(other, section)}
    return ids


def _contains(outer: Section, inner: Section) -> bool:
    depth = len(outer.headings)
    return outer.level >= 2 and depth < len(inner.headings) and inner.headings[:depth] == outer.headings


def _plain(heading: str) -> str:
    """Give a heading so that links, emphasis, custom ids and case no longer tell apart."""
    heading = re.sub(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])", r"\1", heading)
    heading = re.sub(r"<[^>]+>|\{[#:][^}]*\}|\*\*|__|`|\*", "", heading)
    return " ".join(heading.split()).casefold()


def _scores(results: Sequence[Result]) -> Scores:
    count = len(results)
    if not count:
        return Scores(0, 0.0, 0.0, 0.0)

    def recall(limit: int) -> float:
        return sum(1 for result in results if result.rank and result.rank <= limit) / count

    return Scores(count, recall(2), recall(5), sum(1 / result.rank for result in results if result.rank) / count)


def calibrated(report: Report) -> Bands:
    """Give thresholds that fit these questions. Raises: BadInput when there are too few of either sort."""
    covered = sorted(result.confidence for result in report.answerable)
    others = sorted(result.confidence for result in report.results if not result.question.is_answerable)
    if min(len(covered), len(others)) < LEAST_TO_CALIBRATE:
        raise BadInput(
            f"Calibrating needs at least {LEAST_TO_CALIBRATE} answerable and {LEAST_TO_CALIBRATE} unanswerable "
            f"questions about this Codex; there are {len(covered)} and {len(others)}."
        )
    # Half way down to the highest unanswerable below, so that the edge does not rest on one question's last digit.
    edge = covered[math.floor(len(covered) * (1 - KEPT_SHARE))]
    low = (edge + max((other for other in others if other < edge), default=0.0)) / 2
    allowed = math.floor(len(others) * WRONG_SHARE)
    barrier = others[len(others) - 1 - allowed]
    high = (barrier + min((one for one in covered if one > barrier), default=1.0)) / 2
    return Bands(round(low, 4), round(max(low, high), 4))


def as_json(report: Report) -> dict[str, Json]:
    """Give what `duet eval --json` prints. `auroc` is null without unanswerable questions."""
    scores = report.scores
    return {
        "n": len(report.results),
        "skipped": report.skipped,
        "recall_at_2": round(scores.recall_at_2, 4),
        "recall_at_5": round(scores.recall_at_5, 4),
        "mrr": round(scores.mrr, 4),
        "auroc": None if math.isnan(report.auroc) else round(report.auroc, 4),
        "by_kind": {kind: _rounded(one) for kind, one in report.by_kind.items()},
        "misses": [
            {
                "id": miss.question.id,
                "kind": miss.question.kind,
                "question": miss.question.text,
                "rank": miss.rank or None,
                "expected": [f"{place.document} > {place.heading}" for place in miss.question.gold],
                "given": [f"{document} > {heading}" for document, heading, _ in miss.given[:3]],
            }
            for miss in report.misses
        ],
    }


def _rounded(scores: Scores) -> dict[str, Json]:
    return {
        "n": scores.n,
        "recall_at_2": round(scores.recall_at_2, 4),
        "recall_at_5": round(scores.recall_at_5, 4),
        "mrr": round(scores.mrr, 4),
    }


_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; }
th, td { text-align: left; vertical-align: top; padding: .4rem .6rem; border-bottom: 1px solid #8885; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
.miss { border-left: .3rem solid #c33; } .found { border-left: .3rem solid #393; }
.history { color: #777; } .gold { font-weight: 600; }
"""


def page(report: Report, *, title: str) -> str:
    """Give the report as an HTML page that stands alone: each question, what came back, what was expected."""
    scores = report.scores
    auroc = "–" if math.isnan(report.auroc) else f"{report.auroc:.3f}"
    kinds = "".join(_kind_row(kind, one) for kind, one in [("all", scores), *report.by_kind.items()])
    skipped = (
        f"<p>{report.skipped} questions were skipped: they are about another corpus.</p>" if report.skipped else ""
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>\n"
        f"<h1>{html.escape(title)}</h1>\n"
        f"<p>{len(report.results)} questions, {len(report.misses)} not among the first two sections. "
        f"Confidence tells covered from uncovered with AUROC {auroc}.</p>{skipped}\n"
        '<table><thead><tr><th>Kind</th><th class="number">Questions</th><th class="number">Recall at 2</th>'
        f'<th class="number">Recall at 5</th><th class="number">MRR</th></tr></thead><tbody>{kinds}</tbody></table>\n'
        "<table><thead><tr><th>Question</th><th>What came back</th><th>Expected</th>"
        '<th class="number">Rank</th><th class="number">Confidence</th></tr></thead><tbody>\n'
        + "\n".join(_question_row(result) for result in report.results)
        + "\n</tbody></table></body></html>\n"
    )


def _kind_row(kind: str, scores: Scores) -> str:
    numbers = (f"{scores.n}", f"{scores.recall_at_2:.3f}", f"{scores.recall_at_5:.3f}", f"{scores.mrr:.3f}")
    cells = "".join(f'<td class="number">{number}</td>' for number in numbers)
    return f"<tr><td>{html.escape(kind)}</td>{cells}</tr>"


def _question_row(result: Result) -> str:
    question = result.question
    good = result.band is not Band.HIGH if result.rank is None else 0 < result.rank <= 2
    history = "".join(f'<div class="history">{html.escape(earlier)}</div>' for earlier in question.history)
    given = "".join(
        f"<li>{html.escape(document)} &gt; {html.escape(heading)} ({score:.2f})</li>"
        for document, heading, score in result.given[:3]
    )
    expected = (
        "<br>".join(html.escape(f"{p.document} > {p.heading or '(anywhere)'}") for p in question.gold) or "nothing"
    )
    rank = "–" if result.rank is None else str(result.rank or "not found")
    return (
        f'<tr class="{"found" if good else "miss"}"><td>{history}<div>{html.escape(question.text)}</div>'
        f'<div class="history">{html.escape(question.kind)}, {html.escape(question.id)}</div></td>'
        f'<td><ol>{given}</ol></td><td class="gold">{expected}</td><td class="number">{rank}</td>'
        f'<td class="number">{result.confidence:.2f} ({result.band})</td></tr>'
    )
