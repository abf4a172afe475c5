"""Every platform that the scenes are played on; another platform adds its peers here."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from tests.adapters.discord import peers as discord
from tests.adapters.slack import peers as slack
from tests.scenario import Peer


class Opener(Protocol):
    """Starts Duet on a platform, in a folder, with the settings of `more` on top."""

    def __call__(self, folder: Path, *, more: Mapping[str, str] = ...) -> AbstractAsyncContextManager[Peer]: ...


PEERS: dict[str, Opener] = {
    "slack-double-sockets": functools.partial(slack.open_double, http=False),
    "slack-double-http": functools.partial(slack.open_double, http=True),
    "local-slack-sockets": functools.partial(slack.open_local_slack, http=False),
    "local-slack-http": functools.partial(slack.open_local_slack, http=True),
    "discord-wire": functools.partial(discord.open_wire, threads=False),
    "discord-wire-threads": functools.partial(discord.open_wire, threads=True),
    "simcord": discord.open_simcord,
}
