"""`duet eval`: the search measured with questions whose sections are known."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from adapters.terminal.inbound import room_named
from adapters.terminal.outbound import dumped, table
from adapters.terminal.progress import Progress
from bot import evaluate
from bot.errors import BadInput
from bot.ports import Retriever
from bot.redaction import neutralised


class Index(Retriever, Protocol):
    """A retriever that is an index: it can be waited for and set."""

    async def embedded(self, *, progress: Callable[[int, int], None] | None = None) -> bool: ...
    async def calibrate(self, low: float, high: float) -> Path: ...


@dataclass(frozen=True, slots=True)
class Measuring:
    """One measurement: `questions` is a JSON Lines file; `page`, where it is given, is written as HTML."""

    questions: str
    page: str | None
    calibrates: bool
    as_json: bool

    async def run(self, codex: Index, corpus: str) -> str:
        """Ask every question and give what is printed. Raises: BadInput."""
        questions = evaluate.read_questions(_read(self.questions))
        progress = Progress(sys.stderr, is_live=sys.stderr.isatty())
        await codex.embedded(progress=lambda done, whole: progress.show("Reading", done, whole))
        report = await evaluate.run(
            questions,
            codex,
            corpus=corpus,
            room=room_named("main"),
            on_question=lambda done, whole: progress.show("Asking", done, whole),
        )
        progress.end()
        if self.calibrates:
            bands = evaluate.calibrated(report)
            path = await codex.calibrate(bands.low, bands.high)
            print(f"Not covered below {bands.low:g}, surely covered from {bands.high:g}: {path}", file=sys.stderr)
        if self.page:
            _write(self.page, evaluate.page(report, title=f"Search over {corpus}"))
        return dumped(evaluate.as_json(report)) if self.as_json else report_text(report)


def report_text(report: evaluate.Report) -> str:
    """Give the figures as a table and the questions whose section was not among the first two."""
    rows = [("kind", "questions", "recall at 2", "recall at 5", "MRR")]
    for kind, scores in [("all", report.scores), *report.by_kind.items()]:
        rows.append(
            (kind, str(scores.n), f"{scores.recall_at_2:.3f}", f"{scores.recall_at_5:.3f}", f"{scores.mrr:.3f}")
        )
    lines = [table(rows), "", f"AUROC of the confidence: {report.auroc:.3f}"]
    if report.skipped:
        lines.append(f"{report.skipped} questions are about another corpus and were skipped.")
    if report.misses:
        lines += ["", "Not among the first two:"]
    for miss in report.misses:
        wanted = ", ".join(f"{place.document} › {place.heading}" for place in miss.question.gold)
        lines.append(f"  {miss.question.text}  ({wanted}; rank {miss.rank or 'none'})")
    return neutralised("\n".join(lines))


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"The questions in {path} cannot be read ({error}): give a JSON Lines file in UTF-8.") from error


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, "utf-8")
    except OSError as error:
        raise BadInput(f"{path} cannot be written ({error.strerror}): give --html another file.") from error
