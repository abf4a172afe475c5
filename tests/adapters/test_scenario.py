"""The one suite of scenes, played on every platform by the shipped program."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import pytest_asyncio

from tests.adapters.discord import peers as discord
from tests.adapters.slack import peers as slack
from tests.scenario import SCENES, Peer, Scene

Opener = Callable[[Path], AbstractAsyncContextManager[Peer]]

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
