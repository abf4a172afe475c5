"""Codex Copilot's routes, unchanged: a client written for it works here."""

from __future__ import annotations

from aiohttp import web

from adapters.web import inbound, outbound
from adapters.web.desk import Desk, caller_of


def routes(desk: Desk) -> list[web.RouteDef]:
    """Give the routes of chat, transcripts, prompt log, reset and standards."""

    async def chat(request: web.Request) -> web.Response:
        fields = await inbound.json_fields(request)
        session_id, message = fields.id("sessionId"), fields.text("message")
        user_id, chosen = fields.optional_id("userId"), inbound.chosen_turn_id(request, fields)
        fields.check()
        turn = inbound.asked(caller_of(request), session_id, message, desk.stamp(chosen), user_id=user_id)
        return web.json_response(outbound.chat_json(session_id, await desk.settled(turn)))

    async def history(request: web.Request) -> web.Response:
        session_id = _session_id(request)
        messages = await desk.duet.history(caller_of(request).session(session_id))
        return web.json_response(outbound.history_json(session_id, messages))

    async def prompt_history(request: web.Request) -> web.Response:
        fields = inbound.query_fields(request)
        session_id, form = fields.id("sessionId"), fields.one_of("format", ("json", "md"), default="json")
        fields.check()
        calls = await desk.duet.prompt_log(caller_of(request).session(session_id))
        if form == "json":
            return web.json_response(outbound.prompt_log_json(session_id, calls))
        return web.Response(
            text=outbound.prompt_log_markdown(session_id, calls),
            content_type="text/markdown",
            charset="utf-8",
            headers={"Content-Disposition": 'attachment; filename="prompt-history.md"'},
        )

    async def reset(request: web.Request) -> web.Response:
        session_id = _session_id(request)
        answer = await desk.settled(inbound.resetting(caller_of(request), session_id, desk.stamp()))
        if refusal := outbound.reset_refusal(answer):
            return web.json_response({"error": refusal}, status=403)
        errors = outbound.cleanup_errors(answer)
        body = {"ok": not errors, "sessionId": session_id, "text": answer.text}
        return web.json_response(body | {"errors": errors} if errors else body, status=207 if errors else 200)

    async def docs(request: web.Request) -> web.Response:
        documents = desk.duet.documents(caller_of(request).room(""))
        return web.json_response({"docs": [document.name for document in documents]})

    return [
        web.post("/chat", chat),
        web.get("/history", history),
        web.get("/prompt-history", prompt_history),
        web.post("/reset", reset),
        web.get("/docs", docs),
    ]


def _session_id(request: web.Request) -> str:
    fields = inbound.query_fields(request)
    session_id = fields.id("sessionId")
    fields.check()
    return session_id
