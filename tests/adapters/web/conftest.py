"""The scripted core, served: `duet` is what a test scripts and looks into, `api` is how it calls."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.adapters.web.fake_duet import FakeDuet
from tests.adapters.web.serving import Api, calling


@pytest.fixture
def duet() -> FakeDuet:
    return FakeDuet()


@pytest.fixture
async def api(duet: FakeDuet) -> AsyncIterator[Api]:
    async with calling(duet) as api:
        yield api
