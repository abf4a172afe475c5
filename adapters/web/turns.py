"""Turns as streams: ask, follow again by id, stop, try again, decide a ticket."""

from __future__ import annotations

from aiohttp import web

from adapters.web import inbound, outbound
from adapters.web.desk import Desk, caller_of, stream
from bot.conversation import Turn, Verdict


def routes(desk: Desk) -> list[web.RouteDef]:
    """Give the routes under `/v1/turns` and `/v1/tickets`."""

    async def ask(request: web.Request) -> web.StreamResponse:
        fields = await inbound.json_fields(request)
        session_id, message = fields.id("sessionId"), fields.text("message")
        kind, user_id = fields.one_of("kind", ("ask", "run"), default="ask"), fields.optional_id("userId")
        chosen = inbound.chosen_turn_id(request, fields)
        fields.check()
        make = inbound.asked if kind == "ask" else inbound.commanded
        turn = make(caller_of(request), session_id, message, desk.stamp(chosen), user_id=user_id)
        return await _heard(request, turn)

    async def show(request: web.Request) -> web.Response:
        session_id, turn_id = _addressed(request)
        room = caller_of(request).room(session_id)
        state = await desk.duet.state(room, turn_id)
        if state is None:
            return _never_heard()
        answer = await desk.duet.answer(room, turn_id)
        shown = outbound.answer_json(answer) if answer else None
        return web.json_response({"turnId": turn_id, "state": state, "done": answer is not None, "answer": shown})

    async def follow(request: web.Request) -> web.StreamResponse:
        session_id, turn_id = _addressed(request)
        room = caller_of(request).room(session_id)
        if await desk.duet.state(room, turn_id) is None:
            return _never_heard()
        return await stream(request, desk, desk.duet.follow(room, turn_id), outbound.EventWriter(turn_id))

    async def stop(request: web.Request) -> web.Response:
        session_id, turn_id = _addressed(request)
        caller = caller_of(request)
        state = await desk.duet.state(caller.room(session_id), turn_id)
        if state is None:
            return _never_heard()
        is_open = state in ("heard", "running")
        if is_open:
            await desk.duet.stop(caller.room(session_id), turn_id, by=caller.author, id=desk.new_id())
        return web.json_response({"turnId": turn_id, "stopping": is_open})

    async def retry(request: web.Request) -> web.StreamResponse:
        fields = inbound.query_fields(request)
        chosen = inbound.idempotency_key(request, fields)
        session_id, turn_id = _addressed(request, fields)
        if await desk.duet.state(caller_of(request).room(session_id), turn_id) is None:
            return _never_heard()
        turn = inbound.pressed(caller_of(request), session_id, turn_id, Verdict.RETRY, desk.stamp(chosen))
        return await _heard(request, turn)

    async def decide(request: web.Request) -> web.StreamResponse:
        fields = await inbound.json_fields(request)
        session_id, verdict = fields.id("sessionId"), fields.one_of("verdict", ("approve", "deny"))
        chosen = inbound.chosen_turn_id(request, fields)
        fields.check()
        ticket = inbound.path_id(request)
        turn = inbound.pressed(caller_of(request), session_id, ticket, Verdict(verdict), desk.stamp(chosen))
        return await _heard(request, turn)

    async def _heard(request: web.Request, turn: Turn) -> web.StreamResponse:
        # Stored before the first byte of the reply, so that a full disk is a 503 and not an empty stream.
        await desk.duet.hear(turn, direct=True)
        return await stream(request, desk, desk.duet.follow(turn.room, turn.id), outbound.EventWriter(turn.id))

    return [
        web.post("/v1/turns", ask),
        web.get("/v1/turns/{turnId:[^/]+}", show),
        web.post("/v1/turns/{turnId:[^/]+}/stop", stop),
        web.get("/v1/turns/{turnId:[^/]+}/events", follow),
        web.post("/v1/turns/{turnId:[^/]+}/retry", retry),
        web.post("/v1/tickets/{id:[^/]+}", decide),
    ]


def _never_heard() -> web.Response:
    return web.json_response({"error": "there is no such turn"}, status=404)


def _addressed(request: web.Request, fields: inbound.Fields | None = None) -> tuple[str, str]:
    """Give session and turn out of query and path. Raises: BadRequest."""
    fields = fields or inbound.query_fields(request)
    session_id = fields.id("sessionId")
    fields.check()
    return session_id, inbound.path_turn_id(request)
