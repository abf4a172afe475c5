"""The root's part that builds language models: settings -> one ChatModel, opened and closed.

Which: `models` in order where it is set; else what `model.url` says; else none, which is `offline`.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, cast

from bot.errors import BadInput, SettingsError
from bot.ports import ChatModel
from bot.profiles import profile_of
from bot.settings import Settings

if TYPE_CHECKING:
    from bot.drivers.chat_model import OpenAIModel
    from bot.drivers.local_model import LocalModel, Weights

OWN, LOCAL, OFFLINE = "model", "local", "offline"
MODELS_FOLDER = "models"
LOCAL_FIRST_SHARE = 0.75  # of a turn: on a busy machine the built-in model may take a minute to begin


@asynccontextmanager
async def open_model(settings: Settings, *, warm: bool = False) -> AsyncIterator[ChatModel]:
    """Give the configured language model; `warm` starts the built-in one at once, for a process that stays.

    Raises: BadInput when a model is named that is not described.
    """
    async with AsyncExitStack() as stack:
        models = [_opened(name, settings, stack, warm=warm) for name in chosen(settings)]
        if len(models) == 1:
            yield models[0]
        else:
            from bot.drivers.fallback import Fallback

            yield Fallback(models)


def chosen(settings: Settings) -> tuple[str, ...]:
    """Give the names of the models to ask, in order."""
    if settings.models:
        return settings.models
    if settings.model_url == LOCAL:
        return (LOCAL, OFFLINE)  # without its weights, memory or runtime there is still an answer
    return (OWN,) if settings.model_url else (OFFLINE,)


def _opened(name: str, settings: Settings, stack: AsyncExitStack, *, warm: bool) -> ChatModel:
    if name == OFFLINE:
        from bot.drivers.offline import Offline

        return Offline(stands_in=chosen(settings) != (OFFLINE,))
    if name == LOCAL:
        local = _local(settings)
        stack.push_async_callback(local.aclose)
        if warm:
            local.warm()
        return local
    model = _endpoint(_described(name, settings), settings.turn_timeout_s)
    stack.push_async_callback(model.aclose)
    return model


def _described(name: str, settings: Settings) -> Mapping[str, Any]:
    """Give what is set of an endpoint, under the keys of its table."""
    if name == OWN:
        if not settings.model_url or settings.model_url == LOCAL:
            raise SettingsError(["models names 'model', but DUET_MODEL_URL is not set to an address."])
        return {
            "url": settings.model_url,
            "name": settings.model_name,
            "key": settings.model_key,
            "profile": settings.model_profile,
            "context_tokens": settings.model_context_tokens,
            "max_reply_tokens": settings.model_max_reply_tokens,
            "first_token_s": settings.model_first_token_s,
        }
    tables = settings.endpoints or {}
    if name not in tables:
        known = [OWN, LOCAL, OFFLINE, *tables]
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there is {', '.join(known)}."
        raise SettingsError([f"models names {name!r}, which has no [endpoints.{name}] in duet.toml; {hint}"])
    table: Mapping[str, Any] = tables[name]
    return table


def _endpoint(table: Mapping[str, Any], turn_timeout_s: float) -> OpenAIModel:
    from bot.drivers.chat_model import Endpoint, OpenAIModel
    from bot.drivers.model_wire import Clocks

    name = str(table.get("name", ""))
    endpoint = Endpoint(str(table["url"]), name, str(table.get("key", "")).strip())
    profile = profile_of(
        endpoint.label,
        url=endpoint.url,
        prompts=cast(Literal["auto", "one", "split"], table.get("profile", "auto")),
        context_tokens=int(table.get("context_tokens") or 0),
        max_reply_tokens=int(table.get("max_reply_tokens") or 0),
    )
    clocks = Clocks.within(turn_timeout_s, first_s=float(table.get("first_token_s") or 0) or None)
    return OpenAIModel(endpoint, profile=profile, clocks=clocks)


def _local(settings: Settings) -> LocalModel:
    from bot.drivers.local_model import LocalModel

    first_s = settings.model_first_token_s or settings.turn_timeout_s * LOCAL_FIRST_SHARE
    return LocalModel(
        _weights(settings),
        _local_client(settings.turn_timeout_s, first_s),
        threads=settings.model_threads,
        patience_s=first_s,
    )


def _local_client(turn_timeout_s: float, first_s: float) -> Callable[[str, str], ChatModel]:
    def client(address: str, key: str) -> ChatModel:
        from bot.drivers.chat_model import Endpoint, OpenAIModel
        from bot.drivers.local_model import PROFILE, LocalModel
        from bot.drivers.model_wire import Clocks

        clocks = Clocks.within(turn_timeout_s, first_s=first_s)
        return OpenAIModel(Endpoint(address, LocalModel.name, key), profile=PROFILE, clocks=clocks)

    return client


def _weights(settings: Settings) -> Callable[[], Weights | None]:
    """Give what finds the weights: their hash is checked by the process that loads them."""

    def find() -> Weights | None:
        from bot.drivers.local_model import Weights
        from bot.drivers.packs import PACKS

        (file,) = PACKS[LOCAL].files
        path = settings.home_dir / MODELS_FOLDER / LOCAL / file.name
        return Weights(path, file.sha256, file.size_bytes) if path.exists() else None

    return find


async def serve_local(settings: Settings, *, port: int, ready: Callable[[str], None]) -> None:
    """Serve the built-in model on loopback until cancelled; `ready` hears its address.

    Raises: BadInput when it is not installed, ModelUnreachable when it cannot start.
    """
    from bot.drivers.local_model import INSTALL, LocalServer

    weights = _weights(settings)()
    if weights is None:
        raise BadInput(f"The built-in model's weights are not installed. {INSTALL}")
    server = LocalServer(weights, threads=settings.model_threads, port=port)
    try:
        ready(await server.start())
        await server.wait()
    finally:
        await asyncio.shield(server.stop())
