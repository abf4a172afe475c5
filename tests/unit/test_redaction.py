"""Secrets out of text: our own in every disguise, well-known kinds by shape, and little else."""

from __future__ import annotations

import base64
import json
import random
import string
import sysconfig
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.redaction import MARK, MAX_LINE_CHARS, Redactor, neutralised, painted, spelled_out

OWN = "xoxb-2048-7791-Kq3vZr8sWm1TyLp6"
PLAIN = "pq7Rb2nX0mWz"  # an HTTP token of no known shape

ALNUM = string.ascii_letters + string.digits
URL64 = ALNUM + "-_"
HEX = "0123456789abcdef"


def tokens() -> list[tuple[str, str]]:
    """Make three tokens of each kind, from the issuers' descriptions and not from our patterns."""
    chance = random.Random(7)

    def some(alphabet: str, length: int) -> str:
        return "".join(chance.choices(alphabet, k=length))

    def pem(word: str) -> str:
        body = "\n".join(textwrap.wrap(base64.b64encode(chance.randbytes(600)).decode(), 64))
        return f"-----BEGIN {word}PRIVATE KEY-----\n{body}\n-----END {word}PRIVATE KEY-----"

    def jwt() -> str:
        def part(value: object) -> str:
            return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

        return f"{part({'alg': 'HS256'})}.{part({'sub': some(HEX, 12), 'iat': 1})}.{some(URL64, 43)}"

    makers = {
        "slack bot": lambda: f"xoxb-{some(string.digits, 12)}-{some(string.digits, 13)}-{some(ALNUM, 24)}",
        "slack user": lambda: f"xoxp-{some(string.digits, 12)}-{some(string.digits, 12)}-{some(HEX, 32)}",
        "slack app": lambda: f"xapp-1-A{some(string.digits, 10)}-{some(string.digits, 13)}-{some(HEX, 64)}",
        "slack webhook": lambda: (
            f"https://hooks.slack.com/services/T{some(ALNUM, 8)}/B{some(ALNUM, 8)}/{some(ALNUM, 24)}"
        ),
        "discord bot": lambda: f"M{some(ALNUM, 25)}.{some(URL64, 6)}.{some(URL64, 38)}",
        "discord webhook": lambda: f"https://discord.com/api/webhooks/{some(string.digits, 18)}/{some(URL64, 68)}",
        "github classic": lambda: f"gh{chance.choice('pousr')}_{some(ALNUM, 36)}",
        "github fine-grained": lambda: f"github_pat_{some(ALNUM, 22)}_{some(ALNUM, 59)}",
        "gitlab": lambda: f"glpat-{some(URL64, 20)}",
        "openai": lambda: f"sk-proj-{some(URL64, 74)}T3BlbkFJ{some(URL64, 74)}",
        "openai old": lambda: f"sk-{some(ALNUM, 20)}T3BlbkFJ{some(ALNUM, 20)}",
        "anthropic": lambda: f"sk-ant-api03-{some(URL64, 93)}AA",
        "openrouter": lambda: f"sk-or-v1-{some(HEX, 64)}",
        "aws": lambda: f"AKIA{some(string.ascii_uppercase + '234567', 16)}",
        "google api": lambda: f"AIza{some(URL64, 35)}",
        "google oauth": lambda: f"ya29.{some(URL64, 120)}",
        "stripe": lambda: f"sk_live_{some(ALNUM, 24)}",
        "sendgrid": lambda: f"SG.{some(URL64, 22)}.{some(URL64, 43)}",
        "mailchimp": lambda: f"{some(HEX, 32)}-us{chance.randint(1, 20)}",
        "mailgun": lambda: f"key-{some(HEX, 32)}",
        "npm": lambda: f"npm_{some(ALNUM, 36)}",
        "pypi": lambda: f"pypi-AgEIcHlwaS5vcmc{some(URL64, 80)}",
        "docker": lambda: f"dckr_pat_{some(URL64, 27)}",
        "hugging face": lambda: f"hf_{some(string.ascii_letters, 34)}",
        "telegram": lambda: f"{some(string.digits, 10)}:AA{some(URL64, 33)}",
        "twilio": lambda: f"SK{some(HEX, 32)}",
        "digitalocean": lambda: f"dop_v1_{some(HEX, 64)}",
        "shopify": lambda: f"shpat_{some(HEX, 32)}",
        "databricks": lambda: f"dapi{some(HEX, 32)}",
        "vault": lambda: f"hvs.{some(URL64, 90)}",
        "grafana": lambda: f"glsa_{some(ALNUM, 32)}_{some(HEX, 8)}",
        "json web token": jwt,
        "rsa key": lambda: pem("RSA "),
        "openssh key": lambda: pem("OPENSSH "),
        "plain key": lambda: pem(""),
        "address": lambda: f"postgres://duet:{some(ALNUM, 16)}@db.example/duet",
        "bearer": lambda: f"Authorization: Bearer {some(URL64, 39)}7",
        "assignment": lambda: f'client_secret = "{some(ALNUM, 32)}"',
    }
    return [(kind, make()) for kind, make in makers.items() for _ in range(3)]


def test_at_least_95_percent_of_tokens_of_the_known_kinds_are_removed() -> None:
    redact = Redactor([])
    made = tokens()
    kept = [kind for kind, token in made if MARK not in redact(f"before {token}\nafter")]
    assert len(made) >= 60
    assert len(kept) <= 0.05 * len(made), kept


@pytest.mark.parametrize(
    "around", ["{}", "here it is: {}.", "KEY={}\nX=1", '{{"key":"{}"}}', "`{}`", "<{}>", "({}),"], ids=str
)
def test_a_token_is_found_whatever_stands_around_it(around: str) -> None:
    redact = Redactor([])
    token = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
    assert token not in redact(around.format(token))
    assert MARK in redact(around.format(token))


def test_hardly_any_line_of_two_megabytes_of_code_is_touched() -> None:
    paths = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")) + sorted(
        Path(sysconfig.get_paths()["stdlib"]).glob("*/*.py")
    )
    code, size = [], 0
    for path in paths:
        code.append(path.read_text("utf-8", errors="replace"))
        size += len(code[-1])
        if size >= 2_000_000:
            break
    lines = "\n".join(code).split("\n")
    redact = Redactor([])
    touched = sum(redact(line) != line for line in lines)
    assert size >= 2_000_000
    assert touched <= 0.01 * len(lines)


PROSE = [
    "The risk-assessment-for-the-2nd-quarter is due.",
    "password: see the vault",
    "Set DUET_MODEL_KEY=… and token = get_token_from_environment()",
    "secretName: my-service-credentials-v2",
    "git show 4f1c2d9aa03b7be2f0a9d4f6c1be8d3a7f5c2e10",
    "https://larkfield.example/docs#hotfix-branches and user@example.com",
    "urn:uuid:123e4567-e89b-12d3-a456-426614174000",
    "-----BEGIN PRIVATE KEY----- is how such a file begins.",
    "https://${USER}:${TOKEN}@example.com/",
    "max_tokens: 4096, tokenizer = bert-base-uncased",
]


@pytest.mark.parametrize("sentence", PROSE)
def test_ordinary_text_stays_as_it_is(sentence: str) -> None:
    assert Redactor([OWN, PLAIN])(sentence) == sentence


DISGUISES = {
    "as it is": OWN,
    "reversed": OWN[::-1],
    "base64": base64.b64encode(OWN.encode()).decode(),
    "base64 of a line": base64.b64encode(f"SLACK_BOT_TOKEN={OWN}\n".encode()).decode(),
    "base64, moved by one": base64.b64encode(f"k{OWN}".encode()).decode(),
    "base64, moved by two": base64.b64encode(f"ke{OWN}zz".encode()).decode(),
    "base64 for addresses": base64.urlsafe_b64encode(OWN.encode()).decode(),
    "base64 in lines": "\n".join(textwrap.wrap(base64.b64encode(f"{OWN} and {OWN}".encode()).decode(), 20)),
    "hex": OWN.encode().hex(),
    "HEX": OWN.encode().hex().upper(),
    "over two lines": f"{OWN[:15]}\n{OWN[15:]}",
    "one character a line": "\n".join(OWN),
    "spaced": " ".join(OWN),
    "quoted lines": f"> {OWN[:9]}\n> {OWN[9:20]}\n> {OWN[20:]}",
    "put together": f'"{OWN[:12]}" + "{OWN[12:]}"',
    "zero width": "\u200b".join(OWN),
    "boxed": "│ " + OWN[:16] + " │\n│ " + OWN[16:] + " │",
    "in JSON": json.dumps({"t": OWN + "\n"}),
}


@pytest.mark.parametrize("disguise", DISGUISES.values(), ids=DISGUISES.keys())
def test_an_own_secret_is_removed_in_every_disguise(disguise: str) -> None:
    out = Redactor([PLAIN, OWN])(f"It is {disguise} as you wished.")
    assert MARK in out
    squeezed = "".join(c for c in out if c.isalnum())
    for whole in (OWN, OWN[::-1], OWN.encode().hex(), OWN.encode().hex().upper()):
        tail = "".join(c for c in whole if c.isalnum())[-14:]
        assert tail not in squeezed
    assert base64.b64encode(OWN.encode()).decode()[4:20] not in squeezed
    assert out.startswith("It is")
    assert out.endswith("as you wished.")


@given(st.text(st.characters(codec="utf-8"), max_size=200), st.text(st.characters(codec="utf-8"), max_size=200))
def test_an_own_secret_never_passes_whatever_is_around_it(before: str, after: str) -> None:
    out = Redactor([PLAIN, OWN])(before + PLAIN + after + OWN)
    assert PLAIN not in out
    assert OWN not in out


@given(st.text(max_size=400))
def test_redacting_is_total_and_twice_is_as_once(text: str) -> None:
    redact = Redactor([OWN])
    assert redact(redact(text)) == redact(text)


@given(st.data())
def test_however_a_reply_is_cut_into_pieces_no_draft_shows_a_part_of_a_secret(data: st.DataObject) -> None:
    redact = Redactor([PLAIN])
    text = f"The token is {PLAIN}, and the other is ghp_{'aB3dE6gH9j' * 4}. Done."
    end = data.draw(st.integers(0, len(text)))
    draft = redact.draft(text[:end])
    assert PLAIN[:5] not in draft
    assert "aB3d" not in draft


def test_a_finished_draft_loses_nothing() -> None:
    assert Redactor([PLAIN]).draft("All is well, pq.") == "All is well, pq."


def test_a_short_secret_is_removed_as_a_word_only() -> None:
    redact = Redactor(["duet"])
    assert redact("token duet, duets stay") == f"token {MARK}, duets stay"


def test_a_secret_of_three_characters_leaves_text_readable() -> None:
    assert Redactor(["abc", ""])("abc alphabet") == "abc alphabet"


def test_a_private_key_whose_end_was_clipped_is_removed() -> None:
    body = "\n".join(textwrap.wrap(base64.b64encode(bytes(range(256)) * 2).decode(), 64))
    out = Redactor([])(f"$ cat key\n-----BEGIN OPENSSH PRIVATE KEY-----\n{body}")
    assert out == f"$ cat key\n{MARK}"


def test_an_encrypted_private_key_with_headers_is_removed() -> None:
    body = "\n".join(textwrap.wrap(base64.b64encode(bytes(300)).decode(), 64))
    key = f"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,AB12\n\n{body}"
    assert Redactor([])(key) == MARK
    assert Redactor([])(key + "\n-----END RSA PRIVATE KEY-----\nrest") == f"{MARK}\nrest"


def test_a_line_too_long_to_scan_is_cut_and_says_so() -> None:
    out = Redactor([])("a" * (MAX_LINE_CHARS + 50) + "\nnext line")
    assert out == "a" * MAX_LINE_CHARS + " [the rest of this line was left out]\nnext line"


def test_nothing_secret_shows_in_the_redactor_itself() -> None:
    assert OWN not in repr(Redactor([OWN]))


HOSTILE = {
    "colour": "\x1b[31mred\x1b[0m",
    "title": "\x1b]0;owned\x07",
    "clipboard": "\x1b]52;c;cm0gLXJmIC8=\x1b\\",
    "link": "\x1b]8;;https://evil.example\x1b\\text\x1b]8;;\x1b\\",
    "dcs": "\x1bP+q544e\x1b\\",
    "apc": "\x1b_Gi=1\x1b\\",
    "c1 csi": "\x9b2J",
    "c1 osc": "\x9d0;owned\x9c",
    "clear": "\x1bc",
    "charset": "\x1b(0lqqk\x1b(B",
    "nested": "\x1b\x1b[[31m",
    "unended": "\x1b]0;no end",
    "bell, backspace, delete": "a\x07b\x08c\x7fd",
    "null": "a\x00b",
    "bidi": "abc\u202edef\u2066x\u2069",
    "zero width": "a\u200bb\u2060c\ufeffd",
    "tags": "a" + "".join(chr(0xE0000 + ord(c)) for c in "rm -rf"),
    "surrogate": "a\ud800b",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_nothing_that_a_terminal_obeys_or_an_eye_misses_is_left(text: str) -> None:
    clean = neutralised(text)
    assert all(c in "\n\t" or c.isprintable() for c in clean)
    assert neutralised(clean) == clean


@given(st.text(st.sampled_from("\x1b[]0;mP\\\x07\x9b\x9da\u202e\u200b\r\n"), max_size=40))
def test_no_arrangement_of_escapes_survives(text: str) -> None:
    clean = neutralised(text)
    assert not set(clean) & set("\x1b\x07\x9b\x9d\u202e\u200b\r")


def test_an_escape_without_an_end_hides_nothing_that_follows() -> None:
    assert neutralised("\x1b]0;the rest is shown") == "0;the rest is shown"


def test_plain_text_newlines_tabs_and_emoji_stay() -> None:
    text = "Grüße, 你好 ✂️\n\tindented\n"
    assert neutralised(text) == text


def test_a_carriage_return_becomes_a_new_line() -> None:
    assert neutralised("10 %\r20 %\r\ndone") == "10 %\n20 %\ndone"


def test_a_command_to_be_judged_shows_what_would_be_hidden() -> None:
    assert spelled_out("ls \u202e\x1b[2K; rm\r") == "ls ⟨U+202E⟩⟨U+001B⟩[2K; rm⟨U+000D⟩"


def test_colours_are_kept_and_every_other_sequence_goes() -> None:
    text = "\x1b[31mred\x1b[0m \x1b]0;title\x07plain\x1b[2J"
    assert painted(text, neutralised(text)) == "\x1b[31mred\x1b[0m plain"


def test_colours_that_cannot_be_matched_are_left_out() -> None:
    assert painted("no colours", "no colours") == ""
    assert painted("\x1b[31msecret", "[secret removed]") == ""
