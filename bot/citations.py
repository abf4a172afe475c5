"""Markers -> checked sources, each with a verbatim sentence; quotations verified; claims without support marked.

How to call it (`bot.answering` does):

    checked = check(reply, findings, url=retriever.url, also=(outputs of commands, what people pasted))
        for the reply of a model that was told to cite. `findings.hits[n - 1]` is the section it was given as `[n]`:
        pass exactly the hits that stood in the prompt, in order. `also` holds everything else it may rest on.
    checked = cite(reply, findings, url=retriever.url, also=())
        where the program adds the markers: a small model, or an answerer without a model.

Both give a `Checked`: put `text` and `sources` into the Answer and `notes` below it. Then
    `supported`  False: nothing in the text rests on the sections: the answer is not from the Codex (`covered=False`);
    `declined`   True: the model itself says that the sections do not answer: `covered=False`, and no sources;
    `quoted`     True: a verified quotation, or a sentence that repeats one of the section: what band MIDDLE asks for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal

from bot.conversation import Source
from bot.markers import CODE, is_open, leading, pieces, taken_out, unexplained, with_markers, without_strays
from bot.ports import Findings
from bot.sections import Section
from bot.sentences import (
    LEAST_MIRRORED,
    MIRRORED,
    Gist,
    best_sentence,
    claim_gist,
    gist,
    mirrored,
    sentence_spans,
    sentences,
    support,
)

SUPPORTED = 0.6  # of a claim's content words must stand in some neighbouring sentences of a section
CITED_SUPPORTED = 0.4  # where the model itself named the section
NEIGHBOURS = 4  # sentences that are read together: a whole long section holds any word at all
REPEATED = 0.8  # of a claim's content words in one sentence: the claim repeats it
QUOTE_CHARS = 300
LEAST_QUOTATION_CHARS = 12  # shorter ones are names and words, not quotations

UNSUPPORTED_MARK = " *(not in the Codex)*"
FALSE_QUOTATION_MARK = " *(not a quotation)*"
NOT_FOUND_NOTE = "Not found in the Codex: nothing in the sections that were searched supports this answer."

Url = Callable[[Section], str]


@dataclass(frozen=True, slots=True)
class Checked:
    """What is left of a reply after checking. Every marker in `text` has its source."""

    text: str
    sources: tuple[Source, ...] = ()
    supported: bool = False
    declined: bool = False
    quoted: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Ground:
    """A section that was given, made ready for comparing. `number` is its marker."""

    number: int
    section: Section
    plain: str
    passages: tuple[Gist, ...]
    sentences: tuple[tuple[str, Gist], ...]

    def support(self, claim: Gist) -> float:
        return max(support(claim, passage) for passage in self.passages)

    def denies(self, claim: _Claim) -> bool:
        """Say whether the section has the claim's words only for its opposite."""
        stems = claim.gist.stems
        # Few sentences share that much: only these are taken apart, or a long section would hold the loop up.
        least = max(LEAST_MIRRORED, MIRRORED * (len(stems) - 1))
        near = [sentence for sentence, known in self.sentences if len(stems & known.stems) >= least]
        alike = list(mirrored(claim.text, near)) if near else []
        return bool(alike) and not max(alike)[1]

    def holds(self, claim: _Claim) -> bool:
        """Say whether the claim repeats a sentence of the section."""
        return len(claim.gist.stems) >= 3 and any(support(claim.gist, known) >= REPEATED for _, known in self.sentences)


@dataclass(slots=True)
class _Claim:
    """A sentence of the reply without its markers, or a piece of one. `tail` is the white space after it.

    `pieces` is the sentence cut at its markers, where these stand in several places.
    """

    text: str
    numbers: list[int]
    tail: str
    is_code: bool = False
    gist: Gist = field(default_factory=lambda: Gist(frozenset(), frozenset()))
    pieces: tuple[_Claim, ...] = ()
    verdict: Literal["", "supported", "unsupported", "misquoted", "declined", "told"] = ""


def check(text: str, findings: Findings, *, url: Url, also: Sequence[str] = ()) -> Checked:
    """Check a model's reply against the sections it was given."""
    return _checked(text, findings, url=url, also=also, keep_markers=True)


def cite(text: str, findings: Findings, *, url: Url, also: Sequence[str] = ()) -> Checked:
    """Add the markers that the sections bear out, whatever markers the text came with."""
    return _checked(text, findings, url=url, also=also, keep_markers=False)


def _checked(text: str, findings: Findings, *, url: Url, also: Sequence[str], keep_markers: bool) -> Checked:
    grounds = [_ground(number, hit.section) for number, hit in enumerate(findings.hits, 1)]
    claims = list(_claims(text))
    if not grounds:
        return Checked(without_strays(_joined(_bare(claims), marked=False), ()))
    other = gist("\n".join(also))
    other_plain = _plain("\n".join(also))
    quoted, judged = False, list[_Claim]()
    for claim in claims:
        found, repeats = _judged(claim, grounds, other, other_plain, keep_markers=keep_markers)
        judged += found
        quoted |= repeats
    claims = judged
    if keep_markers and not any(claim.numbers for claim in claims):
        for claim in claims:
            if claim.verdict == "supported":
                claim.numbers = _bearers(claim, grounds)[:1]
    declined = _declines(claims)
    supported = any(claim.verdict == "supported" for claim in claims) and not declined
    if not supported:
        unfounded = any(claim.verdict in ("unsupported", "told", "misquoted") for claim in claims)
        notes = (NOT_FOUND_NOTE,) if unfounded and not declined else ()
        return Checked(without_strays(_joined(_bare(claims), marked=False), ()), (), False, declined, False, notes)
    sources = tuple(_sources(claims, grounds, url))
    known = [source.number for source in sources]
    return Checked(without_strays(_joined(claims, marked=True), known), sources, True, False, quoted)


def _judged(
    claim: _Claim, grounds: Sequence[_Ground], other: Gist, other_plain: str, *, keep_markers: bool
) -> tuple[list[_Claim], bool]:
    """Decide what a claim rests on; give it, or its pieces where these keep more markers, and whether it quotes."""
    if claim.is_code:
        return [claim], False

    def judge(one: _Claim) -> tuple[int, bool]:
        written = set(one.numbers)
        repeats = _check_quotations(one, grounds, other_plain)
        repeats |= _settle(one, grounds, other, keep_markers=keep_markers)
        return len(written & set(one.numbers)), repeats

    kept, repeats = judge(claim)
    if keep_markers and claim.pieces and claim.verdict != "misquoted":
        each = [judge(piece) for piece in claim.pieces]
        if sum(count for count, _ in each) > kept:
            return list(claim.pieces), any(one for _, one in each)
    return [claim], repeats


def _bare(claims: list[_Claim]) -> list[_Claim]:
    for claim in claims:
        claim.numbers = []
    return claims


def _ground(number: int, section: Section) -> _Ground:
    name = gist(section.breadcrumb)
    said = tuple((sentence, gist(sentence)) for sentence in sentences(section.text))
    parts = [known for _, known in said]
    starts = range(max(1, len(parts) - NEIGHBOURS + 1))
    passages = tuple(_together([name, *parts[start : start + NEIGHBOURS]]) for start in starts)
    return _Ground(number, section, _plain(f"{section.breadcrumb}\n{section.text}"), passages, said)


def _together(gists: Sequence[Gist]) -> Gist:
    return Gist(
        frozenset(stem for one in gists for stem in one.stems),
        frozenset(number for one in gists for number in one.numbers),
        frozenset(measure for one in gists for measure in one.measures),
    )


# The reply, cut into claims

_LINE_PREFIX = re.compile(r"^\s*(?:>\s?)*(?:(?:[-*+]|\d{1,3}[.)])\s+)?(?:#{1,6}\s+)?")


def _claims(text: str) -> Iterator[_Claim]:
    """Give the reply as sentences that join to it again, markers taken out; fenced code as it is."""
    position = 0
    for code in CODE.finditer(text):
        yield from _prose_claims(unexplained(text[position : code.start()], is_last=False))
        yield _Claim(code[0], [], "", is_code=True)
        position = code.end()
    yield from _prose_claims(unexplained(text[position:], is_last=True))


def _prose_claims(text: str) -> Iterator[_Claim]:
    spans = list(sentence_spans(text))
    if not spans:
        if text:
            yield _Claim(text, [], "", is_code=True)
        return
    # What stands between sentences (list marks, blank lines) belongs to the one after it; markers and a closing mark
    # that follow a sentence's end belong to that sentence.
    start, raws = 0, list[str]()
    for span in spans:
        raw = text[start : span.end]
        late = leading(raw) if raws else ""
        if late:
            raws[-1] += late
            raw = raw[len(late) :]
        if raws and is_open(raws[-1]) and "\n\n" not in raw:
            raws[-1] += raw
        elif raw:
            raws.append(raw)
        start = span.end
    for number, raw in enumerate(raws):
        yield _claim(raw, text[start:] if number == len(raws) - 1 else "")


def _claim(raw: str, tail: str) -> _Claim:
    text, numbers = taken_out(raw)
    claim = _Claim(text, numbers, tail, gist=claim_gist(_LINE_PREFIX.sub("", text.strip())))
    cut = pieces(raw)
    if len(cut) > 1:
        claim.pieces = tuple(_claim(piece, tail if number == len(cut) else "") for number, piece in enumerate(cut, 1))
    return claim


def _joined(claims: Sequence[_Claim], *, marked: bool) -> str:
    out: list[str] = []
    for is_code, run in groupby(claims, key=lambda claim: claim.is_code):
        text = "".join(_with_verdict(claim, marked=marked) for claim in run)
        # A marker that stood alone leaves an empty paragraph; the empty lines of code are its own.
        out.append(text if is_code else re.sub(r"\n{3,}", "\n\n", text))
    return "".join(out).strip("\n")


def _with_verdict(claim: _Claim, *, marked: bool) -> str:
    """Give a claim with its markers, or the mark that says it has no support."""
    if claim.numbers:
        return with_markers(claim.text, claim.numbers) + claim.tail
    if marked and claim.verdict == "unsupported":
        return claim.text.rstrip() + UNSUPPORTED_MARK + claim.tail
    return claim.text + claim.tail


# What a claim rests on

_DECLINES = re.compile(
    r"(?:\b(?:not|never|nothing|no|none)|n't|n’t)\b[^.!?\n]{0,60}\b(?:cover|mention|specif|stat|address|describ|defin|"
    r"contain|includ|say|said|find|found|provid|explain|document|answer|information|detail|guidance|rule|mention)\w*"
    r"|(?:\bnot|n't|n’t)\s+(?:in|part of|among)\s+(?:these|the|any)\b[^.!?\n]{0,30}\b(?:section|standard|codex|doc)",
    re.IGNORECASE,
)
_ABOUT_SECTIONS = re.compile(
    r"\b(?:codex|section|sections|standards?|documents?|documentation|provided|given|above|handbook|sources?|text|they|"
    r"it|i)\b",
    re.IGNORECASE,
)
# A sentence that lays down something, rather than talking with the asker.
_NORMATIVE = re.compile(
    r"\b(?:must|should|shall|may not|never|always|required?|requires|mandatory|allowed|permitted|forbidden|prohibited|"
    r"at least|at most|no more than|policy|within|limit|maximum|minimum)\b|\d",
    re.IGNORECASE,
)
_CONVERSATION = re.compile(r"\b(?:I|I'll|I’ll|I'm|I’m|me|let's|let’s|would you like)\b|\?\s*$")


def says_uncovered(sentence: str) -> bool:
    """Say whether the sentence says that the sections do not answer."""
    return bool(_DECLINES.search(sentence) and _ABOUT_SECTIONS.search(sentence))


def _declines(claims: Sequence[_Claim]) -> bool:
    """Say whether the reply begins with not having found it, and then claims nothing with a source."""
    prose = [claim for claim in claims if not claim.is_code and claim.gist.stems]
    if not prose or prose[0].verdict == "supported" or not says_uncovered(prose[0].text):
        return False
    return not any(claim.verdict == "supported" and claim.numbers for claim in prose[1:])


def _settle(claim: _Claim, grounds: Sequence[_Ground], other: Gist, *, keep_markers: bool) -> bool:
    """Decide what the claim rests on and correct its markers; say whether it repeats a sentence of a section."""
    if claim.verdict:  # by its quotation
        return False
    cited = [ground for ground in grounds if ground.number in claim.numbers] if keep_markers else []
    was_cited = keep_markers and bool(claim.numbers)
    claim.numbers = []
    # A rule about what is not said or not to be found is no refusal: it repeats a section.
    if says_uncovered(claim.text) and not any(ground.holds(claim) for ground in grounds):
        claim.verdict = "declined"
        return False
    denied = {ground.number for ground in grounds if ground.denies(claim)}
    cited = [ground for ground in cited if ground.number not in denied]
    bearing = [ground.number for ground in cited if ground.support(claim.gist) >= CITED_SUPPORTED]
    if not _wants_support(claim):
        claim.numbers = bearing
        claim.verdict = "supported" if bearing else ""
        return False
    bearing = bearing or [number for number in _bearers(claim, grounds) if number not in denied][:1]
    if bearing:
        claim.verdict = "supported"
        claim.numbers = bearing if was_cited or not keep_markers else []
        return any(ground.holds(claim) for ground in grounds if ground.number in bearing)
    if support(claim.gist, other) < SUPPORTED:
        claim.verdict = "unsupported" if was_cited or denied or _lays_down(claim) else "told" if _tells(claim) else ""
    return False


def _tells(claim: _Claim) -> bool:
    return len(claim.gist.stems) >= 4 and not _CONVERSATION.search(claim.text)


def _wants_support(claim: _Claim) -> bool:
    return len(claim.gist.stems) + len(claim.gist.numbers) >= 2


def _lays_down(claim: _Claim) -> bool:
    prose = re.sub(r"`[^`]*`", " ", _LINE_PREFIX.sub("", claim.text.strip()))
    return bool(_NORMATIVE.search(prose)) and not _CONVERSATION.search(prose)


def _bearers(claim: _Claim, grounds: Sequence[_Ground]) -> list[int]:
    """Give the sections that support the claim though nobody said so, the best first."""
    if len(claim.gist.stems) + len(claim.gist.numbers) < 3:
        return []
    shares = [(ground.support(claim.gist), -ground.number) for ground in grounds]
    return [-number for share, number in sorted(shares, reverse=True) if share >= SUPPORTED]


# Quotations

_QUOTATION = re.compile(
    r"“([^”\n]+)”|„([^“”\n]+)[“”]|«([^»\n]+)»|「([^」\n]+)」|『([^』\n]+)』|‘([^‘\n]+?)’(?!\w)"
    r"|(?<![\w=])\"([^\"\n]+)\"(?!\w)|(?<![\w=/\]])'((?:[^'\n]|(?<=\w)'(?=\w))+)'(?!\w)"
)
_TYPOGRAPHY = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "–": "-", "—": "-", "…": "...", "\u00a0": " "})
_MARKS = re.compile(r"[*_`~|>#\\]+|^\s*(?:[-+]|\d{1,3}[.)])\s+", re.MULTILINE)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")


def _plain(text: str) -> str:
    """Give `text` so that case, white space, Markdown's marks and typography no longer tell apart."""
    text = _LINK.sub(r"\1", text.translate(_TYPOGRAPHY))
    return " ".join(_MARKS.sub(" ", text).split()).casefold().replace(" .", ".").replace(" ,", ",")


def _check_quotations(claim: _Claim, grounds: Sequence[_Ground], other_plain: str) -> bool:
    """Keep quotations that stand in a section, attribute them to it, unquote the others; say whether one stands."""
    stands = False

    def judge(match: re.Match[str]) -> str:
        nonlocal stands
        words = next(group for group in match.groups() if group is not None)
        if len(words.strip()) < LEAST_QUOTATION_CHARS or claim.text[: match.start()].count("`") % 2:
            return match[0]
        holders = [ground.number for ground in grounds if _stands_in(words, ground.plain)]
        if holders:
            stands = True
            kept = [number for number in claim.numbers if number in holders]
            claim.numbers = kept or holders[:1]
            return match[0]
        return match[0] if _stands_in(words, other_plain) else words + FALSE_QUOTATION_MARK

    before = claim.text
    claim.text = _block_quotation(_QUOTATION.sub(judge, claim.text), claim, grounds, other_plain)
    if claim.text != before:
        # Whatever else the sentence says, it rests on words that nobody wrote.
        claim.verdict, claim.numbers = "misquoted", []
    elif stands:
        claim.verdict = "supported"
    return claim.verdict == "supported"


def _stands_in(words: str, plain: str) -> bool:
    wanted = _plain(words).strip(" .,;:!?").removesuffix("...").removeprefix("...").strip(" .,;:")
    return len(wanted) >= LEAST_QUOTATION_CHARS - 2 and wanted in plain


def _block_quotation(text: str, claim: _Claim, grounds: Sequence[_Ground], other_plain: str) -> str:
    """Take the `>` from a block quotation that stands nowhere."""
    lines = text.split("\n")
    marked = [n for n, line in enumerate(lines) if re.match(r"^\s*>\s?\S", line)]
    if not marked:
        return text
    words = " ".join(re.sub(r"^\s*>\s?", "", lines[n]) for n in range(marked[0], len(lines)))
    holders = [ground.number for ground in grounds if _stands_in(words, ground.plain)]
    if holders:
        claim.numbers = [number for number in claim.numbers if number in holders] or holders[:1]
        claim.verdict = "supported"
        return text
    if len(words) < LEAST_QUOTATION_CHARS or _stands_in(words, other_plain):
        return text
    return "\n".join(re.sub(r"^(\s*)>\s?", r"\1", line) for line in lines).rstrip() + FALSE_QUOTATION_MARK


# Sources


def _sources(claims: Sequence[_Claim], grounds: Sequence[_Ground], url: Url) -> Iterator[Source]:
    for ground in grounds:
        citing = [claim for claim in claims if ground.number in claim.numbers]
        if citing:
            section = ground.section
            yield Source(
                ground.number,
                section.id,
                section.document,
                section.heading,
                section.line,
                url(section),
                supporting_quote(section, [claim.text for claim in citing]),
            )


def supporting_quote(section: Section, claims: Sequence[str]) -> str:
    """Give the sentence of the section that supports the claims best, verbatim; the heading where it has no text."""
    candidates = sentences(section.text)
    if not candidates:
        return section.headings[-1] if section.headings else section.title
    best = best_sentence([claim_gist(claim) for claim in claims], candidates) or candidates[0]
    if len(best) <= QUOTE_CHARS:
        return best
    return best[:QUOTE_CHARS].rsplit(None, 1)[0]
