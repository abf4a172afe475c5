"""The one suite of scenes, played on every platform by the shipped program."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.adapters.all_peers import PEERS
from tests.scenario import SCENES, Peer, Scene


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=PEERS, ids=str)
async def peer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Peer]:
    """One program a peer, for all scenes: they are played one after the other in one channel, as in life."""
    async with PEERS[request.param](tmp_path_factory.mktemp("peer")) as opened:
        yield opened


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
async def test_the_scene_plays(peer: Peer, scene: Scene) -> None:
    await scene(peer)
