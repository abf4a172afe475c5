"""What the page and machines read: sessions with answers, the Codex, health and figures."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from adapters.web import outbound
from adapters.web.app import build_app
from adapters.web.desk import Desk, Streams
from adapters.web.guard import Guard
from bot.checks import Link
from bot.duet import Status
from tests.adapters.web.fake_duet import FakeDuet
from tests.adapters.web.serving import DESCRIPTION, Api, calling


async def test_a_session_is_given_with_its_answers(api: Api) -> None:
    await api.post("/chat", {"sessionId": "s1", "message": "hotfixes?"})
    await api.post("/v1/turns", {"sessionId": "s1", "message": "ls", "kind": "run"})
    ask, run = (await api.get("/v1/sessions/s1")).json["turns"]
    assert (ask["kind"], ask["text"], ask["author"]) == ("ask", "hotfixes?", "Local user")
    assert ask["answer"]["sources"][0]["quote"] == "a fault in production that cannot wait"
    assert (run["kind"], run["text"]) == ("run", "ls")
    assert run["answer"]["commands"][0]["command"] == "ls"


async def test_a_session_shows_the_question_that_is_still_open(api: Api, duet: FakeDuet) -> None:
    duet.hush.set()
    import asyncio

    asking = asyncio.create_task(api.post("/chat", {"sessionId": "s1", "message": "slow"}))
    while not (turns := (await api.get("/v1/sessions/s1")).json["turns"]):
        await asyncio.sleep(0.01)
    assert (turns[0]["text"], turns[0]["answer"]) == ("slow", None)
    duet.go_on.set()
    await asking


async def test_the_codex_is_browsed_from_documents_to_a_section(api: Api) -> None:
    documents = (await api.get("/v1/codex/documents")).json["documents"]
    assert documents[0]["name"] == "branch-naming.md"
    sections = (await api.get("/v1/codex/sections?document=branch-naming.md")).json["sections"]
    assert len(sections) == documents[0]["sections"]
    section = (await api.get(f"/v1/codex/section?id={sections[1]['id'].replace('#', '%23')}")).json
    assert section["html"].startswith("<p>")
    assert section["line"] < section["endLine"]
    assert section["url"].startswith("https://standards.example/branch-naming.md#")


async def test_what_is_not_in_the_codex_is_404(api: Api) -> None:
    for path in ("/v1/codex/sections?document=../secret.md", "/v1/codex/section?id=none"):
        assert (await api.get(path)).status == 404


def test_an_excerpt_reads_as_text() -> None:
    text = "See [types](#types), `main` and **no** other.\n\n| Type | From |\n|---|---|\n| `fix` | `main` |\n"
    assert outbound.excerpt(text) == "See types, main and no other. Type From fix main"


async def test_the_codex_is_searched(api: Api) -> None:
    found = (await api.get("/v1/codex/search?q=production%20tag")).json
    assert found["band"] == "high"
    assert 0 < len(found["hits"]) <= 8
    assert len(found["hits"][0]["excerpt"]) <= 242


# ── Machines ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_ready_means_store_index_and_every_platform(duet: FakeDuet) -> None:
    links = {"slack": Link(is_up=True), "discord": Link(is_up=True)}
    async with calling(duet, links=lambda: links) as api:
        ready = await api.get("/readyz")
        assert (ready.status, ready.json["checks"]) == (
            200,
            {"store": True, "index": True, "slack": True, "discord": True},
        )
        links["slack"] = Link(is_up=False)
        assert (await api.get("/readyz")).status == 503
        links["slack"] = Link(is_up=True)
        duet.figures = Status("m", 0, (), 0, None, None)
        assert (await api.get("/readyz")).json == {
            "ready": False,
            "checks": {"store": True, "index": False, "slack": True, "discord": True},
        }
        duet.store_is_down = True
        assert (await api.get("/readyz")).json["checks"]["store"] is False
        assert (await api.get("/healthz")).status == 200, "alive is not ready"


async def test_figures_are_told_to_prometheus(duet: FakeDuet) -> None:
    counts = {
        "heard": 2,
        "duplicates": 9,
        "duplicates/slack": 3,
        "turns/web/answered": 5,
        "turns/slack/failed": 1,
        "settled_turns": 6,
        "settled_ms": 12_500,
        "model_errors/ModelBusy": 4,
        "tokens/prompt": 1_000,
        "tokens/reply": 70,
        "commands/exit": 8,
        "sandbox_rooms": 2,
    }
    duet.figures = Status("m", 5, ("slack",), 1, 1_500, 250, counts)
    async with calling(duet, links=lambda: {"slack": Link(is_up=True, reconnects=7)}) as api:
        await api.post("/chat", {"sessionId": "secret-session", "message": "hi"})
        await api.get("/history?sessionId=secret-session")
        text = (await api.get("/metrics")).text
    told = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert told["duet_turns_total", "answered", "web"] == 5
    assert told["duet_turns_total", "failed", "slack"] == 1
    assert told["duet_duplicate_deliveries_total", "slack"] == 3
    assert told["duet_turn_seconds_sum",] == 12.5
    assert told["duet_turn_seconds_count",] == 6
    assert told["duet_queue_age_seconds",] == 1.5
    assert told["duet_outbox_age_seconds",] == 0.25
    assert told["duet_model_errors_total", "ModelBusy"] == 4
    assert told["duet_tokens_total", "prompt"] == 1_000
    assert told["duet_commands_total", "exit"] == 8
    assert told["duet_sandbox_rooms",] == 2
    assert told["duet_reconnects_total", "slack"] == 7
    assert told["duet_platform_up", "slack"] == 1
    assert told["duet_http_requests_total", "/chat", "200", "POST"] == 1
    assert "secret-session" not in text


async def test_made_up_methods_and_paths_make_no_new_figures(api: Api) -> None:
    for method in ("PURGE", "LINK", "TRACE", "PROPFIND"):
        for path in ("/one", "/two", "/api/three"):
            assert (await api.call(method, path)).status in (404, 405)
    text = (await api.get("/metrics")).text
    lines = re.findall(r"^duet_http_requests_total(\{.*\}) ", text, re.MULTILINE)
    assert sorted(lines) == [f'{{method="other",route="other",status="{status}"}}' for status in (404, 405)]


# ── The description ───────────────────────────────────────────────────────────────────────────────────────────────


def test_the_description_names_exactly_the_routes_that_exist() -> None:
    desk = Desk(FakeDuet(), lambda: "id", lambda: 0, Streams())
    app = build_app(desk, Guard("127.0.0.1", now_ms=lambda: 0))
    served = {
        (route.method, route.resource.canonical)
        for route in app.router.routes()
        if route.resource and route.method != "HEAD"
    }
    described = {(method.upper(), path) for path, operations in DESCRIPTION["paths"].items() for method in operations}
    page = {
        ("GET", "/"),
        ("GET", "/static/{name}"),
        ("GET", "/login"),
        ("POST", "/login"),
        ("POST", "/logout"),
    }
    assert served - page == described


async def test_the_description_is_served_as_it_stands(api: Api) -> None:
    assert (await api.get("/openapi.json")).json == DESCRIPTION


def test_the_description_is_an_openapi_document() -> None:
    names = set(re.findall(r'"#/components/(\w+/\w+)"', json.dumps(DESCRIPTION)))
    for name in names:
        kind, key = name.split("/")
        assert key in DESCRIPTION["components"][kind]
    ids = [op["operationId"] for operations in DESCRIPTION["paths"].values() for op in operations.values()]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("name", ["page.js", "answer.js", "panels.js", "api.js", "memory.js", "dom.js", "theme.js"])
def test_the_pages_scripts_open_no_door_for_html_but_one(name: str) -> None:
    text = (Path(__file__).parents[3] / "adapters/web/static" / name).read_text("utf-8")
    doors = len(re.findall(r"\binnerHTML\s*=|outerHTML\s*=|insertAdjacentHTML|document\.write|\beval\(", text))
    assert doors == (1 if name == "dom.js" else 0)
