"""What an endpoint said went wrong, whatever its shape -> one ModelError: a sentence for the room, a line for the log.

The room's sentence is always ours; what the endpoint wrote goes to the log alone, on one line, clipped, without markup,
keys or account ids.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from bot.errors import (
    ContextTooLong,
    ModelBusy,
    ModelError,
    ModelGarbled,
    ModelQuota,
    ModelRefused,
)

LINE_CHARS = 300
Redact = Callable[[str], str]

# https://developers.cloudflare.com/workers-ai/platform/errors
_QUOTA_CODES = {"3036", "insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "quota_exceeded"}
_NO_MODEL_CODES = {"5007", "3042", "model_not_found", "not_found_error"}
_CONTEXT_CODES = {"context_length_exceeded", "exceed_context_size_error", "3006", "request_too_large"}
_BUSY_CODES = {"3040", "3007", "3008", "7009", "rate_limit_exceeded", "overloaded_error", "unavailable_error"}
_KEY_CODES = {"3023", "3041", "5016", "5018", "10000", "invalid_api_key", "authentication_error", "permission_error"}

_CONTEXT_WORDS = re.compile(
    r"context (?:length|size|window)|maximum context|prompt is too long|too many (?:input )?tokens|input is too long",
    re.I,
)
_QUOTA_WORDS = re.compile(r"\bquota\b|billing|credit balance|daily (?:free )?(?:allocation|limit)|neurons", re.I)
_NO_MODEL_WORDS = re.compile(
    r"no such model|model\b.{0,80}?(?:not found|does(?: not|n't) exist|not (?:a )?valid|unknown)|unknown model", re.I
)
_LIMIT = re.compile(r"(?:context (?:length|size|window)(?: of)?(?: is)?|n_ctx\D{0,5})\D{0,12}(\d{3,7})", re.I)
_MARKUP = re.compile(r"<(?:script|style)\b.*?</(?:script|style)>|<[^>]{0,500}>", re.I | re.S)
_ACCOUNT = re.compile(r"(?i)(?<=accounts/)[\w-]{6,}|\b[0-9a-f]{32}\b")


class ModelLoading(ModelBusy):
    """The endpoint is still reading its weights: ask again soon, and again."""


class RequestRefused(ModelRefused):
    """The request itself was not accepted: perhaps one of its optional fields."""


@dataclass(frozen=True, slots=True)
class Complaint:
    """What could be read of an error, from any of its shapes; each field may be empty."""

    message: str = ""
    code: str = ""
    kind: str = ""
    context_tokens: int | None = None


def complaint_of(data: object) -> Complaint | None:
    """Find the error in decoded JSON: OpenAI's, Cloudflare's, FastAPI's, a bare string. None where there is none."""
    if not isinstance(data, dict):
        return None
    errors = data.get("errors")
    if isinstance(errors, list) and errors:
        return _described(errors[0])
    if data.get("error"):
        return _described(data["error"], beside=data)
    if "detail" in data:
        return _described(data["detail"])
    if data.get("success") is False or data.get("object") == "error":
        return _described(data)
    return None


def _described(error: object, *, beside: Mapping[str, object] | None = None) -> Complaint:
    if isinstance(error, list):
        return _described(error[0]) if error else Complaint()
    if not isinstance(error, dict):
        kind = str((beside or {}).get("type") or "")
        return Complaint(str(error), kind=kind)
    message = error.get("message") or error.get("msg") or error.get("detail") or error.get("error") or ""
    n_ctx = error.get("n_ctx")
    return Complaint(
        str(message) or json.dumps(error)[:LINE_CHARS],
        str(error.get("code") or ""),
        str(error.get("type") or ""),
        n_ctx if isinstance(n_ctx, int) else None,
    )


def refused(status: int, headers: Mapping[str, str], body: str, *, now: float, redact: Redact) -> ModelError:
    """Give the error of an HTTP answer that is not 200. `now` is UTC seconds, for a `Retry-After` that is a date."""
    try:
        complaint = complaint_of(json.loads(body))
    except ValueError:
        complaint = None
    complaint = complaint or Complaint(body)
    detail = f"HTTP {status} {complaint.code or complaint.kind}: {one_line(complaint.message, redact)}"
    return _classified(status, complaint, retry_after_s=retry_after_s(headers, now=now), detail=detail)


def complained(complaint: Complaint, *, redact: Redact) -> ModelError:
    """Give the error that stood inside an answer of status 200."""
    status = int(complaint.code) if re.fullmatch(r"[45]\d\d", complaint.code) else 0
    detail = f"error in a 200 answer, {complaint.code or complaint.kind}: {one_line(complaint.message, redact)}"
    return _classified(status, complaint, retry_after_s=None, detail=detail)


def _classified(status: int, said: Complaint, *, retry_after_s: float | None, detail: str) -> ModelError:
    words = {said.code, said.kind}
    if (
        words & _CONTEXT_CODES
        or status == 413
        or (status in (0, 400, 422, 500) and _CONTEXT_WORDS.search(said.message))
    ):
        limit = said.context_tokens or _named_limit(said.message)
        return ContextTooLong(
            "The conversation is too long for the language model.", context_tokens=limit, detail=detail
        )
    is_spent = words & _QUOTA_CODES or (_QUOTA_WORDS.search(said.message) and retry_after_s is None)
    if status == 402 or words & _QUOTA_CODES or (status in (0, 403, 429) and is_spent):
        return ModelQuota("The language model's allowance is used up for now.", detail=detail)
    if "loading model" in said.message.lower():
        return ModelLoading("The language model is still starting.", retry_after_s=1.0, detail=detail)
    if status in (401, 403, 407) or words & _KEY_CODES:
        return ModelRefused(
            "The language model's server did not accept the key. Whoever runs Duet should check DUET_MODEL_KEY.",
            detail=detail,
        )
    if words & _NO_MODEL_CODES or (status in (0, 400, 404, 422) and _NO_MODEL_WORDS.search(said.message)):
        return ModelRefused(
            "The language model's server does not know this model. Whoever runs Duet should check DUET_MODEL.",
            detail=detail,
        )
    if status == 429 or words & _BUSY_CODES or status in (408, 409, 425):
        return ModelBusy(
            "The language model is busy. Try again in a moment.", retry_after_s=retry_after_s, detail=detail
        )
    if status >= 500:
        return ModelBusy(
            "The language model's server had a fault. Try again in a moment.",
            retry_after_s=retry_after_s,
            detail=detail,
        )
    if 300 <= status < 400 or status in (404, 405, 410):
        return ModelRefused(
            "There is no language model at the configured address. Whoever runs Duet should check DUET_MODEL_URL.",
            detail=detail,
        )
    if status:
        return RequestRefused("The language model's server did not accept the request.", detail=detail)
    return ModelGarbled("The language model's server reported a fault while it answered.", detail=detail)


def _named_limit(message: str) -> int | None:
    named = _LIMIT.search(message)
    return int(named[1]) if named else None


def retry_after_s(headers: Mapping[str, str], *, now: float) -> float | None:
    """Read `Retry-After`, seconds or a date (RFC 9110, 10.2.3). None where it is missing or makes no sense."""
    value = headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,9}(\.\d+)?", value):
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except (TypeError, ValueError, OverflowError):
        return None


def one_line(text: str, redact: Redact) -> str:
    """Give the text fit for a log: one clipped line, no markup, no secrets."""
    plain = html.unescape(_MARKUP.sub(" ", text[:20_000]))
    return " ".join(_ACCOUNT.sub("…", redact(plain)).split())[:LINE_CHARS]
