"""The one suite of scenes, played on every platform by the shipped program."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

import pytest
import pytest_asyncio

from tests.adapters.discord import peers as discord
from tests.adapters.slack import peers as slack
from tests.sandbox_engine import TINY, bench
from tests.scenario import SCENES, WORK, Peer, Scene, replies
from tests.scripted_model import ScriptedModel


class Opener(Protocol):
    """Starts Duet on a platform, in a folder, with the settings of `more` on top."""

    def __call__(self, folder: Path, *, more: Mapping[str, str] = ...) -> AbstractAsyncContextManager[Peer]: ...


# Another platform adds its peers here.
PEERS: dict[str, Opener] = {
    "slack-double-sockets": functools.partial(slack.open_double, http=False),
    "slack-double-http": functools.partial(slack.open_double, http=True),
    "local-slack-sockets": functools.partial(slack.open_local_slack, http=False),
    "local-slack-http": functools.partial(slack.open_local_slack, http=True),
    "discord-wire": functools.partial(discord.open_wire, threads=False),
    "discord-wire-threads": functools.partial(discord.open_wire, threads=True),
    "simcord": discord.open_simcord,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=PEERS, ids=str)
async def peer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Peer]:
    """One program a peer, for all scenes: they are played one after the other in one channel, as in life."""
    async with PEERS[request.param](tmp_path_factory.mktemp("peer")) as opened:
        yield opened


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
async def test_the_scene_plays(peer: Peer, scene: Scene) -> None:
    await scene(peer)


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
