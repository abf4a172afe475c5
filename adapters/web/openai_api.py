"""An OpenAI-compatible face: any chat client can use Duet as a model.

Such a client sends the whole conversation with every request and no name for it; Duet keeps conversations itself and
needs the name. Three ways lead to it, in this order: the client names the session (`X-Duet-Session`); the earlier
messages are those of a conversation that this process remembers; else a new session begins, and what was said before
is put before the question as a quotation.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

from aiohttp import web

from adapters.web import inbound, outbound
from adapters.web.desk import Desk, caller_of, stream
from bot.conversation import Answer, Drafted, Event, Settled, Turn

MODEL = "duet"
THE_MODEL = {"id": MODEL, "object": "model", "created": 0, "owned_by": "duet"}
SESSION_HEADER = "X-Duet-Session"
MAX_REMEMBERED = 4_096
MAX_MESSAGES = 1_000
ROLES = ("system", "developer", "user", "assistant", "tool", "function")


@dataclass(frozen=True, slots=True)
class Said:
    role: str
    text: str


@dataclass(slots=True)
class Conversations:
    """Which session a conversation belongs to, by a digest of what was said in it. Lost at the end: see the module."""

    _sessions: OrderedDict[str, str] = field(default_factory=OrderedDict)

    def session_of(self, space: str, earlier: Sequence[Said]) -> str | None:
        return self._sessions.get(_digest(space, earlier)) if earlier else None

    def remember(self, space: str, said: Sequence[Said], session_id: str) -> None:
        key = _digest(space, said)
        self._sessions[key] = session_id
        self._sessions.move_to_end(key)
        if len(self._sessions) > MAX_REMEMBERED:
            self._sessions.popitem(last=False)


@dataclass(frozen=True, slots=True)
class Completion:
    """A request, parsed. `earlier` is what was said before the question, without system messages."""

    question: str
    earlier: tuple[Said, ...]
    session_id: str | None
    user_id: str | None
    turn_id: str | None
    streams: bool
    wants_usage: bool  # at the end of a stream


def routes(desk: Desk) -> list[web.RouteDef]:
    """Give the routes of models and chat completions."""
    conversations = Conversations()

    async def models(request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [THE_MODEL]})

    async def model(request: web.Request) -> web.Response:
        if request.match_info["model"] != MODEL:
            return web.json_response({"error": f"there is one model here: {MODEL}"}, status=404)
        return web.json_response(THE_MODEL)

    async def complete(request: web.Request) -> web.StreamResponse:
        asked = parse(request, await inbound.json_fields(request))
        space = caller_of(request).space
        known = asked.session_id or conversations.session_of(space, asked.earlier)
        session_id = known or f"chat-{desk.new_id()}"
        text = asked.question if known else quoted(asked.earlier, asked.question)
        stamp = desk.stamp(asked.turn_id)
        turn = inbound.asked(caller_of(request), session_id, text, stamp, user_id=asked.user_id)

        def remember(reply: str) -> None:
            said = (*asked.earlier, Said("user", asked.question), Said("assistant", reply))
            conversations.remember(space, said, session_id)

        if not asked.streams:
            reply = completion_text(await desk.settled(turn))
            remember(reply)
            usage = await _usage(desk, turn)
            return web.json_response(_completion(turn, reply, usage), headers={SESSION_HEADER: session_id})
        await desk.duet.hear(turn, direct=True)
        writer = ChunkWriter(turn, wants_usage=asked.wants_usage)
        events = _counted(desk, turn, writer)
        response = await stream(request, desk, events, writer, headers={SESSION_HEADER: session_id})
        if writer.is_done:
            remember(writer.sent)
        return response

    return [
        web.get("/v1/models", models),
        web.get("/v1/models/{model:[^/]+}", model),
        web.post("/v1/chat/completions", complete),
    ]


# ── In ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def parse(request: web.Request, fields: inbound.Fields) -> Completion:
    """Read a request; what Duet has no use for (temperature, tools, system messages) is passed over.

    Raises: BadRequest.
    """
    said = _messages(fields)
    streams, user_id = fields.flag("stream"), fields.optional_id("user")
    turn_id = inbound.chosen_turn_id(request, fields)
    fields.check()
    *earlier, last = said
    wants_usage = fields.inner("stream_options").flag("include_usage")
    return Completion(last.text, tuple(earlier), _named_session(request), user_id, turn_id, streams, wants_usage)


def _named_session(request: web.Request) -> str | None:
    named = request.headers.get(SESSION_HEADER)
    if named is None:
        return None
    fields = inbound.Fields({SESSION_HEADER: named})
    session_id = fields.id(SESSION_HEADER)
    fields.check()
    return session_id


def _messages(fields: inbound.Fields) -> list[Said]:
    """Give what was said up to the question, which is the user's last message; a fault is noted on `fields`."""
    raw = fields.items("messages", limit=MAX_MESSAGES)
    said = [message for item in raw if (message := _said(item, fields)) and message.role in ("user", "assistant")]
    while said and not (said[-1].role == "user" and said[-1].text):
        said.pop()
    if raw and not said:
        fields.fault("messages", "One message must be the user's and hold text")
    return said


def _said(item: object, fields: inbound.Fields) -> Said | None:
    role, content = (item.get("role"), item.get("content")) if isinstance(item, dict) else (None, None)
    if role not in ROLES:
        fields.fault("messages", f"Each message needs a role, one of: {', '.join(ROLES)}")
        return None
    text = _content_text(content)
    if text is None or not inbound.is_storable(text) or len(text) > inbound.MAX_TEXT_CHARS:
        fields.fault("messages", f"Each content must be text of at most {inbound.MAX_TEXT_CHARS} characters")
        return None
    return Said(str(role), text.strip())


def _content_text(content: object) -> str | None:
    """Give a message's text: a string, or the text parts of a list; None for anything else (images)."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        return None
    texts = [part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None for part in content]
    strings = [text for text in texts if isinstance(text, str)]
    return "\n".join(strings) if len(strings) == len(texts) else None


def quoted(earlier: Sequence[Said], question: str) -> str:
    """Put what was said before in front of a question, as a quotation."""
    if not earlier:
        return question
    lines = [f"> {said.role}: " + said.text.replace("\n", "\n> ") for said in earlier]
    return "Earlier in this conversation:\n" + "\n".join(lines) + f"\n\n{question}"


def _digest(space: str, said: Sequence[Said]) -> str:
    told = json.dumps([space, *([message.role, message.text] for message in said)])
    return hashlib.sha256(told.encode()).hexdigest()


# ── Out ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def completion_text(answer: Answer) -> str:
    """Give the whole answer as Markdown: words, commands' output, notes, and the sources as a list."""
    sources = [f"[{s.number}] {s.document} > {s.heading} (line {s.line})" for s in answer.sources]
    return "\n\n".join(part for part in (outbound.reply_text(answer), "\n".join(sources)) if part).strip()


def _completion(turn: Turn, reply: str, usage: Mapping[str, int]) -> outbound.JsonObject:
    choice = {"index": 0, "message": {"role": "assistant", "content": reply}, "finish_reason": "stop"}
    return _envelope(turn, "chat.completion") | {"choices": [choice], "usage": dict(usage)}


def _envelope(turn: Turn, kind: str) -> outbound.JsonObject:
    return {"id": f"chatcmpl-{turn.id}", "object": kind, "created": turn.at // 1000, "model": MODEL}


async def _usage(desk: Desk, turn: Turn) -> Mapping[str, int]:
    """Give the tokens of all model calls of a turn, as far as its endpoint told them."""
    calls = [call for call in await desk.duet.prompt_log(turn.session) if call.turn == turn.id]
    prompt, reply = sum(call.prompt_tokens for call in calls), sum(call.reply_tokens for call in calls)
    return {"prompt_tokens": prompt, "completion_tokens": reply, "total_tokens": prompt + reply}


async def _counted(desk: Desk, turn: Turn, writer: ChunkWriter) -> AsyncIterator[Event]:
    """Give the turn's events; before its last the writer gets what the turn used, where that was asked for."""
    async for event in desk.duet.follow(turn.room, turn.id):
        if isinstance(event, Settled) and writer.wants_usage:
            writer.usage = await _usage(desk, turn)
        yield event


_UNCOUNTED = re.compile(r"\s+|\[\d+\]")
_MARKER = re.compile(r" ?\[\d+\]")


def rest_of(text: str, sent: str) -> str | None:
    """Give what of `text` follows `sent`, or None when it does not begin so.

    Markers and spaces do not count: checking moves them (`tag. [1]` becomes `tag [1].`) after they were drafted.
    """
    at = 0
    for wanted in _UNCOUNTED.sub("", sent):
        while passed := _UNCOUNTED.match(text, at):
            at = passed.end()
        if text[at : at + 1] != wanted:
            return None
        at += 1
    while sent.endswith("]") and (marker := _MARKER.match(text, at)):
        at = marker.end()
    return text[at:].lstrip() if sent[-1:].isspace() else text[at:]


class ChunkWriter:
    """Turns a turn's events into chunks; what was sent cannot be taken back, so drafts go out only while they grow."""

    def __init__(self, turn: Turn, *, wants_usage: bool = False) -> None:
        self._turn = turn
        self.wants_usage = wants_usage
        self.usage: Mapping[str, int] = {}
        self.sent = ""
        self.is_done = False

    def begin(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def render(self, event: Event) -> bytes:
        match event:
            case Drafted(text):
                return self._grown(text)
            case Settled(answer):
                return self._settled(completion_text(answer))
            case _:
                return b""

    def _grown(self, text: str) -> bytes:
        if not text.startswith(self.sent) or text == self.sent:
            return b""
        delta, self.sent = text[len(self.sent) :], text
        return self._chunk({"content": delta})

    def _settled(self, text: str) -> bytes:
        """Send the rest, or the whole again below a rule where the draft was not its beginning."""
        found = rest_of(text, self.sent)
        rest = f"\n\n---\n\n{text}" if found is None else found
        self.sent, self.is_done = self.sent + rest, True
        last = self._chunk({"content": rest}) if rest else b""
        used = self._event([], usage=dict(self.usage)) if self.wants_usage else b""
        return last + self._chunk({}, finish="stop") + used + b"data: [DONE]\n\n"

    def _chunk(self, delta: outbound.JsonObject, finish: str | None = None) -> bytes:
        return self._event([{"index": 0, "delta": delta, "finish_reason": finish}])

    def _event(self, choices: list[outbound.JsonObject], *, usage: outbound.JsonObject | None = None) -> bytes:
        chunk = _envelope(self._turn, "chat.completion.chunk") | {"choices": choices}
        if self.wants_usage:
            chunk["usage"] = usage  # null but in the one that tells it
        return f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n".encode()
