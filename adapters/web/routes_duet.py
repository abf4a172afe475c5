"""Duet's routes, unchanged: rooms that several people share, direct commands, clean-up."""

from __future__ import annotations

from aiohttp import web

from adapters.web import inbound, outbound
from adapters.web.desk import Desk, caller_of
from bot.conversation import Answer, CommandResult, Ended, Outcome, TurnKind


def routes(desk: Desk) -> list[web.RouteDef]:
    """Give the routes of a room: message, command, clean-up."""

    async def message(request: web.Request) -> web.Response:
        room_id, fields = inbound.path_id(request), await inbound.json_fields(request)
        text, user_id = fields.text("text"), fields.optional_id("userId")
        chosen = inbound.chosen_turn_id(request, fields)
        fields.check()
        turn = inbound.asked(caller_of(request), room_id, text, desk.stamp(chosen), user_id=user_id)
        answer = await desk.settled(turn)
        messages = outbound.room_messages(await desk.duet.history(turn.session))
        return web.json_response({"reply": outbound.reply_text(answer), "messages": messages})

    async def execute(request: web.Request) -> web.Response:
        room_id, fields = inbound.path_id(request), await inbound.json_fields(request)
        code, user_id = fields.text("cmd", limit=inbound.MAX_CODE_CHARS), fields.optional_id("userId")
        chosen = inbound.chosen_turn_id(request, fields)
        fields.check()
        turn = inbound.commanded(caller_of(request), room_id, code, desk.stamp(chosen), user_id=user_id)
        return _executed(await desk.settled(turn), f"sandbox-{room_id}")

    async def clean_up(request: web.Request) -> web.Response:
        room_id = inbound.path_id(request)
        answer = await desk.settled(inbound.resetting(caller_of(request), room_id, desk.stamp()))
        if refusal := outbound.reset_refusal(answer):
            return web.json_response({"error": refusal}, status=403)
        errors = outbound.cleanup_errors(answer)
        body = {"cleaned": True, "roomId": room_id}
        return web.json_response(body | {"errors": errors} if errors else body, status=207 if errors else 200)

    return [
        web.post("/api/rooms/{id:[^/]+}/message", message),
        web.post("/api/rooms/{id:[^/]+}/sandbox/exec", execute),
        web.delete("/api/rooms/{id:[^/]+}", clean_up),
    ]


def _executed(answer: Answer, sandbox_name: str) -> web.Response:
    """Give a direct command's result, or say why there is none: 403 refused, 202 waiting, 500 failed (as it was)."""
    if answer.kind is not TurnKind.RUN:
        return web.json_response({"error": "this turn id was used for something else"}, status=409)
    if answer.ticket and not answer.commands:
        waiting = {"ticket": outbound.ticket_json(answer.ticket), "sandboxName": sandbox_name}
        return web.json_response(waiting, status=202)
    if answer.outcome is Outcome.REFUSED:
        return web.json_response({"error": answer.text}, status=403)
    if (result := _started(answer)) is None:
        reason = (answer.commands[-1].note if answer.commands else "") or answer.text
        return web.json_response({"error": f"sandbox execution failed: {reason}"}, status=500)
    return web.json_response({"result": outbound.command_json(result), "sandboxName": sandbox_name})


def _started(answer: Answer) -> CommandResult | None:
    """Give the command's result if it ever started."""
    results = [result for result in answer.commands if result.ended is not Ended.NOT_STARTED]
    return results[-1] if results else None
