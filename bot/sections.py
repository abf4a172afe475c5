"""Markdown text -> sections with breadcrumbs, anchors and line numbers.

The structure comes from markdown-it-py's block parser, so that a `#` in a fence, a comment, an indented block or front
matter is never a heading. Anchors are those that GitHub makes for the same file.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from markdown_it import MarkdownIt
from markdown_it.token import Token

from bot.front_matter import read_front_matter


@dataclass(frozen=True, slots=True)
class Section:
    """One heading and what stands under it, up to the next heading of any level.

    `document` is the path below the Codex folder with forward slashes; `title` the document's; `headings` the path
    below the title, outermost first (empty for the text before the first heading or under the H1 itself, unless front
    matter gives the document another title). `line` and
    `end_line` count from 1 and are the heading's and the last line's. `text` is the body without the heading.
    `level` is the heading's, 1 to 6, and 0 for the text before the first heading.
    """

    id: str
    document: str
    title: str
    headings: tuple[str, ...]
    anchor: str
    line: int
    end_line: int
    text: str
    level: int = 0

    @property
    def heading(self) -> str:
        """The path below the title, joined with ` > `; the title itself where there is none."""
        return " > ".join(self.headings) or self.title

    @property
    def breadcrumb(self) -> str:
        """Title and headings, outermost first, joined with ` > `."""
        return " > ".join((self.title, *self.headings))


@dataclass(frozen=True, slots=True)
class Document:
    """One file of the Codex. `name` is its path below the folder; `faults` says what could not be read of it."""

    name: str
    title: str
    sections: int
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Parsed:
    """One file, cut up. `aliases` are other words for it that its owner gave.

    `channels` names the rooms it is bound to: None is every room, empty is none.
    """

    document: Document
    sections: tuple[Section, ...]
    aliases: tuple[str, ...] = ()
    channels: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class _Heading:
    """A heading as it stands in the file; lines count from 0. `cuts` is False inside a quotation or a list."""

    level: int
    text: str
    slug: str
    line: int
    body: int
    cuts: bool


_HTML_HEADING = re.compile(r"<h([1-6])\b[^>]*>(.*?)</h\1\s*>", re.IGNORECASE | re.DOTALL)
_HTML_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
_ATTRIBUTES = re.compile(r"\s*(?:\{[#:.][^{}]*\})\s*$")  # kramdown, MkDocs and Docusaurus: `## Title {#id}`
_TEMPLATE = re.compile(r"<%.*?%>|\{\{.*?\}\}|\{%.*?%\}")  # `# <%= page.title %>`: says nothing before it is built
_MDX_COMMENT = re.compile(r"\{/\*.*?\*/\}", re.DOTALL)
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})", re.MULTILINE)


def parse_document(text: str, name: str) -> Parsed:
    """Cut a file's `text` into sections; `name` is its path below the Codex folder."""
    lines = _lines(text)
    matter = read_front_matter(lines)
    source = "\n".join([""] * matter.lines + lines[matter.lines :])
    headings = _headings(source, mdx=name.lower().endswith(".mdx"))
    first = next((heading for heading in headings if heading.cuts and heading.level == 1 and heading.text), None)
    title = matter.title or (first.text if first else "") or _title_from(name)
    sections = tuple(_cut(lines, headings, name, title=title, start=matter.lines, h1=first))
    faults = (f"{name}: {matter.fault}",) if matter.fault else ()
    return Parsed(Document(name, title, len(sections), faults), sections, matter.aliases, matter.channels)


def _lines(text: str) -> list[str]:
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    return text.replace("\0", "\ufffd").split("\n")


def _title_from(name: str) -> str:
    path = PurePosixPath(name)
    stem = path.name.split(".")[0] or path.name
    if stem.lower() in ("index", "readme") and path.parent.name:
        stem = path.parent.name
    return re.sub(r"[-_]+", " ", stem).strip() or path.name


def _parser(*, mdx: bool) -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    # In MDX a component's children are Markdown again; CommonMark would take them for a block of HTML.
    return parser.disable("html_block") if mdx else parser


def _headings(source: str, *, mdx: bool) -> list[_Heading]:
    """Give every heading of the file in order, those inside quotations and lists too: they take part in the anchors."""
    parser = _parser(mdx=mdx)
    if mdx:
        source = _without_mdx_comments(source)
    env: dict[str, object] = {}
    tokens: list[Token] = []
    parser.block.parse(source, parser, env, tokens)
    slugs = _Slugs()
    found: list[_Heading] = []
    for number, token in enumerate(tokens):
        if token.type == "heading_open" and token.map:
            inline = parser.parseInline(tokens[number + 1].content, env)[0].children or []
            slug_text, shown = _texts(inline)
            line, body = token.map
            level = int(token.tag[1])
            found.append(_Heading(level, shown, slugs.make(slug_text), line, body, cuts=token.level == 0))
        elif token.type == "html_block" and token.map:
            found += _html_headings(token, slugs)
    return found


def _without_mdx_comments(source: str) -> str:
    """Blank out `{/* … */}` outside code, keeping every line where it is."""
    out: list[str] = []
    fence = ""
    for part in re.split(r"(^ {0,3}(?:`{3,}|~{3,}).*$)", source, flags=re.MULTILINE):
        mark = _FENCE.match(part)
        if mark and (not fence or part.strip().startswith(fence)):
            fence = "" if fence else mark[1]
        elif not fence:
            part = _MDX_COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), part)
        out.append(part)
    return "".join(out)


def _html_headings(token: Token, slugs: _Slugs) -> Iterator[_Heading]:
    block = _HTML_COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), token.content)
    start = token.map[0] if token.map else 0
    for match in _HTML_HEADING.finditer(block):
        text = " ".join(_TAG.sub("", match[2]).split())
        line = start + block[: match.start()].count("\n")
        end = start + block[: match.end()].count("\n") + 1
        yield _Heading(int(match[1]), text, slugs.make(text), line, end, cuts=token.level == 0 and bool(text))


def _texts(inline: Sequence[Token]) -> tuple[str, str]:
    """Give a heading's text as GitHub takes it for the anchor, and as a person reads it."""
    slug, shown = "", ""
    for token in inline:
        if token.type in ("text", "code_inline", "text_special"):
            slug += token.content
            shown += token.content
        elif token.type == "image":
            shown += token.content
        elif token.type in ("softbreak", "hardbreak"):
            slug += "\n"
            shown += " "
    return slug.strip(), " ".join(_TEMPLATE.sub("", _ATTRIBUTES.sub("", shown)).split())


def github_slug(text: str) -> str:
    """Give the anchor that GitHub makes of a heading's text, before duplicates are numbered."""
    kept = (c for c in text.lower() if c in " -" or unicodedata.category(c) in _IN_ANCHORS)
    return "".join(kept).replace(" ", "-")


_IN_ANCHORS = frozenset(re.findall(r"\w+", "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl Pc"))  # not `No`: of `x²` only the x is kept


class _Slugs:
    """Numbers duplicates as GitHub does: `errors`, `errors-1`, and a heading `Errors-1` after them `errors-1-1`."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def make(self, text: str) -> str:
        base = slug = github_slug(text)
        while slug in self._seen:
            self._seen[base] += 1
            slug = f"{base}-{self._seen[base]}"
        self._seen[slug] = 0
        return slug


def _cut(
    lines: Sequence[str], headings: Sequence[_Heading], name: str, *, title: str, start: int, h1: _Heading | None
) -> Iterator[Section]:
    cutting = [heading for heading in headings if heading.cuts]
    before, end = _body(lines, start, cutting[0].line if cutting else len(lines))
    if before:
        first = next(n for n in range(start, len(lines)) if lines[n].strip())
        yield Section(name, name, title, (), "", first + 1, end, before)
    path: list[_Heading] = []
    for number, heading in enumerate(cutting):
        path = [*(above for above in path if above.level < heading.level), heading]
        below = cutting[number + 1].line if number + 1 < len(cutting) else len(lines)
        text, end = _body(lines, heading.body, below)
        # The first H1 is the document's name; it opens the path only where front matter names the document otherwise.
        shown = tuple(h.text for h in path if h.text and not (h is h1 and h.text == title))
        yield Section(
            f"{name}#{heading.slug}",
            name,
            title,
            shown,
            heading.slug,
            heading.line + 1,
            max(end, heading.body),
            text,
            heading.level,
        )


def _body(lines: Sequence[str], start: int, end: int) -> tuple[str, int]:
    """Give the text of lines `start` to `end` (from 0, exclusive) without blank edges, and its last line from 1."""
    while end > start and not lines[end - 1].strip():
        end -= 1
    while start < end and not lines[start].strip():
        start += 1
    return "\n".join(lines[start:end]), end
