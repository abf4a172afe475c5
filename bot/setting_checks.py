"""What is wrong with a setting's value, said so that its name can stand before it: "must be at least 1, not 0"."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

Check = Callable[[Any], str | None]


def one_of(*words: str) -> Check:
    return lambda value: None if value in words else f"must be one of {', '.join(words)}, not {value!r}"


def at_least(least: float) -> Check:
    return lambda value: None if value >= least else f"must be at least {least:g}, not {value:g}"


def port(value: int) -> str | None:
    return None if 0 <= value <= 65_535 else f"must be 0 to 65535, not {value}"


def starts_with(*prefixes: str) -> Check:
    """Check a token's shape by prefix only; the token itself is never repeated."""
    return lambda value: None if not value or value.startswith(prefixes) else f"must begin with {' or '.join(prefixes)}"


def web_address(value: str) -> str | None:
    """Check how an address begins; it is never repeated, since a password may stand in it."""
    ok = not value or value.startswith(("http://", "https://"))
    return None if ok else "must begin with http:// or https://"


def model_address(value: str) -> str | None:
    if value.split("?")[0].rstrip("/").endswith("/chat/completions"):
        return "must end before /chat/completions (usually in /v1)"
    if value == "local" or not value:
        return None
    try:
        parts = urlsplit(value)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that do not close, a port that is no number
        has_host = False
    return web_address(value) or (None if has_host else "must be a web address such as https://host/v1")


ENDPOINT_KEYS = ("url", "name", "key", "profile", "context_tokens", "max_reply_tokens", "first_token_s")


def endpoints_fault(value: Mapping[str, Any] | None) -> str | None:
    """Say what is wrong with the `[endpoints.NAME]` tables."""
    for name, table in (value or {}).items():
        if name in ("model", "local", "offline"):
            return f"must not call an endpoint {name!r}: that name has a meaning of its own"
        if not isinstance(table, dict) or not isinstance(table.get("url"), str):
            return f"needs a url in [endpoints.{name}]"
        if unknown := [key for key in table if key not in ENDPOINT_KEYS]:
            return f"has an unknown key {unknown[0]!r} in [endpoints.{name}]{did_you_mean(unknown[0], ENDPOINT_KEYS)}"
        fault = model_address(table["url"])
        if fault or table["url"] == "local":
            return f"has a wrong url in [endpoints.{name}]: it {fault or 'must be an address'}"
    return None


def rooms_fault(value: Mapping[str, Any] | None) -> str | None:
    """Say what is wrong with the `[codex_rooms]` table."""
    wrong = [room for room, codex in (value or {}).items() if not isinstance(codex, str) or not codex or "/" in codex]
    return f"must map {wrong[0]!r} to the name of a subfolder" if wrong else None


def unreadable(error: Exception) -> str:
    """Say in a few words why a file of settings cannot be read."""
    match error:
        case UnicodeDecodeError():
            return f"it is not UTF-8 (byte {error.start})"
        case OSError():
            return error.strerror or str(error)
        case _:
            return str(error)


def did_you_mean(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else "; `duet config` lists them all."
