"""What is done beside answering: the checks of `duet doctor`, the sandbox's image, packs of weights.

A root like `bot.app`: it builds single drivers, asks them one thing and closes them.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable
from urllib.parse import urlsplit

from bot.checks import Check, Health
from bot.errors import BadInput, DuetError
from bot.settings import Settings

if TYPE_CHECKING:
    from bot.drivers.engine import Engine

MODELS_FOLDER = "models"


@runtime_checkable
class _Checked(Protocol):
    async def checks(self) -> list[Check]: ...


async def build_image(settings: Settings, *, progress: Callable[[str], None]) -> None:
    """Make the sandbox's image on the configured engine; `progress` hears each step. Raises: SandboxUnavailable."""
    from bot.drivers.image.build import build_image as build

    engine = _engine(settings)
    try:
        await build(engine, settings.sandbox_image, progress=progress)
    finally:
        engine.close()


def install_pack(
    settings: Settings, name: str, *, confirm: Callable[[str], bool], progress: Callable[[str, int, int], None]
) -> bool:
    """Fetch a pack of weights; False when `confirm` said no. Raises: BadInput."""
    from bot.drivers import packs

    models = settings.home_dir / MODELS_FOLDER
    return packs.install(packs.find_pack(name), models, confirm=confirm, progress=progress) is not None


async def checks(settings: Settings, *, offline: bool) -> list[Check]:
    """Look at everything but the platforms; `offline` opens no connection to a model."""
    from bot.drivers.database_checks import database_checks

    found = [_python(), *_dotenv(Path.cwd() / ".env"), *database_checks(settings.home_dir)]
    found += await _codex(settings)
    found += await _model(settings, offline=offline)
    return found + _packs(settings) + await _sandbox(settings)


def _python() -> Check:
    return Check("python", Health.OK, f"Python {platform.python_version()} on {platform.system()}")


def _dotenv(path: Path) -> list[Check]:
    """Others must not read a file of secrets."""
    if not path.is_file():
        return []
    if path.stat().st_mode & 0o077:
        return [Check(".env", Health.WARN, "other users of this machine can read it", "chmod 600 .env")]
    return [Check(".env", Health.OK, "only you can read it")]


async def _codex(settings: Settings) -> list[Check]:
    from bot.app import open_codex

    try:
        codex = await open_codex(settings)
    except DuetError as error:
        return [Check("codex", Health.FAIL, str(error), "Set DUET_CODEX to a folder of Markdown files.")]
    try:
        return list(codex.checks())
    finally:
        await codex.close()


async def _model(settings: Settings, *, offline: bool) -> list[Check]:
    from bot.model_choice import open_model

    if offline and settings.model_url:
        return [
            Check(
                "language model",
                Health.OK,
                f"{urlsplit(settings.model_url).hostname or 'local'} (not called: --offline)",
            )
        ]
    try:
        async with open_model(settings) as model:
            return await model.checks() if isinstance(model, _Checked) else []
    except BadInput as error:
        return [Check("language model", Health.FAIL, str(error), "Mend the setting that it names.")]


def _packs(settings: Settings) -> list[Check]:
    from bot.drivers import packs

    models = settings.home_dir / MODELS_FOLDER
    return [check for pack in packs.PACKS.values() for check in packs.checks(pack, models)]


def _engine(settings: Settings) -> Engine:
    from bot.drivers.engine import Address, Engine

    certificates = str(settings.docker_cert_path or "")
    address = Address(settings.docker_host, tls_verify=settings.docker_tls_verify, certificates=certificates)
    return Engine(address, streams=1)


async def _sandbox(settings: Settings) -> list[Check]:
    from bot.app import install_id
    from bot.drivers.container import SandboxSpec
    from bot.drivers.sandbox_checks import checks as sandbox_checks

    is_used = (settings.home_dir / "install-id").exists()
    home = install_id(settings.home_dir) if is_used else "doctor"
    return await sandbox_checks(SandboxSpec.of(settings), install_id=home)
