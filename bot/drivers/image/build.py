"""The sandbox's image made: from the Dockerfile where its base can be had, else from Debian packages alone."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bot.drivers.engine import Engine
from bot.errors import SandboxUnavailable

if TYPE_CHECKING:
    from docker import APIClient

BASE = ("debian", "12-slim")
RECIPE_LABEL = "duet.recipe"
BUILD_LIMIT_S = 1_800.0
SETTINGS = (
    "USER 1000:1000",
    "ENV PATH=/usr/local/bin:/usr/bin:/bin HOME=/workspace LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1",
    'CMD ["sleep","infinity"]',
)


def recipe_hash() -> str:
    """Give the short name of what the image is made from; the image bears it as a label."""
    folder = files(__package__)
    text = b"".join((folder / name).read_bytes() for name in ("Dockerfile", "recipe.sh"))
    return hashlib.sha256(text).hexdigest()[:16]


async def build_image(engine: Engine, image: str, *, progress: Callable[[str], None]) -> str:
    """Build `image` (`name:tag`) and give its id; `progress` hears each step, the way chosen first.

    Raises: SandboxUnavailable, with the reason of either way.
    """
    loop = asyncio.get_running_loop()

    def tell(line: str) -> None:
        loop.call_soon_threadsafe(progress, line)

    return await engine.stream(lambda api: _built(api, image, tell), limit_s=BUILD_LIMIT_S, abort=lambda: None)


def _built(api: APIClient, image: str, tell: Callable[[str], None]) -> str:
    fault = _base_fault(api, tell)
    if fault:
        tell(f"{':'.join(BASE)} cannot be had ({fault}): using the recipe, from Debian packages.")
        _import(api, image, tell)
    else:
        tell(f"Using the Dockerfile, on {':'.join(BASE)}.")
        _docker_build(api, image, tell)
    seen: dict[str, Any] = api.inspect_image(image)  # type: ignore[no-untyped-call]  # untyped there
    tell(f"{image} is ready ({seen['Size'] / 1e6:.0f} MB).")
    return str(seen["Id"])


def _base_fault(api: APIClient, tell: Callable[[str], None]) -> str:
    """Pull the base; give why it cannot be had, '' when it is there."""
    from docker.errors import APIError, ImageNotFound

    name = ":".join(BASE)
    tell(f"Pulling {name}…")
    try:
        api.pull(*BASE)
        return ""
    except APIError as error:
        try:
            api.inspect_image(name)  # type: ignore[no-untyped-call]  # untyped there
        except ImageNotFound:
            return str(error.explanation or error)
        tell(f"{name} could not be pulled; the one that is on the engine is used.")
        return ""


def _docker_build(api: APIClient, image: str, tell: Callable[[str], None]) -> None:
    with as_file(files(__package__)) as folder, tempfile.TemporaryDirectory() as context:
        shutil.copy(folder / "Dockerfile", context)
        steps: Iterator[dict[str, Any]] = api.build(
            path=context,
            tag=image,
            rm=True,
            forcerm=True,
            decode=True,
            labels={RECIPE_LABEL: recipe_hash()},
            # apt needs a network: an engine without a bridge has none for builds but its machine's own.
            network_mode=None if api.networks(names=["bridge"]) else "host",
        )
        for step in steps:
            if error := step.get("error"):
                raise SandboxUnavailable(f"The image could not be built: {error}")
            if line := str(step.get("stream", "")).strip():
                tell(line)


def _import(api: APIClient, image: str, tell: Callable[[str], None]) -> None:
    if not shutil.which("mmdebstrap"):
        raise SandboxUnavailable(
            "The image cannot be built here: its base cannot be pulled, and there is no mmdebstrap.",
            mend="Let the engine reach a registry, or install mmdebstrap on a Debian or Ubuntu machine.",
        )
    with as_file(files(__package__)) as folder, tempfile.TemporaryDirectory() as made:
        tar = Path(made) / "rootfs.tar"
        _run_recipe(folder / "recipe.sh", tar, tell)
        tell(f"Importing {tar.stat().st_size / 1e6:.0f} MB…")
        name, _, tag = image.rpartition(":")
        api.import_image(
            src=str(tar),
            repository=name or image,
            tag=tag if name else "latest",
            changes=[*SETTINGS, f"LABEL {RECIPE_LABEL}={recipe_hash()}"],
        )


def _run_recipe(recipe: Path, tar: Path, tell: Callable[[str], None]) -> None:
    with subprocess.Popen(  # noqa: S603 - our own script and a path of ours
        ["/bin/sh", str(recipe), str(tar)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        last = ""
        for line in process.stdout or ():
            last = line.strip() or last
            if line.startswith("I: ") and "hook" not in line and "tempdir" not in line:
                tell(line[3:].strip().capitalize() + ".")
    if process.returncode:
        raise SandboxUnavailable(f"The image could not be built: {last}", mend="Run it as root on Debian or Ubuntu.")


async def _main(image: str) -> None:
    from bot.drivers.engine import Address
    from bot.settings import load_settings

    settings = load_settings()
    engine = Engine(Address(settings.docker_host), streams=1)
    try:
        await build_image(engine, image, progress=lambda line: print(line, file=sys.stderr, flush=True))
    finally:
        engine.close()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1]))
