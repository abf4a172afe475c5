"""Words, cleaned text and windows: what of a section goes into the index, and what of a question is looked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

WINDOW_WORDS = 220  # a longer section is cut; 60 and 120 found less, 400 ranked worse
OVERLAP_WORDS = 40
LIMIT_QUESTION_CHARS = 2_000  # of a question are looked for: more is a pasted log, and no words to search by
LIMIT_TERMS = 64

STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        """a an and are as at be been but by can could did do does doing for from had has have having he her him his how
        i if in into is it its just let may me might must my no not of on one or our out shall she should so some such
        than that the their them then there these they this those to too up us very was we were what when where which
        who whom whose why will with would you your about also any because being both each few more most other over own
        same s t only again further once here all am dont im whats please tell need want get use using""",
    )
)

# Scripts written without spaces (Chinese, Japanese, Korean, Thai, Lao, Khmer, Burmese): indexed and looked for as
# overlapping pairs of characters. A trigram index would not find words of two characters, which most Chinese words are.
_UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af"
_RUN = re.compile(f"[{_UNSPACED}]+")
_WORD = re.compile(r"[^\W_]+")
_JOINED = re.compile(r"(?<![^\W_])[^\W_]+(?:[-_./:#][^\W_]+)+")

_CLEANERS = (
    (re.compile(r"[!-~]{1000,}"), " "),  # an image in base64, say: no words, and slow to look through
    # A table of contents says nothing that the sections it names do not say better.
    (re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+\[[^\]\n]*\]\(#[^)\n]*\)\s*$", re.MULTILINE), ""),
    (re.compile(r"!?\[([^\]]*)\]\([^)]*\)"), r"\1"),  # links and images to their words
    (re.compile(r"^\[[^\]]+\]:\s*\S+.*$", re.MULTILINE), ""),  # link definitions
    (re.compile(r"<%.*?%>|<!--.*?-->|\{/\*.*?\*/\}", re.DOTALL), " "),
    (re.compile(r"^(?:import|export)\s.*\bfrom\s+['\"].*$", re.MULTILINE), ""),  # MDX
    (re.compile(r"</?[a-zA-Z][^>]*>|\{:[^}]*\}|https?://\S+"), " "),
    (re.compile(r"^[\s|:]*-{3,}[-\s|:]*$", re.MULTILINE), ""),  # rules, of tables too
    (re.compile(r"[*`>|]+"), " "),
    (re.compile(r"[ \t]+"), " "),
)


def clean(text: str) -> str:
    """Give Markdown's words without its marks."""
    for pattern, replacement in _CLEANERS:
        text = pattern.sub(replacement, text)
    return text.strip()


def searchable(text: str) -> str:
    """Give `text` as the full-text index takes it: unspaced scripts as pairs of characters."""
    return _RUN.sub(lambda run: " " + " ".join(pairs(run[0])) + " ", text)


def pairs(run: str) -> list[str]:
    return [run[i : i + 2] for i in range(len(run) - 1)] or [run]


def words(text: str) -> list[str]:
    """Give the lower-case words of `text` in order, stop words too."""
    return _WORD.findall(searchable(text).lower())


def content_words(text: str) -> list[str]:
    """Give the words that say what `text` is about."""
    return [word for word in words(text) if word not in STOP_WORDS]


def count_words(text: str) -> int:
    """Count words as a model's window does: a character of an unspaced script is one."""
    unspaced = sum(len(run) for run in _RUN.findall(text))
    return unspaced + len(_RUN.sub(" ", text).split())


def match_expression(question: str) -> str:
    """Give the FTS5 expression for `question`: every word quoted, joined by OR; '' when it holds no word.

    A name such as `DEC-0054` or `pre-commit` is looked for as a phrase too. Of a long text only the first words count.
    """
    found = content_words(question) or words(question)
    phrases = [" ".join(_WORD.findall(name.lower())) for name in _JOINED.findall(question)]
    lone = [f'"{run}"*' for run in _RUN.findall(question) if len(run) == 1]
    terms = dict.fromkeys([*lone, *(f'"{term}"' for term in [*phrases, *found])])
    return " OR ".join(list(terms)[:LIMIT_TERMS])


def letters_expression(question: str) -> str:
    """Give the FTS5 expression for the runs of three letters in `question`; '' when there is none."""
    found = content_words(question) or words(question)
    runs = dict.fromkeys(word[i : i + 3] for word in found for i in range(len(word) - 2))
    return " OR ".join(f'"{run}"' for run in list(runs)[: 2 * LIMIT_TERMS])


_OPENING = re.compile(
    r"^\s*(and|or|but|so|also|then|same|what about|how about|what if|which one|why not)\b", re.IGNORECASE
)
_PRONOUN = re.compile(r"\b(it|its|they|them|those|these|that|this|ones?|there|he|she)\b", re.IGNORECASE)


def is_follow_up(question: str) -> bool:
    """Say whether `question` leans on the one before: tight on purpose, a new topic must stand alone."""
    count = len(content_words(question))
    return (
        count <= 2
        or (count <= 5 and bool(_OPENING.match(question)))
        or (count <= 3 and bool(_PRONOUN.search(question)))
    )


def windows(body: str) -> list[str]:
    """Cut a section's text into pieces of about `WINDOW_WORDS`; a short one is one piece, an empty one ''.

    Cuts fall between paragraphs, list items or table rows where they can; a fence stays whole when it fits; a table's
    header stands again on each piece.
    """
    if count_words(body) <= WINDOW_WORDS:
        return [body]
    out: list[str] = []
    current: list[tuple[str, int]] = []
    for piece in _pieces(body):
        size = count_words(piece)
        if current and sum(n for _, n in current) + size > WINDOW_WORDS:
            out.append("\n".join(text for text, _ in current))
            current = _tail(current)
        current.append((piece, size))
    return [*out, "\n".join(text for text, _ in current)]


def _tail(pieces: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Give the last pieces that together stay within the overlap."""
    kept: list[tuple[str, int]] = []
    total = 0
    for text, size in reversed(pieces):
        total += size
        if total > OVERLAP_WORDS:
            break
        kept.insert(0, (text, size))
    return kept


def _pieces(body: str) -> Iterator[str]:
    """Give blocks in order, each within a window; those too long are cut smaller."""
    for block in _blocks(body):
        if count_words(block) <= WINDOW_WORDS:
            yield block + "\n"
        elif block.lstrip().startswith("|"):
            yield from _table_pieces(block.split("\n"))
        else:
            yield from _grouped(line for long in block.split("\n") for line in _short_lines(long))


_FENCE = re.compile(r"^\s*(`{3,}|~{3,})")


def _blocks(body: str) -> Iterator[str]:
    """Give paragraphs; a fence is one block, blank lines and all."""
    current: list[str] = []
    fence = ""
    for line in body.split("\n"):
        mark = _FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence):
            fence = ""
        if line.strip() or fence:
            current.append(line)
        elif current:
            yield "\n".join(current)
            current = []
    if current:
        yield "\n".join(current)


def _table_pieces(rows: list[str]) -> Iterator[str]:
    head = rows[:2]
    budget = WINDOW_WORDS // 2
    for group in _grouped(rows[2:], limit=max(budget, WINDOW_WORDS - count_words("\n".join(head)) - OVERLAP_WORDS)):
        yield "\n".join([*head, group]) + "\n"


def _grouped(lines: Iterable[str], *, limit: int = WINDOW_WORDS // 2) -> Iterator[str]:
    current: list[str] = []
    total = 0
    for line in lines:
        size = count_words(line)
        if current and total + size > limit:
            yield "\n".join(current)
            current, total = [], 0
        current.append(line)
        total += size
    if current:
        yield "\n".join(current)


_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")


def _short_lines(line: str) -> Iterator[str]:
    """Give a line that is longer than a window as sentences, and a sentence that is, in slices."""
    if count_words(line) <= WINDOW_WORDS:
        yield line
        return
    for sentence in _SENTENCE_END.split(line):
        if count_words(sentence) <= WINDOW_WORDS:
            yield sentence
        elif _RUN.search(sentence):
            yield from (sentence[i : i + WINDOW_WORDS] for i in range(0, len(sentence), WINDOW_WORDS))
        else:
            parts = sentence.split()
            yield from (" ".join(parts[i : i + WINDOW_WORDS]) for i in range(0, len(parts), WINDOW_WORDS))
