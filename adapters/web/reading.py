"""What the page reads: a session with its answers, the Codex, and search."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

from adapters.web import inbound, outbound
from adapters.web.desk import Desk, caller_of
from bot.conversation import Answer, Message, RoomKey, TurnKind

SHOWN_TURNS = 100
MAX_QUESTION_CHARS = 500
SEARCH_LIMIT = 8


def routes(desk: Desk) -> list[web.RouteDef]:
    """Give the routes under `/v1/sessions` and `/v1/codex`."""

    async def session(request: web.Request) -> web.Response:
        session_id = inbound.path_id(request)
        key = caller_of(request).session(session_id)
        history = await desk.duet.history(key)
        turns = [await _turn(desk, key.room, turn_id, said) for turn_id, said in _by_turn(history)[-SHOWN_TURNS:]]
        return web.json_response({"sessionId": session_id, "turns": turns})

    async def codex(request: web.Request) -> web.Response:
        documents = desk.duet.documents(caller_of(request).room(""))
        return web.json_response({"documents": [outbound.document_json(document) for document in documents]})

    async def sections(request: web.Request) -> web.Response:
        fields = inbound.query_fields(request)
        document = fields.name("document")
        fields.check()
        found = desk.duet.sections(caller_of(request).room(""), document)
        if not found:
            return web.json_response({"error": "there is no such document"}, status=404)
        return web.json_response({"sections": [outbound.section_line_json(section) for section in found]})

    async def section(request: web.Request) -> web.Response:
        fields = inbound.query_fields(request)
        section_id = fields.name("id")
        fields.check()
        found = desk.duet.section(caller_of(request).room(""), section_id)
        if found is None:
            return web.json_response({"error": "there is no such section"}, status=404)
        return web.json_response(outbound.section_json(found, desk.duet.url(found)))

    async def search(request: web.Request) -> web.Response:
        fields = inbound.query_fields(request)
        question = fields.text("q", limit=MAX_QUESTION_CHARS)
        fields.check()
        return web.json_response(
            outbound.findings_json(await desk.duet.search(question, caller_of(request).room(""), limit=SEARCH_LIMIT))
        )

    return [
        web.get("/v1/sessions/{id:[^/]+}", session),
        web.get("/v1/codex/documents", codex),
        web.get("/v1/codex/sections", sections),
        web.get("/v1/codex/section", section),
        web.get("/v1/codex/search", search),
    ]


def _by_turn(history: Sequence[Message]) -> list[tuple[str, list[Message]]]:
    """Give what was said in each turn, in order."""
    turns: dict[str, list[Message]] = {}
    for message in history:
        turns.setdefault(message.turn, []).append(message)
    return list(turns.items())


async def _turn(desk: Desk, room: RoomKey, turn_id: str, said: Sequence[Message]) -> outbound.JsonObject:
    """Give a turn for the page: its question, if it was one and no button, and its answer once it is there."""
    asked = next((message for message in said if message.role == "user"), None)
    answer = await desk.duet.answer(room, turn_id) if turn_id else None
    if answer is None:
        told = "\n\n".join(message.text for message in said if message.role != "user")
        answer = Answer(turn_id, told) if told else None
    is_command = answer is not None and answer.kind is TurnKind.RUN
    return {
        "turnId": turn_id,
        "kind": "run" if is_command else "ask",
        "author": asked.author if asked else "",
        "text": (asked.text.removeprefix("run ") if is_command else asked.text) if asked else "",
        "ts": said[0].at,
        "answer": outbound.answer_json(answer) if answer else None,
    }
