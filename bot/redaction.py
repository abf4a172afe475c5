"""Secrets out of everything that is stored, logged or posted, and hostile characters out of what is shown.

Two layers. The values of our own settings are looked for first, in every shape they are likely to leave in: as they
are, reversed, as base64 or hex, and any of these with other characters in between (line ends, quotes, box drawing).
Then some thirty well-known kinds of token, each by a pattern that begins with a literal, so that a text without that
literal costs one substring search and no pattern can go quadratic.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

MARK = "[secret removed]"

# A line longer than this is cut: what is not scanned must not be kept, and no person reads it.
MAX_LINE_CHARS = 1 << 18

# Shorter values are words that stand in any text; removing them would only make answers unreadable.
_MIN_SECRET_CHARS = 4
_MIN_DISGUISED_CHARS = 8


@dataclass(frozen=True, slots=True)
class Kind:
    """A well-known sort of secret.

    Where a pattern cannot begin with a literal, one of `gates` stands in every text that it matches: looking for those
    first is quicker. Of a pattern with a group named `secret` only that group is removed.
    """

    name: str
    gates: tuple[str, ...]
    pattern: re.Pattern[str]


def _kind(name: str, pattern: str, *gates: str) -> Kind:
    return Kind(name, gates, re.compile(pattern))


# Each begins with its literal: `re` finds that by a memory search. A repetition that may be followed by something else
# either has a fixed upper bound or is begun only where its own characters begin (the lookbehind after the literal).
KINDS: tuple[Kind, ...] = (
    _kind("slack token", r"xox[abeoprs]-[A-Za-z0-9-]{10,250}"),
    _kind("slack export token", r"xoxe\.xox[bp]-\d-[A-Za-z0-9]{100,300}"),
    _kind("slack app token", r"xapp-\d-[A-Za-z0-9-]{10,250}"),
    _kind("slack webhook",
          r"hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9+/]{20,120}"),
    _kind("discord webhook", r"api/webhooks/\d{17,20}/[A-Za-z0-9_-]{60,80}"),
    _kind("discord token",
          r"[MNO](?<![A-Za-z0-9_-].)[A-Za-z0-9_-]{22,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}"),
    _kind("github token", r"gh[oprsu]_[A-Za-z0-9]{36,255}"),
    _kind("github fine-grained token", r"github_pat_[A-Za-z0-9_]{36,255}"),
    _kind("gitlab token", r"gl(?:pat|dt|rt|ptt|soat)-[A-Za-z0-9_.-]{20,255}"),
    # openai, anthropic, openrouter, deepseek; "sk-" also ends words ("risk-…") and begins CSS classes.
    _kind("sk- key", r"sk-(?<![A-Za-z0-9_-]sk-)(?=[A-Za-z0-9_-]{0,60}\d)[A-Za-z0-9_-]{20,250}"),
    _kind("aws access key", r"A(?:KIA|SIA|BIA|CCA)[A-Z2-7]{16}(?![A-Za-z0-9])"),
    _kind("google api key", r"AIza[A-Za-z0-9_-]{35}"),
    _kind("google oauth token", r"ya29\.[A-Za-z0-9_-]{20,2000}"),
    _kind("google client secret", r"GOCSPX-[A-Za-z0-9_-]{28}"),
    _kind("stripe key", r"[prs]k_(?:live|test)_[A-Za-z0-9]{16,250}", "k_live_", "k_test_"),
    _kind("webhook signing secret", r"whsec_[A-Za-z0-9+/=]{24,120}"),
    _kind("sendgrid key", r"SG\.[A-Za-z0-9_-]{20,24}\.[A-Za-z0-9_-]{39,50}"),
    _kind("mailgun key", r"key-[0-9a-f]{32}(?![0-9a-f])"),
    _kind("mailchimp key", r"[0-9a-f](?<![0-9a-f].)[0-9a-f]{31}-us\d{1,2}(?!\w)", "-us"),
    _kind("npm token", r"npm_[A-Za-z0-9]{36}"),
    _kind("pypi token", r"pypi-AgE[A-Za-z0-9_-]{50,1000}"),
    _kind("rubygems key", r"rubygems_[0-9a-f]{48}"),
    _kind("docker token", r"dckr_(?:pat|oat)_[A-Za-z0-9_-]{20,60}"),
    _kind("hugging face token", r"hf_[A-Za-z0-9]{30,60}"),
    _kind("groq, replicate or xai key", r"(?:gsk_|r8_|xai-)[A-Za-z0-9]{36,100}", "gsk_", "r8_", "xai-"),
    _kind("telegram token", r":AA(?<=\d{8}:AA)[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])"),
    _kind("twilio key", r"(?:SK|AC)(?<![A-Za-z0-9]..)[0-9a-f]{32}(?![0-9A-Za-z])", "SK", "AC"),
    _kind("digitalocean token", r"do[opr]_v1_[0-9a-f]{64}"),
    _kind("shopify token", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    _kind("databricks token", r"dapi[0-9a-f]{32}(?:-\d)?(?![0-9a-f])"),
    _kind("vault token", r"hv[bs]\.[A-Za-z0-9_-]{24,300}"),
    _kind("grafana token", r"gl(?:sa|c)_[A-Za-z0-9+/_]{32,400}={0,2}"),
    _kind("linear, notion, figma or postman key",
          r"(?:lin_api_|ntn_|figd_|PMAK-)[A-Za-z0-9_-]{34,70}", "lin_api_", "ntn_", "figd_", "PMAK-"),
    _kind("atlassian token", r"ATATT3[A-Za-z0-9_=-]{60,250}"),
    _kind("new relic key", r"NRAK-[A-Z0-9]{27}"),
    _kind("sentry token", r"sntry[su]_[A-Za-z0-9+/=_-]{40,400}"),
    _kind("azure storage key", r"AccountKey=(?P<secret>[A-Za-z0-9+/]{86}==)"),
    _kind("age secret key", r"AGE-SECRET-KEY-1[0-9A-Z]{58}"),
    _kind("json web token",
          r"eyJ(?<![A-Za-z0-9_-]eyJ)[A-Za-z0-9_-]{10,2000}\.eyJ[A-Za-z0-9_-]{10,4000}\.[A-Za-z0-9_-]{10,1000}"),
    # With its end, whatever stands between; without (the output was clipped), as far as it looks like base64.
    _kind("private key",
          r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:"
          r"(?:[^-]|-(?!----)){16,20000}-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
          r"|(?:\\n|\s|[A-Z][A-Za-z-]{2,20}: ?[^\n\\]{1,60}(?:\\n|\n)){0,12}"
          r"[A-Za-z0-9+/]{40}[A-Za-z0-9+/=\s\\]{0,20000})"),
    _kind("password in an address", r"://[^\s:/@'\"<>]{0,64}:(?P<secret>[^\s/@'\"<>$]{3,128})@"),
    _kind("authorization header",
          r"(?:[Bb]earer|[Bb]asic)\s{1,3}(?P<secret>(?=[A-Za-z_./+~=-]{0,60}\d)[A-Za-z0-9_./+~-]{20,2000}={0,2})",
          "earer", "asic"),
)  # fmt: skip

# `password = "…"`: the value is looked for first, since a sign is quicker to find than one of many names.
_ASSIGNED = re.compile(r"[:=][ \t]{0,4}['\"]?(?P<secret>[A-Za-z0-9+/_~!@#$%^&*-]{16,200}={0,2})(?=[\\'\"\s,;<>)}\]]|$)")
_SECRET_NAME = re.compile(
    r"(?:passw(?:or)?d|passphrase|secret|token|(?:api|access|auth|private|signing|account)[_-]?key|credentials?)"
    r"[\\'\"]{0,2}[ \t]{0,4}:?$",
    re.IGNORECASE,
)


class Redactor:
    """Give a text with every secret replaced by a mark. Pure, total, and as safe to call twice as once."""

    def __init__(self, secrets: Sequence[str]) -> None:
        known = sorted({s.strip() for s in secrets if len(s.strip()) >= _MIN_SECRET_CHARS}, key=len, reverse=True)
        self._short = tuple(_as_word(s) for s in known if len(_squeezed(s)) < _MIN_DISGUISED_CHARS)
        self._long = tuple(s for s in known if len(_squeezed(s)) >= _MIN_DISGUISED_CHARS)
        self._disguises = tuple(dict.fromkeys(d for s in self._long for d in _disguises(s)))

    def __repr__(self) -> str:
        return "Redactor(…)"

    def __call__(self, text: str) -> str:
        return _without_tokens(self._without_own(_cut(well_formed(text))))

    def draft(self, text: str) -> str:
        """Give a text that is still being written: also without what may be the beginning of a secret at its end."""
        return self._without_beginning(self(text))

    def _without_own(self, text: str) -> str:
        for secret in self._long:
            text = text.replace(secret, MARK)
        for word in self._short:
            text = word.sub(MARK, text)
        if self._disguises:
            squeezed = _squeezed(text)
            for disguise in self._disguises:
                if disguise in squeezed:
                    text = _spread_out(disguise).sub(MARK, text)
        return text

    def _without_beginning(self, text: str) -> str:
        if opened := _OPENED.search(text, max(0, len(text) - 400)):
            text = text[: opened.start()]
        tail = text[-400:]
        for secret in self._long:
            for length in range(min(len(secret), len(tail)) - 1, 3, -1):
                if tail.endswith(secret[:length]):
                    return text[:-length]
        return text


# A token that has begun and may go on with the next piece of a stream.
_OPENED = re.compile(
    r"(?:xox[abeoprs]-|xapp-|gh[oprsu]_|github_pat_|glpat-|sk-|AKIA|AIza|ya29\.|GOCSPX-|[prs]k_(?:live|test)_|SG\.|npm_"
    r"|pypi-AgE|hf_|gsk_|eyJ|hvs\.|-----BEGIN )(?:[^\s`\"'<>)]*|[A-Z0-9 ]*PRIVATE KEY[^`]*)\Z"
)


def _cut(text: str) -> str:
    if len(text) <= MAX_LINE_CHARS:
        return text
    return "\n".join(
        line if len(line) <= MAX_LINE_CHARS else f"{line[:MAX_LINE_CHARS]} [the rest of this line was left out]"
        for line in text.split("\n")
    )


def _squeezed(text: str) -> bytes:
    """Give only the letters and digits: what stays when a secret was broken over lines or put together from pieces."""
    return text.encode("utf-8", "ignore").translate(None, _NOT_ALPHANUMERIC)


_NOT_ALPHANUMERIC = bytes(b for b in range(256) if not chr(b).isalnum() or b > 127)


def _disguises(secret: str) -> Iterator[bytes]:
    """Give the squeezed shapes in which a secret may leave."""
    raw = secret.encode()
    shapes = [secret, secret[::-1], raw.hex(), raw.hex().upper()]
    for offset in range(3):  # what stands before it moves the secret against base64's groups of three bytes
        encoded = base64.b64encode(b"\0" * offset + raw).decode()
        # The first and last characters also hold bits of the neighbours, so they are not the secret's own.
        shapes.append(encoded[(0, 2, 3)[offset] : len(encoded) - (0, 3, 2)[(offset + len(raw)) % 3]])
    for shape in shapes:
        squeezed = _squeezed(shape)
        if len(squeezed) >= _MIN_DISGUISED_CHARS:
            yield squeezed


@lru_cache(maxsize=256)
def _spread_out(disguise: bytes) -> re.Pattern[str]:
    """Match the letters and digits of `disguise` with anything else between them."""
    return re.compile("[^A-Za-z0-9]*".join(disguise.decode("ascii")))


def _as_word(secret: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(secret)}(?!\w)")


def _without_tokens(text: str) -> str:
    for kind in KINDS:
        if not kind.gates or any(gate in text for gate in kind.gates):
            text = kind.pattern.sub(_marked, text)
    return _ASSIGNED.sub(_marked_if_named, text)


def _marked(match: re.Match[str]) -> str:
    """Give the match with its secret part, or all of it, replaced by the mark."""
    if "secret" not in match.re.groupindex:
        return MARK
    start, end = match.start("secret") - match.start(), match.end("secret") - match.start()
    return match[0][:start] + MARK + match[0][end:]


def _marked_if_named(match: re.Match[str]) -> str:
    before = match.string[max(0, match.start() - 40) : match.start()]
    return _marked(match) if _SECRET_NAME.search(before) and _looks_random(match["secret"]) else match[0]


def _looks_random(value: str) -> bool:
    """Tell chance from words: digits among the letters, and the sort of character changing often."""
    sorts = ["d" if c.isdigit() else "u" if c.isupper() else "l" if c.islower() else "s" for c in value.rstrip("=")]
    changes = sum(a != b for a, b in pairwise(sorts))
    return sorts.count("d") >= 2 and sorts[0] != "s" and changes >= 0.3 * len(sorts)


# What a terminal would obey rather than show (ECMA-48). Strings (title, clipboard, link) end at BEL or ST; one without
# an end loses only its introducer, so that nothing can hide all that follows.
_CONTROL = re.compile(
    r"\r\n?|[\u2028\u2029]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x80-\x9f]*(?:\x07|\x1b\\|\x9c)"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]"
    # soft hyphen, bidi controls, zero-width, invisible operators, fillers, variation selectors but the emoji's, tags
    r"|[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    r"\ufe00-\ufe0d\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]"
)

_SHOWABLE = bytes([9, 10, *range(32, 127)])


def well_formed(text: str) -> str:
    """Give text that can be stored and sent: halves of a surrogate pair are joined, and replaced where one is alone.

    JSON can carry one (`"\\ud83d"`): a server cuts a character between two pieces, a client cuts a long text.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def neutralised(text: str) -> str:
    """Give text that is safe to show: no escape sequence, no control but newline and tab, nothing invisible.

    A carriage return becomes a newline. Calling it twice changes nothing more.
    """
    if text.isascii() and not text.encode("ascii").translate(None, _SHOWABLE):
        return text
    return _CONTROL.sub(lambda match: "\n" if match[0][0] in "\r\u2028\u2029" else "", text)


_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def painted(text: str, plain: str) -> str:
    """Give `text` with its colour sequences and no other, if without them it is `plain` to the letter; else ''.

    What cannot be matched is shown without colours: a sequence may stand where it hides something.
    """
    if not _COLOUR.search(text):
        return ""
    at, kept = 0, list[str]()
    for colour in _COLOUR.finditer(text):
        kept += [neutralised(text[at : colour.start()]), colour[0]]
        at = colour.end()
    shown = "".join([*kept, neutralised(text[at:])])
    return shown if _COLOUR.sub("", shown) == plain else ""


def spelled_out(text: str) -> str:
    """Give text as `neutralised` would, but with each such character shown as `⟨U+202E⟩`.

    For a command that a person is to judge: what is shown must be what runs.
    """
    return _CONTROL.sub(lambda match: "".join(f"⟨U+{ord(c):04X}⟩" if _CONTROL.match(c) else c for c in match[0]), text)
