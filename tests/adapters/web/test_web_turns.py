"""Turns as streams: drafts, commands, the end; taken up again by id, stopped, tried again, decided."""

from __future__ import annotations

import asyncio

import aiohttp

from bot.conversation import TurnKind, Verdict
from tests.adapters.web.fake_duet import ANSWER, FakeDuet
from tests.adapters.web.serving import Api, calling, serving

ASKED = {"sessionId": "s1", "message": "hotfixes?", "turnId": "t-1"}


def drafted(events: list[tuple[str, dict[str, object]]]) -> str:
    """Put the drafts together as a client does."""
    text = ""
    for name, data in events:
        if name == "draft":
            text = str(data["text"]) if data["replace"] else text + str(data["text"])
    return text


async def test_a_turn_streams_from_its_hearing_to_its_end(api: Api) -> None:
    reply = await api.post("/v1/turns", ASKED)
    assert reply.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    names = [name for name, _ in reply.events]
    assert names[0] == "heard"
    assert names[-2:] == ["sources", "done"]
    assert set(names[1:-2]) == {"draft"}
    answer = reply.events[-1][1]["answer"]
    assert answer["text"] == ANSWER
    assert answer["html"].startswith("<p>Name the branch <code>")
    assert ANSWER.startswith(drafted(reply.events))


async def test_a_command_streams_its_output(api: Api) -> None:
    reply = await api.post("/v1/turns", ASKED | {"message": "ls exit 3", "kind": "run"})
    said = [(name, data) for name, data in reply.events if name in ("command", "output", "result")]
    assert said[0] == ("command", {"command": "ls exit 3"})
    assert [data["text"] for name, data in said if name == "output"] == ["line 1\n", "line 2\n"]
    assert said[-1][1]["exitCode"] == 3


async def test_a_turn_is_followed_again_by_its_id(api: Api) -> None:
    first = await api.post("/v1/turns", ASKED)
    again = await api.get("/v1/turns/t-1/events?sessionId=s1")
    assert again.events[-1] == first.events[-1]


async def test_asking_again_with_the_same_id_asks_nothing(api: Api, duet: FakeDuet) -> None:
    first, again = [await api.post("/v1/turns", ASKED) for _ in range(2)]
    assert first.events[-1] == again.events[-1]
    assert len(duet.heard) == 1


async def test_a_reader_that_goes_away_ends_nothing(api: Api, duet: FakeDuet) -> None:
    asking = asyncio.create_task(api.post("/v1/turns", ASKED | {"message": "slow"}))
    while not duet.heard:
        await asyncio.sleep(0.01)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert (await api.get("/v1/turns/t-1?sessionId=s1")).json["done"] is False
    duet.go_on.set()
    reply = await api.get("/v1/turns/t-1/events?sessionId=s1")
    assert reply.events[-1][1]["answer"]["text"].endswith("Done.")


async def test_a_turn_can_be_asked_after(api: Api) -> None:
    await api.post("/v1/turns", ASKED)
    reply = await api.get("/v1/turns/t-1?sessionId=s1")
    assert (reply.json["done"], reply.json["state"]) == (True, "answered")
    assert reply.json["answer"]["sources"][0]["line"] == 29


async def test_a_turn_never_heard_is_404(api: Api) -> None:
    for method, path in (
        ("GET", "/v1/turns/none"),
        ("POST", "/v1/turns/none/stop"),
        ("GET", "/v1/turns/none/events"),
        ("POST", "/v1/turns/none/retry"),
    ):
        assert (await api.call(method, f"{path}?sessionId=s1")).status == 404


async def test_a_turn_is_stopped_in_the_middle(api: Api, duet: FakeDuet) -> None:
    asking = asyncio.create_task(api.post("/v1/turns", ASKED | {"message": "slow"}))
    while not duet.heard:
        await asyncio.sleep(0.01)
    stopped = await api.post("/v1/turns/t-1/stop?sessionId=s1")
    assert stopped.json == {"turnId": "t-1", "stopping": True}
    answer = (await asking).events[-1][1]["answer"]
    assert (answer["outcome"], answer["notes"]) == ("cancelled", ["Stopped by Local user."])
    assert (await api.post("/v1/turns/t-1/stop?sessionId=s1")).json["stopping"] is False


async def test_a_failed_turn_is_tried_again(api: Api, duet: FakeDuet) -> None:
    failed = await api.post("/v1/turns", ASKED | {"message": "fail"})
    assert failed.events[-1][1]["answer"]["outcome"] == "failed"
    again = await api.post("/v1/turns/t-1/retry?sessionId=s1")
    assert again.events[-1][1]["answer"]["outcome"] == "answered"
    press = duet.heard[-1]
    assert (press.kind, press.verdict, press.target) == (TurnKind.PRESS, Verdict.RETRY, "t-1")


async def test_a_retry_sent_again_with_its_key_is_done_once(api: Api, duet: FakeDuet) -> None:
    await api.post("/v1/turns", ASKED | {"message": "fail"})
    key = {"Idempotency-Key": "again-1"}
    replies = [await api.post("/v1/turns/t-1/retry?sessionId=s1", headers=key) for _ in range(2)]
    assert [reply.events[-1][1]["answer"]["outcome"] for reply in replies] == ["answered", "answered"]
    assert [turn.id for turn in duet.heard] == ["t-1", "again-1"]
    broken = await api.post("/v1/turns/t-1/retry?sessionId=s1", headers={"Idempotency-Key": "a b"})
    assert (broken.status, list(broken.json["details"])) == (400, ["Idempotency-Key"])


async def test_a_ticket_is_decided(api: Api, duet: FakeDuet) -> None:
    asked = await api.post("/v1/turns", ASKED | {"message": "ask rm -rf build"})
    ticket = asked.events[-1][1]["answer"]["ticket"]
    assert ticket["command"] == "rm -rf build"
    reply = await api.post(f"/v1/tickets/{ticket['id']}", {"sessionId": "s1", "verdict": "approve"})
    assert reply.events[-1][1]["answer"]["commands"][0]["exitCode"] == 0
    assert duet.heard[-1].target == ticket["id"]
    bad = await api.post(f"/v1/tickets/{ticket['id']}", {"sessionId": "s1", "verdict": "perhaps"})
    assert bad.status == 400


async def test_a_silent_stream_is_kept_open_by_comments(duet: FakeDuet, monkeypatch: object) -> None:
    from adapters.web import desk

    monkeypatch.setattr(desk, "HEARTBEAT_S", 0.02)
    duet.pace_s = 0.2
    async with calling(duet) as api:
        reply = await api.post("/v1/turns", ASKED | {"message": "fail"})
    assert reply.text.count(": still here\n\n") >= 3
    assert reply.events[-1][0] == "done"


async def test_five_hundred_idle_readers_hold_nobody_up_and_the_next_is_turned_away(duet: FakeDuet) -> None:
    async with calling(duet) as api:
        await api.call("POST", "/v1/turns", {**ASKED, "message": "say hi"})
        duet.heard.clear()
        asking = asyncio.create_task(api.post("/v1/turns", ASKED | {"turnId": "t-2", "message": "slow"}))
        while not duet.heard:
            await asyncio.sleep(0.01)
        duet.hush.set()
        readers = [await _idle_reader(api.address) for _ in range(511)]
        full = await api.get("/v1/turns/t-2/events?sessionId=s1")
        assert (full.status, full.headers["Retry-After"]) == (429, "5")
        async with asyncio.timeout(2):
            assert (await api.post("/chat", {"sessionId": "s9", "message": "hotfixes?"})).status == 200
        for writer in readers:
            writer.close()
        duet.go_on.set()
        await asking


async def _idle_reader(address: str) -> asyncio.StreamWriter:
    """Open a stream and read its head only."""
    host, port = address.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET /v1/turns/t-2/events?sessionId=s1 HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    return writer


async def test_closing_the_server_ends_its_streams_at_once(duet: FakeDuet) -> None:
    async with aiohttp.ClientSession() as session:
        async with serving(duet) as address:
            asking = asyncio.create_task(Api(address, session).post("/v1/turns", ASKED | {"message": "slow"}))
            while not duet.heard:
                await asyncio.sleep(0.01)
            began = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - began < 2
        async with asyncio.timeout(2):
            reply = await asking
    assert "done" not in [name for name, _ in reply.events]
