"""Frozen settings: flags over environment over `.env` over `duet.toml` over defaults; all faults told at once.

Every setting is `a.b` in TOML and `DUET_A_B` (or the name in its `env`) outside. Both files are looked for in the
working folder. To add one, add a field: README's table and `duet config` are made from the fields.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, cast

from bot.errors import SettingsError
from bot.setting_checks import (
    Check,
    at_least,
    did_you_mean,
    endpoints_fault,
    model_address,
    one_of,
    port,
    rooms_fault,
    starts_with,
    unreadable,
    web_address,
)

Origin = Literal["flag", "environment", ".env", "duet.toml", "default"]


def setting(
    default: Any, key: str, help: str, *, env: str = "", secret: bool = False, check: Check | None = None
) -> Any:
    """Declare a field: `key` is its place in TOML, `env` its name outside (default: made from the key)."""
    name = env or "DUET_" + key.replace(".", "_").upper()
    return field(default=default, metadata={"key": key, "env": name, "help": help, "secret": secret, "check": check})


def default_home() -> Path:
    """Give the user's data folder for this program."""
    import platformdirs

    return Path(platformdirs.user_data_dir("duet"))


def sample_codex() -> Path:
    """Give the folder of the sample standards: beside the package in a checkout, inside it once installed."""
    beside = Path(__file__).parent.parent / "corpus"
    return beside if beside.is_dir() else Path(__file__).parent / "_data" / "corpus"


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set. Secrets are masked by `shown`, and `repr` hides them all."""

    home: Path | None = setting(None, "home", "data folder (default: the user's data folder)")
    codex: Path | None = setting(None, "codex", "folder of Markdown standards (default: the sample)")
    codex_globs: tuple[str, ...] = setting(
        ("*.md", "*.mdx", "*.markdown"), "codex_globs", "which files of the folder are documents"
    )
    codex_rooms: Mapping[str, str] | None = setting(
        None,
        "codex_rooms",
        'rooms that see a subfolder of the Codex instead of the rest: [codex_rooms] with "slack/T1/C1" = "mobile"',
        check=rooms_fault,
    )
    source_url: str = setting("", "source.url", "base address of links to the standards", check=web_address)

    model_url: str = setting(
        "", "model.url", "OpenAI-compatible address, ends before /chat/completions", check=model_address
    )
    model_name: str = setting("", "model.name", "the model's name at that address", env="DUET_MODEL")
    model_key: str = setting("", "model.key", "the key for that address", secret=True)
    model_profile: str = setting(
        "auto",
        "model.profile",
        "one prompt for all (one), a prompt for each task as small models need (split), or by the model's name (auto)",
        check=one_of("auto", "one", "split"),
    )
    model_context_tokens: int = setting(
        0, "model.context_tokens", "the model's context; 0 goes by its name", check=at_least(0)
    )
    model_max_reply_tokens: int = setting(
        0, "model.max_reply_tokens", "the longest reply; 0 goes by the model's name", check=at_least(0)
    )
    model_first_token_s: float = setting(
        0.0, "model.first_token_s", "seconds to wait for a reply to begin; 0 goes by the model", check=at_least(0)
    )
    model_threads: int = setting(
        0, "model.threads", "processors for the built-in model; 0 takes half of them, 4 at most", check=at_least(0)
    )
    models: tuple[str, ...] = setting(
        (), "models", "models in order, the next answers when one is down: model, local, offline, names of endpoints"
    )
    endpoints: Mapping[str, Any] | None = setting(
        None,
        "endpoints",
        "more models, in duet.toml: [endpoints.NAME] with url, name, key, profile",
        check=endpoints_fault,
    )
    budget_user_tokens: int = setting(
        0, "budget.user_tokens", "tokens that one person may use a day (UTC); 0 is no limit", check=at_least(0)
    )
    budget_room_tokens: int = setting(
        0, "budget.room_tokens", "tokens that one room may use a day (UTC); 0 is no limit", check=at_least(0)
    )
    budget_tokens: int = setting(
        0, "budget.tokens", "tokens that all together may use a day (UTC); 0 is no limit", check=at_least(0)
    )
    budget_price: float = setting(
        0.0, "budget.price", "price of a million tokens, for the cost that is shown", check=at_least(0)
    )
    turn_timeout_s: float = setting(120.0, "turn.timeout_s", "the whole turn's deadline in seconds", check=at_least(1))

    commands: str = setting(
        "auto",
        "commands",
        "auto runs commands, ask waits for a person, off refuses",
        check=one_of("auto", "ask", "off"),
    )
    policy_guests: bool = setting(False, "policy.guests", "guests may ask (never run)")
    policy_askers: tuple[str, ...] = setting((), "policy.askers", "ids of people or groups that may ask; empty: all")
    policy_approvers: tuple[str, ...] = setting((), "policy.approvers", "ids that may approve commands; empty: all")
    policy_resetters: tuple[str, ...] = setting((), "policy.resetters", "ids that may reset; empty: all")

    docker_host: str = setting("", "docker.host", "the Docker engine (default: the local socket)", env="DOCKER_HOST")
    docker_tls_verify: bool = setting(
        False, "docker.tls_verify", "use TLS with the engine and check its certificate", env="DOCKER_TLS_VERIFY"
    )
    docker_cert_path: Path | None = setting(
        None, "docker.cert_path", "folder of ca.pem, cert.pem and key.pem", env="DOCKER_CERT_PATH"
    )
    sandbox_image: str = setting("duet-sandbox:latest", "sandbox.image", "image of the sandbox")
    sandbox_runtime: str = setting("", "sandbox.runtime", "the engine's runtime, such as runsc (default: its own)")
    sandbox_network: str = setting("none", "sandbox.network", "the engine's network; anything but none lets data out")
    sandbox_userns: str = setting(
        "", "sandbox.userns", "host switches the engine's user remapping off", check=one_of("", "host")
    )
    sandbox_memory_mb: int = setting(
        256, "sandbox.memory_mb", "memory of a sandbox, its workspace included", check=at_least(16)
    )
    sandbox_workspace_mb: int = setting(64, "sandbox.workspace_mb", "size of a workspace", check=at_least(1))
    sandbox_pids: int = setting(64, "sandbox.pids", "processes and threads in a sandbox", check=at_least(16))
    sandbox_cpus: float = setting(0.5, "sandbox.cpus", "processors that a sandbox may keep busy", check=at_least(0.05))
    sandbox_timeout_s: float = setting(
        30.0, "sandbox.timeout_s", "seconds until a command is stopped", check=at_least(0.1)
    )
    sandbox_pool: int = setting(2, "sandbox.pool", "sandboxes kept ready for new rooms", check=at_least(0))
    sandbox_rooms_at_once: int = setting(
        8, "sandbox.rooms_at_once", "rooms whose commands run side by side", check=at_least(1)
    )
    sandbox_stop_after_s: float = setting(
        900.0, "sandbox.stop_after_s", "idle seconds until a sandbox is stopped, its files kept", check=at_least(1)
    )
    sandbox_remove_after_s: float = setting(
        86_400.0, "sandbox.remove_after_s", "idle seconds until a sandbox and its files are removed", check=at_least(1)
    )

    slack_bot_token: str = setting(
        "", "slack.bot_token", "Slack bot token", env="SLACK_BOT_TOKEN", secret=True, check=starts_with("xoxb-")
    )
    slack_app_token: str = setting(
        "",
        "slack.app_token",
        "Slack app token (Socket Mode)",
        env="SLACK_APP_TOKEN",
        secret=True,
        check=starts_with("xapp-"),
    )
    slack_signing_secret: str = setting(
        "", "slack.signing_secret", "Slack signing secret (HTTP events)", env="SLACK_SIGNING_SECRET", secret=True
    )
    slack_api_url: str = setting(
        "https://slack.com/api/",
        "slack.api_url",
        "Slack Web API, ends in /api/",
        env="SLACK_API_URL",
        check=web_address,
    )

    slack_follow: str = setting(
        "threads",
        "slack.follow",
        "answer mentions only (mention), also follow-ups in threads Duet is in (threads), or everything (all)",
        check=one_of("mention", "threads", "all"),
    )
    slack_markdown: bool = setting(
        True, "slack.markdown", "use Slack's newer blocks (markdown, table, container); off for old workspaces"
    )
    slack_sockets: int = setting(
        2,
        "slack.sockets",
        "Socket Mode connections of this process: one always stands while another is renewed",
        check=at_least(1),
    )

    discord_token: str = setting("", "discord.token", "Discord bot token", env="DISCORD_TOKEN", secret=True)
    discord_api_base: str = setting(
        "", "discord.api_base", "Discord REST address, for a double", env="DISCORD_API_BASE", check=web_address
    )
    discord_gateway: str = setting(
        "", "discord.gateway", "Discord gateway address, for a double", env="DISCORD_GATEWAY"
    )
    discord_guild: str = setting(
        "",
        "discord.guild",
        "id of the one Discord server to register commands in (default: everywhere)",
        check=lambda value: (
            None if not value or value.isdigit() else f"must be a server id, digits only, not {value!r}"
        ),
    )
    discord_threads: bool = setting(
        False, "discord.threads", "open a Discord thread for each question asked in a text channel"
    )
    discord_message_content: bool = setting(
        False,
        "discord.message_content",
        "use Discord's Message Content intent: answer in joined threads without a mention",
    )
    discord_shards: int = setting(
        1, "discord.shards", "Discord gateway connections; 0 takes as many as Discord recommends", check=at_least(0)
    )
    discord_catch_up_s: float = setting(
        3600.0, "discord.catch_up_s", "answer Discord mentions missed for at most this long; 0 never", check=at_least(0)
    )

    http_host: str = setting("127.0.0.1", "http.host", "address that `duet serve` listens on")
    http_port: int = setting(8787, "http.port", "port that `duet serve` listens on; 0 takes any free one", check=port)
    http_token: str = setting("", "http.token", "token that HTTP callers need; required beyond loopback", secret=True)
    http_hosts: tuple[str, ...] = setting(
        (), "http.hosts", "further names that HTTP callers may use, as behind a proxy; comma-separated"
    )

    log_level: str = setting(
        "INFO", "log.level", "DEBUG, INFO, WARNING or ERROR", check=one_of("DEBUG", "INFO", "WARNING", "ERROR")
    )
    log_keep_days: int = setting(
        90, "log.keep_days", "days that the prompt log of `duet log` is kept; 0 is for ever", check=at_least(0)
    )

    origins: Mapping[str, Origin] = field(default_factory=dict, repr=False, compare=False)

    def __repr__(self) -> str:
        return "Settings(…)"

    @property
    def home_dir(self) -> Path:
        return self.home or default_home()

    @property
    def codex_dir(self) -> Path:
        return self.codex or sample_codex()

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every secret value that is set: what redaction must never let out."""
        own = (getattr(self, f.name) for f in declared() if f.metadata["secret"])
        of_endpoints = (str(table.get("key", "")) for table in (self.endpoints or {}).values())
        return tuple(value for value in (*own, *of_endpoints) if value)

    def shown(self) -> list[tuple[str, str, object, Origin]]:
        """Give (key, environment name, value with secrets masked, origin) of every setting, in order."""
        return [
            (f.metadata["key"], f.metadata["env"], self._visible(f), self.origins.get(f.name, "default"))
            for f in declared()
        ]

    def _visible(self, f: Field[Any]) -> object:
        value = {"home": self.home_dir, "codex": self.codex_dir}.get(f.name, getattr(self, f.name))
        if f.metadata["secret"]:
            return masked(value)
        if f.name == "endpoints":
            return {name: _table_shown(table) for name, table in (value or {}).items()}
        if isinstance(value, str):
            return _PASSWORD.sub("…", value)
        return str(value) if isinstance(value, Path) else value


def declared() -> list[Field[Any]]:
    """Give the fields that are settings."""
    return [f for f in fields(Settings) if "key" in f.metadata]


_PASSWORD = re.compile(r"(?<=://)[^/?#@\s]*:[^/?#\s]*(?=@)")  # in an address, with the name before it


def _table_shown(table: Mapping[str, Any]) -> dict[str, Any]:
    """Give an endpoint's table with its key and a password in its address masked."""
    address = _PASSWORD.sub("…", str(table.get("url", "")))
    return {**table, "url": address, "key": masked(str(table.get("key", "")))}


def masked(secret: str) -> str:
    """Give enough of a secret to know it by: `xoxb-…1a2b`, or `…` where it is short."""
    if not secret:
        return ""
    head = secret.split("-", 1)[0] + "-" if "-" in secret[:6] else ""
    return f"{head}…{secret[-4:]}" if len(secret) >= 16 else "…"


def load_settings(
    flags: Mapping[str, Any] | None = None, *, environ: Mapping[str, str] | None = None, folder: Path | None = None
) -> Settings:
    """Read every layer and give the settings.

    `flags` maps field names to values, None meaning not given. Raises: SettingsError with a sentence for each fault.
    """
    environ = os.environ if environ is None else environ
    folder = Path.cwd() if folder is None else folder
    faults: list[str] = []
    toml = _read_toml(folder / "duet.toml", faults)
    dotenv = _read_dotenv(folder / ".env", faults)
    faults += _unknown_names(toml, environ, dotenv)
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    for f in declared():
        layers: list[tuple[Origin, Any]] = [
            ("flag", (flags or {}).get(f.name)),
            ("environment", environ.get(f.metadata["env"]) or None),
            (".env", dotenv.get(f.metadata["env"]) or None),
            ("duet.toml", toml.get(f.metadata["key"])),
        ]
        for origin, raw in layers:
            if raw is not None:
                label = f.metadata["env"] if origin in ("environment", ".env") else f.metadata["key"]
                values[f.name], origins[f.name] = _converted(f, raw, f"{label} ({origin})", faults, folder), origin
                break
    if faults:
        raise SettingsError(faults)
    return Settings(**values, origins=origins)


def _read_toml(path: Path, faults: list[str]) -> dict[str, Any]:
    """Give the file's values by dotted key; nothing when there is no file."""
    try:
        return _flattened(tomllib.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        faults.append(f"duet.toml cannot be read: {unreadable(error)}. Mend it or move it away.")
        return {}


def _flattened(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    known = {f.metadata["key"] for f in declared()}
    flat: dict[str, Any] = {}
    for name, value in table.items():
        key = prefix + name
        if isinstance(value, dict) and key not in known:
            flat |= _flattened(value, key + ".")
        else:
            flat[key] = value
    return flat


def _read_dotenv(path: Path, faults: list[str]) -> dict[str, str]:
    if not path.is_file():
        return {}
    from dotenv import dotenv_values

    try:
        return {name: value for name, value in dotenv_values(path, interpolate=False).items() if value is not None}
    except (OSError, UnicodeDecodeError) as error:
        faults.append(f".env cannot be read: {unreadable(error)}. Mend it or move it away.")
        return {}


def _unknown_names(toml: Mapping[str, Any], environ: Mapping[str, str], dotenv: Mapping[str, str]) -> list[str]:
    """Name each key or `DUET_…` variable that is no setting, with the nearest that is."""
    keys = [f.metadata["key"] for f in declared()]
    envs = [f.metadata["env"] for f in declared()]
    faults = [f"duet.toml: unknown setting {name!r}{did_you_mean(name, keys)}" for name in toml if name not in keys]
    for origin, names in (("environment", environ), (".env", dotenv)):
        ours = [
            name for name in names if name.startswith("DUET_") and not name.startswith(("DUET_TEST_", "DUET_COMPLETE"))
        ]
        faults += [f"{origin}: unknown setting {name}{did_you_mean(name, envs)}" for name in ours if name not in envs]
    return faults


def _converted(f: Field[Any], raw: Any, label: str, faults: list[str], folder: Path) -> Any:
    """Give `raw` as the field's type, checked; on a fault note it and give the default."""
    kind = cast(str, f.type)
    try:
        value = _as_type(kind, raw, folder)
    except (KeyError, TypeError, ValueError):
        wanted = {"int": "a whole number", "float": "a number", "bool": "true or false"}.get(kind.split(" ")[0], "text")
        faults.append(f"{label} must be {wanted}" + ("" if f.metadata["secret"] else f", not {raw!r}") + ".")
        return f.default
    check: Check | None = f.metadata["check"]
    if check and (fault := check(value)):
        faults.append(f"{label} {fault}" + ("" if fault.endswith(("?", ".")) else "."))
    return value


def _as_type(kind: str, raw: Any, folder: Path) -> Any:
    if kind.startswith("Path") and isinstance(raw, (str, Path)):
        return (folder / Path(str(raw)).expanduser()).resolve()
    if kind == "bool":
        return (
            raw
            if isinstance(raw, bool)
            else {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[str(raw).lower()]
        )
    if kind.startswith("tuple"):
        return (
            tuple(str(item) for item in raw)
            if isinstance(raw, list)
            else tuple(part.strip() for part in str(raw).split(",") if part.strip())
        )
    if kind.startswith("Mapping"):
        return dict(pair.strip().split("=", 1) for pair in raw.split(",")) if isinstance(raw, str) else dict(raw)
    is_cut = kind == "int" and isinstance(raw, float) and not raw.is_integer()
    if isinstance(raw, (bool, dict, list)) or is_cut or kind.startswith("Path"):
        raise TypeError(kind)
    return {"int": int, "float": float}.get(kind, str)(raw)
