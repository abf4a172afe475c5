"""The block of settings at the top of a Markdown file: title, aliases, and the channels a document is bound to.

YAML between `---` lines (GitHub, Jekyll, Docusaurus) or TOML between `+++` lines (Hugo).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import yaml

from bot.redaction import well_formed

LIMIT_LINES = 200  # a rule at the top of a page is no front matter just because another one follows far below

_CLOSERS = {"---": ("---", "..."), "+++": ("+++",)}


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """What a file says about itself. `lines` is how many lines the block takes, 0 where there is none.

    `channels` is None where the document is for every room; empty means for none (what was written made no sense,
    and a document that somebody meant to restrict must not be shown to all).
    """

    lines: int = 0
    title: str = ""
    aliases: tuple[str, ...] = ()
    channels: tuple[str, ...] | None = None
    fault: str = ""


def read_front_matter(lines: Sequence[str]) -> FrontMatter:
    """Give what the front matter at the top of `lines` says."""
    fence = lines[0].rstrip() if lines else ""
    closers = _CLOSERS.get(fence)
    if closers is None:
        return FrontMatter()
    end = next((n for n, line in enumerate(lines[1:LIMIT_LINES], 1) if line.rstrip() in closers), None)
    if end is None:
        return FrontMatter()
    block = "\n".join(lines[1:end])
    try:
        table = yaml.safe_load(block) if fence == "---" else tomllib.loads(block)
    except (yaml.YAMLError, tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
        # Without a table nobody can say that the document was not restricted: only the word itself decides.
        shut = () if "channels" in block else None
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return FrontMatter(end + 1, channels=shut, fault=f"its front matter cannot be read ({reason})")
    if not isinstance(table, Mapping):
        # `---` around prose is two thematic breaks, not settings.
        return FrontMatter() if table is not None else FrontMatter(end + 1)
    title = table.get("title")
    return FrontMatter(
        end + 1,
        title=_text(title) if isinstance(title, (str, int, float)) else "",
        aliases=_words(table.get("aliases")),
        channels=_words(table["channels"]) if "channels" in table else None,
    )


def _words(value: object) -> tuple[str, ...]:
    """Give a list of texts from a list, or from one text with commas; empty for anything else."""
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, list):
        return ()
    texts = (_text(item) for item in value if isinstance(item, (str, int)))
    return tuple(text for text in texts if text)


def _text(value: object) -> str:
    return well_formed(" ".join(str(value).split()))  # YAML's escapes can make half a character
