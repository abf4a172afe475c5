"""`duet serve` and the command line on one database: what the page asked, `duet log` shows and `duet reset` clears."""

from __future__ import annotations

from pathlib import Path

import aiohttp

from tests.adapters.terminal_program import NO_ENGINE, Program
from tests.adapters.web.serving import Api
from tests.served import serve

QUESTION = "What is our branch naming convention?"


async def test_the_command_line_reads_joins_and_resets_a_session_of_the_page(tmp_path: Path) -> None:
    duet = Program(tmp_path)
    room = "web/local/s1"
    async with (
        serve(tmp_path, {"DUET_HOME": str(tmp_path / "home"), "DOCKER_HOST": NO_ENGINE}) as served,
        aiohttp.ClientSession() as session,
    ):
        api = Api(served.address, session)
        assert (await api.post("/chat", {"sessionId": "s1", "message": QUESTION})).json["outcome"] == "answered"

        (call,) = (await duet.call("log", "--room", room, "--json")).json["calls"]
        assert call["question"] == QUESTION

        asked = await duet.call("ask", "--room", room, "and for hotfixes?")
        assert asked.code == 0, asked.err
        said = (await api.get("/history?sessionId=s1")).json["messages"]
        assert [one["text"] for one in said if one["role"] == "user"] == [QUESTION, "and for hotfixes?"]

        cleared = await duet.call("reset", "--room", room, "--json")
        assert cleared.json["cleared"] is True
        assert (await api.get("/history?sessionId=s1")).json["messages"] == []
        assert (await api.get("/prompt-history?sessionId=s1")).json["calls"] == []

        again = await api.post("/chat", {"sessionId": "s1", "message": QUESTION})
        assert again.json["outcome"] == "answered"
        assert served.process.returncode is None
