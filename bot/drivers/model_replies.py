"""The events of a streamed reply -> visible text, a finish, the tokens; pure. One reader for every dialect.

OpenAI's chunks, Cloudflare's own `{"response": …}` and a reply in one piece are told apart event by event.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from bot.conversation import Usage
from bot.drivers.endpoint_errors import Redact, complained, complaint_of, one_line
from bot.errors import ModelError, ModelGarbled

GARBLED = "The language model's answer could not be read."
EMPTY = "The language model gave an empty answer."
CUT = "The language model's answer broke off."
MAX_VISIBLE_CHARS = 100_000

_decode = json.JSONDecoder().decode

_WITHHELD = re.compile(r"content.?filter|safety|recitation|prohibited|blocked|refusal", re.IGNORECASE)
# Those that end a reply because something went wrong, not because it is complete.
_FAILED = {"error", "abort", "aborted", "network_error", "model_error"}


class ReplyReader:
    """Reads one reply. Complete only when a finish reason or `[DONE]` was seen."""

    def __init__(self, redact: Redact) -> None:
        self._redact = redact
        self._visible_chars = 0
        self._thought = False
        self._tools: dict[int, str] = {}
        self._index: object = None  # of the one choice that is read, where a server sends several
        self._usage = Usage()
        self.reason = ""
        self.is_done = False
        self.is_alive = False  # whether the last event moved the reply on: a ping or an empty delta does not

    @property
    def is_complete(self) -> bool:
        return self.is_done or bool(self.reason)

    @property
    def usage(self) -> Usage:
        return self._usage

    def read(self, batch: Sequence[str]) -> tuple[str, ModelError | None]:
        """Take the data of some events; give their visible text, and the fault that ended it: no text is lost by it."""
        texts: list[str] = []
        try:
            for data in batch:
                texts.append(self.feed(data))
                if self.is_done:
                    break
        except ModelError as error:
            return "".join(texts), error
        return "".join(texts), None

    def feed(self, data: str) -> str:
        """Take the data of one event; give the visible text in it.

        Raises: ModelGarbled for what is no JSON object; whatever error the endpoint reports.
        """
        if data.startswith("[DONE]"):
            self.is_done = self.is_alive = True
            return ""
        event = self._decoded(data)
        choices = event.get("choices")
        if (not choices or "error" in event) and (complaint := complaint_of(event)):
            raise complained(complaint, redact=self._redact)
        if choices:
            text = self._from_choice(choices)
        elif "response" in event:
            text = self._from_native(event)
        else:  # the usage at the end, or a ping
            text, self.is_alive = "", False
        if usage := event.get("usage"):
            self._note_usage(usage)
        self._visible_chars += len(text)
        if self._visible_chars > MAX_VISIBLE_CHARS:
            raise ModelGarbled(GARBLED, detail="the reply went on without end")
        return text

    def feed_whole(self, body: str) -> str:
        """Take a reply that was not streamed, or the error that came instead of one."""
        event = self._decoded(body)
        result = event.get("result")
        text = self.feed(json.dumps(result) if isinstance(result, dict) and event.get("success") else body)
        self.is_done = True  # whole, whatever reason it gives
        return text

    def check_not_empty(self) -> None:
        """Raises: ModelGarbled when the reply is complete and yet says nothing."""
        if self._visible_chars:
            return
        if self._tools:
            names = one_line(", ".join(self._tools.values()), self._redact)
            raise ModelGarbled(EMPTY, detail=f"it asked for tools that were not offered: {names}")
        if is_withheld(self.reason):
            raise ModelGarbled(
                "The language model's provider withheld the answer.", detail=f"no text, finish reason {self.reason!r}"
            )
        if self._thought:
            raise ModelGarbled(
                "The language model thought until its limit and said nothing.",
                detail=f"only reasoning, {self.reason!r}",
            )
        raise ModelGarbled(EMPTY, detail=f"no text, finish reason {self.reason!r}")

    def _decoded(self, data: str) -> dict[str, Any]:
        try:
            event = _decode(data)
        except (ValueError, RecursionError) as error:
            raise ModelGarbled(GARBLED, detail=f"not JSON: {one_line(data, self._redact)!r}") from error
        if not isinstance(event, dict):
            raise ModelGarbled(GARBLED, detail=f"not an object: {one_line(data, self._redact)!r}")
        return event

    def _from_choice(self, choices: Any) -> str:
        choice = self._own(choices)
        if choice is None:
            self.is_alive = False
            return ""
        delta = choice.get("delta") or choice.get("message")
        if not isinstance(delta, dict):
            delta = {"content": choice.get("text")}
        text = _as_text(delta.get("content")) or _as_text(delta.get("refusal"))
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        self._thought = self._thought or bool(thought)
        if calls := delta.get("tool_calls"):
            self._note_tools(calls)
        reason = choice.get("finish_reason")
        if reason:
            self._note_reason(str(reason))
        self.is_alive = bool(text or thought or calls or reason)
        return text

    def _own(self, choices: Any) -> dict[str, Any] | None:
        """Give the choice that is read, the first that was ever sent; None where it is not among these."""
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                index = choice.get("index")
                self._index = index if self._index is None else self._index
                if index in (None, self._index):
                    return choice
        return None

    def _from_native(self, event: Mapping[str, Any]) -> str:
        text = _as_text(event["response"])
        if calls := event.get("tool_calls"):
            self._note_tools(calls)
        if reason := event.get("finish_reason"):
            self._note_reason(str(reason))
        self.is_alive = bool(text or calls or reason)
        return text

    def _note_reason(self, reason: str) -> None:
        if reason in _FAILED:
            raise ModelGarbled("The language model's server gave up in the middle.", detail=f"finish reason {reason!r}")
        self.reason = self.reason or reason  # some endpoints finish twice

    def _note_usage(self, usage: Any) -> None:
        """Keep the largest numbers: some endpoints send zeros after the real ones."""
        if isinstance(usage, dict):
            self._usage = Usage(
                max(self._usage.prompt_tokens, _as_count(usage.get("prompt_tokens"))),
                max(self._usage.reply_tokens, _as_count(usage.get("completion_tokens"))),
            )

    def _note_tools(self, calls: Any) -> None:
        """Join the names of called tools by index; their arguments, in pieces or whole, are of no use here."""
        for position, call in enumerate(calls if isinstance(calls, list) else []):
            if isinstance(call, dict):
                inner = call.get("function")
                name = (inner if isinstance(inner, dict) else call).get("name") or ""
                index = call.get("index", position)
                index = index if isinstance(index, int) else position
                self._tools[index] = self._tools.get(index, "") + str(name)


def is_withheld(reason: str) -> bool:
    """Tell whether a finish reason says that somebody's filter ended the reply, by any of its many names."""
    return bool(_WITHHELD.search(reason))


def _as_text(content: Any) -> str:
    """Give text for what stands where text belongs: a list of parts, a bare number, nothing."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(_as_text(part.get("text")) for part in content if isinstance(part, dict))
    if isinstance(content, (int, float)) and not isinstance(content, bool):
        return str(content)
    return json.dumps(content) if isinstance(content, dict) else ""


def _as_count(number: Any) -> int:
    """Give a number of tokens, which some endpoints send as text; 0 for anything else."""
    if isinstance(number, str) and re.fullmatch(r"[0-9]{1,12}", number):
        return int(number)
    return number if isinstance(number, int) and number > 0 else 0
