"""The scenes with a model, commands and a person's yes. Apart from the others: one simcord at a time in one loop."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.adapters.all_peers import PEERS
from tests.sandbox_engine import TINY, bench
from tests.scenario import WORK, Peer, Scene, replies
from tests.scripted_model import ScriptedModel

# Slack takes a message a second, so these scenes take half a minute a peer: each double and each way in by default.
LONG_FORM = ("slack-double-http", "local-slack-sockets")
WORKING = [pytest.param(name, marks=pytest.mark.slow if name in LONG_FORM else ()) for name in PEERS]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=WORKING, ids=str)
async def working_peer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Peer]:
    """One program a peer, with a language model, a sandbox, and commands that wait for a person's yes."""
    folder = tmp_path_factory.mktemp("working-peer")
    async with ScriptedModel(replies) as model:
        settings = {"DUET_MODEL_URL": model.url, "DUET_MODEL": "scripted", "DUET_COMMANDS": "ask"}
        with contextlib.nullcontext({}) if request.param == "simcord" else engine(folder) as sandbox:
            async with PEERS[request.param](folder, more=settings | sandbox) as opened:
                yield opened


@contextlib.contextmanager
def engine(folder: Path) -> Iterator[dict[str, str]]:
    """Give the settings of a real sandbox; the containers of the program in `folder` go in the end."""
    with bench(folder) as made:
        try:
            yield {"DOCKER_HOST": made.address, "DUET_SANDBOX_IMAGE": TINY, "DUET_SANDBOX_POOL": "0"}
        finally:
            with contextlib.suppress(FileNotFoundError):
                made.install_id = (folder / "home" / "install-id").read_text("ascii").strip()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("scene", WORK, ids=lambda scene: scene.__name__)
async def test_the_work_is_done(working_peer: Peer, scene: Scene) -> None:
    await scene(working_peer)
