"""The root: build everything from settings, close it in reverse."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from bot.budget import Caps
from bot.duet import Duet
from bot.model_choice import open_model
from bot.policy import Policy
from bot.redaction import Redactor
from bot.settings import Settings

if TYPE_CHECKING:
    from bot.drivers.codex import Codex
    from bot.drivers.sandbox import DockerSandbox
    from bot.drivers.store import SqliteStore
    from bot.ports import ChatModel

DRAIN_S = 20.0


@dataclass(frozen=True, slots=True)
class Parts:
    """What the fronts are handed. They talk to `duet`; the rest is for commands that read or keep house."""

    settings: Settings
    duet: Duet
    codex: Codex
    model: ChatModel
    sandbox: DockerSandbox
    store: SqliteStore
    redact: Redactor


def now_ms() -> int:
    """Give the time of now in UTC milliseconds."""
    return time.time_ns() // 1_000_000


def new_id() -> str:
    return uuid.uuid4().hex


@asynccontextmanager
async def open_duet(settings: Settings, *, keeps_house: bool = False, drain_s: float = DRAIN_S) -> AsyncIterator[Parts]:
    """Build Duet from settings; attach outlets, then call `parts.duet.start()`.

    `keeps_house` is for a process that stays: it sweeps, watches the Codex and keeps sandboxes ready. Leaving waits up
    to `drain_s` for the turns that run. Raises: BadInput, StoreUnavailable.
    """
    from bot.drivers.container import SandboxSpec
    from bot.drivers.sandbox import DockerSandbox
    from bot.drivers.store import SqliteStore

    async with AsyncExitStack() as stack:
        store = SqliteStore(settings.home_dir, now=now_ms)
        await store.open()
        stack.push_async_callback(store.close)
        redact = Redactor(settings.secrets)
        codex = await open_codex(settings)
        stack.push_async_callback(codex.close)
        model = await stack.enter_async_context(open_model(settings, warm=keeps_house))
        spec = SandboxSpec.of(settings)
        sandbox = DockerSandbox(
            spec, home=settings.home_dir, install_id=install_id(settings.home_dir), ledger=store, clock=now_ms
        )
        stack.push_async_callback(sandbox.close)
        duet = Duet(
            store,
            model,
            codex,
            sandbox,
            policy=policy_of(settings, loosened=spec.looser),
            redact=redact,
            now=now_ms,
            new_id=new_id,
            turn_timeout_s=settings.turn_timeout_s,
        )
        if keeps_house:
            stack.push_async_callback(_ended, _housekeeping(store, sandbox, codex, settings.log_keep_days))
        stack.push_async_callback(duet.close, drain_s=drain_s)
        yield Parts(settings, duet, codex, model, sandbox, store, redact)


def policy_of(settings: Settings, *, loosened: tuple[str, ...] = ()) -> Policy:
    """Give the team's policy from its settings."""
    return Policy(
        commands=cast(Literal["auto", "ask", "off"], settings.commands),
        guests=settings.policy_guests,
        askers=settings.policy_askers,
        approvers=settings.policy_approvers,
        resetters=settings.policy_resetters,
        loosened=loosened,
        caps=Caps(settings.budget_user_tokens, settings.budget_room_tokens, settings.budget_tokens),
    )


async def open_codex(settings: Settings) -> Codex:
    """Open the index of the standards and take in what changed. Raises: CodexUnreadable."""
    from bot.drivers import embedding, packs
    from bot.drivers.codex import Codex

    models = settings.home_dir / "models"
    return await Codex.open(
        settings.codex_dir,
        index_path(settings),
        base_url=settings.source_url,
        globs=settings.codex_globs,
        rooms=settings.codex_rooms,
        load_model=lambda: embedding.load_embedder(lambda: packs.located(packs.SEMANTIC, models)),
    )


def index_path(settings: Settings) -> Path:
    """Give where the index of this Codex folder lies: one file a folder, all derived and disposable."""
    import hashlib

    digest = hashlib.sha256(os.fsencode(settings.codex_dir.resolve())).hexdigest()[:12]
    settings.home_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    return settings.home_dir / f"codex-{digest}.db"


def install_id(home: Path) -> str:
    """Give the random name of this data folder, made at first use: containers carry it as a label."""
    path = home / "install-id"
    if not path.exists():
        fresh = home / f"install-id.{new_id()}"
        fresh.write_text(new_id()[:12], "ascii")
        with suppress(FileExistsError):
            path.hardlink_to(fresh)  # whoever comes first gives the name
        fresh.unlink()
    return path.read_text("ascii").strip()


def _housekeeping(store: SqliteStore, sandbox: DockerSandbox, codex: Codex, keep_days: int) -> list[asyncio.Task[None]]:
    from bot.housekeeping import Housekeeping

    upkeep = sandbox.upkeep
    house = Housekeeping(store, sweep=upkeep.sweep, reconcile=upkeep.reconcile, now=now_ms, keep_days=keep_days)
    return [
        asyncio.create_task(house.run(), name="duet-housekeeping"),
        asyncio.create_task(codex.watch(), name="duet-codex-watch"),
    ]


async def _ended(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
