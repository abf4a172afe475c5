from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.discord.world import World, discord_world


@pytest.fixture(scope="session")
def codex_index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("codex") / "index.db"


@pytest.fixture
def world(tmp_path: Path, codex_index: Path) -> Callable[..., AbstractAsyncContextManager[World]]:
    """Make worlds: `async with world(discord_threads=True) as w: …`."""

    def make(**options: Any) -> AbstractAsyncContextManager[World]:
        return discord_world(tmp_path / "home", codex_index, **options)

    return make
