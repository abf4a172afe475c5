"""Codex Copilot's routes: a client written for it works without a change."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.adapters.web.fake_duet import FakeDuet
from tests.adapters.web.serving import Api


async def test_a_question_is_answered_with_its_source(api: Api) -> None:
    reply = await api.post("/chat", {"sessionId": "s1", "message": "what about hotfixes?"})
    assert reply.status == 200
    assert reply.json["sessionId"] == "s1"
    assert "hotfix/" in reply.json["answer"]
    assert reply.json["sources"] == ["branch-naming.md"]


async def test_the_history_is_the_whole_transcript(api: Api) -> None:
    for text in ("first?", "second?"):
        await api.post("/chat", {"sessionId": "s1", "message": text})
    said = (await api.get("/history?sessionId=s1")).json["messages"]
    assert [one["role"] for one in said] == ["user", "agent"] * 2
    assert [one["text"] for one in said if one["role"] == "user"] == ["first?", "second?"]
    assert (await api.get("/history?sessionId=other")).json["messages"] == []


async def test_the_prompt_log_holds_what_was_sent_and_its_scores(api: Api) -> None:
    await api.post("/chat", {"sessionId": "s1", "message": "hotfixes?"})
    (call,) = (await api.get("/prompt-history?sessionId=s1")).json["calls"]
    assert call["messages"][-1] == {"role": "user", "content": "Local user: hotfixes?"}
    assert call["retrieved"][0]["score"] == 7.31
    assert call["latencyMs"] == 840


async def test_the_prompt_log_comes_as_markdown_ready_to_attach(api: Api) -> None:
    await api.post("/chat", {"sessionId": "s1", "message": "say ```\n# not a heading\n```"})
    reply = await api.get("/prompt-history?sessionId=s1&format=md")
    assert reply.headers["Content-Type"] == "text/markdown; charset=utf-8"
    assert "attachment" in reply.headers["Content-Disposition"]
    assert "````\n```\n# not a heading\n```\n````" in reply.text, "what was logged closed its own fence"


async def test_a_reset_clears_the_session(api: Api) -> None:
    await api.post("/chat", {"sessionId": "s1", "message": "hotfixes?"})
    assert (await api.post("/reset?sessionId=s1")).json["ok"] is True
    assert (await api.get("/history?sessionId=s1")).json["messages"] == []
    assert (await api.get("/prompt-history?sessionId=s1")).json["calls"] == []


async def test_a_reset_that_left_the_sandbox_says_so(api: Api, duet: FakeDuet) -> None:
    duet.sandbox_is_stuck = True
    reply = await api.post("/reset?sessionId=s1")
    assert (reply.status, reply.json["errors"]) == (207, ["sandbox: The sandbox could not be removed yet."])


async def test_the_standards_are_listed(api: Api) -> None:
    assert "branch-naming.md" in (await api.get("/docs")).json["docs"]


async def test_health_names_model_and_documents(api: Api) -> None:
    assert (await api.get("/health")).json == {"status": "ok", "model": "fake-model", "documents": 5}


@pytest.mark.parametrize("path", ["/", "/anything", "/chat/x", "/docs/branch-naming.md", "/%2e%2e/%2e%2e/etc/passwd"])
async def test_any_other_path_is_the_page(api: Api, path: str) -> None:
    reply = await api.get(path)
    assert reply.status == 200
    assert reply.headers["Content-Type"] == "text/html; charset=utf-8"
    assert '<script type="module" src="/static/page.js">' in reply.text


@pytest.mark.parametrize("path", ["/api/", "/api/rooms", "/api/rooms/a/b/c", "/v1/", "/v1/nothing", "/api", "/v1"])
async def test_an_unknown_path_of_the_api_is_404(api: Api, path: str) -> None:
    for method in ("GET", "POST", "DELETE"):
        reply = await api.call(method, path)
        assert (reply.status, reply.json) == (404, {"error": "not found"})


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/chat", "POST"),
        ("POST", "/history", "GET"),
        ("DELETE", "/docs", "GET"),
        ("PUT", "/api/rooms/r1", "DELETE"),
        ("GET", "/v1/turns", "POST"),
        ("POST", "/anything", "GET"),
    ],
)
async def test_a_wrong_method_is_405_and_names_the_right_one(api: Api, method: str, path: str, allowed: str) -> None:
    reply = await api.call(method, path)
    assert reply.status == 405
    assert allowed in reply.headers["Allow"].split(", ")
    assert reply.json == {"error": "method not allowed"}


@pytest.mark.parametrize(
    ("body", "field", "fault"),
    [
        ({"message": "hi"}, "sessionId", "Required"),
        ({"sessionId": "s1"}, "message", "Required"),
        ({"sessionId": "s1", "message": " \n "}, "message", "Message cannot be empty"),
        ({"sessionId": "s1", "message": 7}, "message", "Expected string"),
        ({"sessionId": "s\u0001", "message": "hi"}, "sessionId", "Contains characters that cannot be used"),
        ({"sessionId": "x" * 201, "message": "hi"}, "sessionId", "Expected at most 200 characters"),
        ('{"sessionId": "s1", "message": "\\ud800"}', "message", "Contains characters that cannot be used"),
        ("{not json", "body", "Expected a JSON object in UTF-8"),
        ("[" * 100_000, "body", "Expected a JSON object in UTF-8"),
        (b"\xff\xfe", "body", "Expected a JSON object in UTF-8"),
        ("[1]", "body", "Expected a JSON object"),
    ],
)
async def test_a_bad_body_is_refused_before_anything_is_heard(
    api: Api, duet: FakeDuet, body: object, field: str, fault: str
) -> None:
    reply = await api.post("/chat", body)
    assert reply.status == 400
    assert reply.json == {"error": "invalid request", "details": {field: [fault]}}
    assert duet.heard == []


async def test_every_fault_of_a_body_is_told_at_once(api: Api) -> None:
    reply = await api.post("/chat", {"sessionId": "", "message": ""})
    assert set(reply.json["details"]) == {"sessionId", "message"}


@pytest.mark.parametrize("query", ["", "?sessionId=", "?sessionId=a&sessionId=b", "?sessionId=s1&format=xml"])
async def test_a_bad_query_is_refused(api: Api, query: str) -> None:
    assert (await api.get(f"/prompt-history{query}")).status == 400


async def test_any_session_id_is_taken_as_given(api: Api) -> None:
    odd = " <b>Süß</b>/../x?&# "
    reply = await api.post("/chat", {"sessionId": odd, "message": "hotfixes?"})
    assert reply.json["sessionId"] == odd
    assert len((await api.get(f"/history?sessionId={quote(odd, safe='')}")).json["messages"]) == 2


async def test_the_same_key_asks_once_and_gives_the_same_answer(api: Api, duet: FakeDuet) -> None:
    body = {"sessionId": "s1", "message": "hotfixes?"}
    first = await api.post("/chat", body, headers={"Idempotency-Key": "k-1"})
    again = await api.post("/chat", body | {"turnId": "k-1"})
    assert first.json == again.json
    assert len(duet.heard) == 1


async def test_a_failed_answer_keeps_the_question_and_names_the_incident(api: Api) -> None:
    reply = await api.post("/chat", {"sessionId": "s1", "message": "fail"})
    assert (reply.status, reply.json["outcome"], reply.json["incident"]) == (200, "failed", "c0ffee")
    assert (await api.get("/history?sessionId=s1")).json["messages"][0]["text"] == "fail"


async def test_what_could_not_be_stored_is_503_and_not_an_answer(api: Api, duet: FakeDuet) -> None:
    duet.store_is_down = True
    for path, body in (
        ("/chat", {"sessionId": "s1", "message": "hi"}),
        ("/v1/turns", {"sessionId": "s", "message": "a"}),
    ):
        reply = await api.post(path, body)
        assert (reply.status, reply.headers["Retry-After"]) == (503, "5")
