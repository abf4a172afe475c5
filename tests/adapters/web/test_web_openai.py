"""Duet as a model: what a chat client of the OpenAI kind sends and gets."""

from __future__ import annotations

import json

import pytest

from adapters.web.openai_api import rest_of
from tests.adapters.web.fake_duet import ANSWER, FakeDuet
from tests.adapters.web.serving import Api, Reply, calling

PATH = "/v1/chat/completions"


def said(role: str, content: object) -> dict[str, object]:
    return {"role": role, "content": content}


def chunks(reply: Reply) -> list[dict[str, object]]:
    lines = [line.removeprefix("data: ") for line in reply.text.split("\n\n") if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def text_of(reply: Reply) -> str:
    return "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks(reply))


async def test_the_one_model_is_listed(api: Api) -> None:
    (model,) = (await api.get("/v1/models")).json["data"]
    assert (await api.get("/v1/models/duet")).json == model
    assert model["id"] == "duet"


async def test_a_completion_holds_the_answer_and_its_sources(api: Api) -> None:
    reply = await api.post(PATH, {"model": "any", "messages": [said("user", "hotfixes?")]})
    content = reply.json["choices"][0]["message"]["content"]
    assert content == f"{ANSWER}\n\n[1] branch-naming.md > Branch types (line 29)"
    assert reply.json["usage"] == {"prompt_tokens": 812, "completion_tokens": 64, "total_tokens": 876}


async def test_a_streamed_completion_is_the_same_text(api: Api) -> None:
    whole = await api.post(PATH, {"messages": [said("user", "hotfixes?")]})
    streamed = await api.post(PATH, {"messages": [said("user", "hotfixes?")], "stream": True})
    assert text_of(streamed) == whole.json["choices"][0]["message"]["content"]
    assert chunks(streamed)[0]["choices"][0]["delta"]["role"] == "assistant"
    assert chunks(streamed)[-1]["choices"][0]["finish_reason"] == "stop"
    assert len(chunks(streamed)) > 4


async def test_a_stream_ends_with_its_usage_where_that_is_asked_for(api: Api) -> None:
    body = {"messages": [said("user", "hotfixes?")], "stream": True, "stream_options": {"include_usage": True}}
    *others, last = chunks(await api.post(PATH, body))
    assert last["choices"] == []
    assert last["usage"] == {"prompt_tokens": 812, "completion_tokens": 64, "total_tokens": 876}
    assert {chunk["usage"] for chunk in others} == {None}
    for nothing in (None, 7, {}, {"include_usage": None}):
        told = await api.post(PATH, body | {"stream_options": nothing})
        assert told.status == 200
        assert "usage" not in chunks(told)[-1]


async def test_a_follow_up_goes_into_the_same_session_and_asks_only_the_question(api: Api, duet: FakeDuet) -> None:
    first = await api.post(PATH, {"messages": [said("system", "Be nice."), said("user", "hotfixes?")]})
    told = first.json["choices"][0]["message"]["content"]
    conversation = [said("user", "hotfixes?"), said("assistant", told), said("user", "and docs?")]
    second = await api.post(PATH, {"messages": conversation, "stream": True})
    assert second.headers["X-Duet-Session"] == first.headers["X-Duet-Session"]
    assert duet.heard[1].text == "and docs?"


async def test_two_conversations_that_begin_alike_are_two_sessions(api: Api) -> None:
    first, second = [await api.post(PATH, {"messages": [said("user", "hi")]}) for _ in range(2)]
    assert first.headers["X-Duet-Session"] != second.headers["X-Duet-Session"]


async def test_a_conversation_not_known_here_is_quoted_before_the_question(api: Api, duet: FakeDuet) -> None:
    conversation = [said("user", "hotfixes?"), said("assistant", "From\nthe tag."), said("user", "say and docs?")]
    await api.post(PATH, {"messages": conversation})
    assert duet.heard[0].text == (
        "Earlier in this conversation:\n> user: hotfixes?\n> assistant: From\n> the tag.\n\nsay and docs?"
    )


async def test_a_named_session_is_used(api: Api) -> None:
    reply = await api.post(PATH, {"messages": [said("user", "hi")]}, headers={"X-Duet-Session": "mine"})
    assert reply.headers["X-Duet-Session"] == "mine"
    assert len((await api.get("/history?sessionId=mine")).json["messages"]) == 2


async def test_text_parts_are_joined(api: Api, duet: FakeDuet) -> None:
    parts = [{"type": "text", "text": "what about"}, {"type": "text", "text": "hotfixes?"}]
    await api.post(PATH, {"messages": [said("user", parts)]})
    assert duet.heard[0].text == "what about\nhotfixes?"


@pytest.mark.parametrize(
    "messages",
    [
        None,
        [],
        "hi",
        ["hi"],
        [{"content": "hi"}],
        [{"role": "wizard", "content": "hi"}],
        [said("system", "only this")],
        [said("user", " ")],
        [said("user", 7)],
        [said("user", [{"type": "image_url", "image_url": {"url": "data:"}}])],
        [said("user", "\ud800")],
        [said("user", "hi")] * 1_001,
    ],
)
async def test_what_is_no_conversation_is_refused(api: Api, duet: FakeDuet, messages: object) -> None:
    reply = await api.post(PATH, {"messages": messages})
    assert reply.status == 400
    assert (reply.json["error"]["type"], reply.json["error"]["param"]) == ("invalid_request_error", "messages")
    assert "messages: " in reply.json["error"]["message"]
    assert duet.heard == []


async def test_faults_have_the_shape_that_such_clients_read(duet: FakeDuet) -> None:
    token = "correct horse battery staple"
    body = {"messages": [said("user", "hi")]}
    async with calling(duet, http_token=token) as api:
        faults = [await api.post(PATH, body, headers={"Authorization": "Bearer wrong"})]
        api.headers = {"Authorization": f"Bearer {token}"}
        faults += [await api.get("/v1/models/gpt-9"), await api.get(PATH), await api.post(PATH, "{")]
        duet.store_is_down = True
        faults.append(await api.post(PATH, body))
    assert [(fault.status, fault.json["error"]["type"]) for fault in faults] == [
        (401, "authentication_error"),
        (404, "not_found_error"),
        (405, "invalid_request_error"),
        (400, "invalid_request_error"),
        (503, "server_error"),
    ]
    assert faults[0].headers["WWW-Authenticate"] == "Bearer"
    assert faults[-1].headers["Retry-After"]


@pytest.mark.parametrize(
    ("sent", "text", "rest"),
    [
        ("", "Whole.", "Whole."),
        ("From the tag. [1]", "From the tag [1].\n\n[1] doc", "\n\n[1] doc"),
        ("From the tag. [1]\n\nAnd", "From the tag [1].\n\nAnd on.", " on."),
        ("From the tag. [7]", "From the tag. More.", " More."),
        ("From main", "From the tag", None),
        ("From the tag and on", "From the tag", None),
    ],
)
def test_what_checking_changed_in_a_draft_is_not_sent_twice(sent: str, text: str, rest: str | None) -> None:
    assert rest_of(text, sent) == rest


async def test_what_follows_the_last_question_is_passed_over(api: Api, duet: FakeDuet) -> None:
    await api.post(PATH, {"messages": [said("user", "hi"), said("assistant", "Well"), said("tool", "{}")]})
    assert duet.heard[0].text == "hi"


async def test_what_duet_has_no_use_for_is_passed_over(api: Api) -> None:
    body = {"messages": [said("user", "hi")], "temperature": 0.2, "tools": [], "max_tokens": 5, "n": 1}
    assert (await api.post(PATH, body)).status == 200
