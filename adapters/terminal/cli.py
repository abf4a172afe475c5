"""The command line's own manners: flags that stand for settings, one JSON object, one sentence for a fault."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

if TYPE_CHECKING:
    from bot.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])
EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED, EXIT_NOT_STARTED = 1, 2, 130, 125


@dataclass(slots=True)
class Call:
    """One call of the program: which settings were given as flags, and whether the answer is JSON."""

    flags: dict[str, Any] = field(default_factory=dict)
    as_json: bool = False
    logs_to_file: bool = True

    def settings(self) -> Settings:
        """Read the settings and set up the log: beside the data, where both streams belong to a person.

        Raises: SettingsError.
        """
        from bot.logs import set_up_logging
        from bot.redaction import Redactor
        from bot.settings import load_settings

        settings = load_settings(self.flags)
        file = settings.home_dir / "duet.log" if self.logs_to_file else None
        set_up_logging(settings.log_level, Redactor(settings.secrets), file=file)
        return settings

    def print(self, text: str, value: Callable[[], object]) -> None:
        """Print the result: `value` as JSON where that was asked for, else the text."""
        from adapters.terminal.outbound import dumped

        click.echo(dumped(value()) if self.as_json else text)


_pass_call = click.make_pass_decorator(Call, ensure=True)


def _note(name: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    def keep(ctx: click.Context, _: click.Parameter, value: Any) -> Any:
        if value is not None:
            ctx.ensure_object(Call).flags[name] = value
        return value

    return keep


def _note_settings(ctx: click.Context, _: click.Parameter, pairs: tuple[str, ...]) -> None:
    from bot.setting_checks import did_you_mean
    from bot.settings import declared

    names = {f.metadata["key"]: f.name for f in declared()}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign or key not in names:
            near = did_you_mean(key, list(names)) if sign else "; a value follows its key: KEY=VALUE"
            raise click.BadParameter(f"{pair!r} sets nothing{near}")
        ctx.ensure_object(Call).flags[names[key]] = value


def _note_json(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    ctx.ensure_object(Call).as_json |= value


def with_settings(command: F) -> F:
    """Add the flags that stand for settings."""
    for name, flag, metavar, help in (
        ("model_name", "--model", "NAME", "The model's name there."),
        ("model_url", "--model-url", "URL", "OpenAI-compatible address, ends before /chat/completions."),
        ("codex", "--codex", "DIR", "Folder of Markdown standards."),
        ("home", "--home", "DIR", "Data folder."),
    ):
        option = click.option(flag, name, metavar=metavar, help=help, expose_value=False, callback=_note(name))
        command = option(command)
    keep = click.option(
        "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Any setting of `duet config`; may be repeated.",
        expose_value=False, callback=_note_settings,
    )  # fmt: skip
    return keep(command)


_as_json = click.option("--json", is_flag=True, expose_value=False, callback=_note_json, help="Print one JSON object.")


def acting(command: F) -> F:
    """Add the settings' flags and pass the `Call`."""
    return cast(F, with_settings(_pass_call(command)))


def reading(command: F) -> F:
    """The same, with `--json`."""
    return _as_json(acting(command))


in_room = click.option(
    "--room", default="main", show_default=True, metavar="ROOM", help="A name, or a key of `duet rooms`."
)
in_thread = click.option("--thread", metavar="THREAD", help="A conversation of its own inside the room.")


def given(words: tuple[str, ...]) -> str:
    """Give what was typed as one text; a single - stands for the input."""
    if words == ("-",):
        return sys.stdin.buffer.read().decode("utf-8", "replace")
    return " ".join(words)


def done(call: Call, work: Awaitable[int]) -> int:
    """Run the work to its end; a fault becomes one sentence and an exit code."""
    import asyncio

    from bot.errors import DuetError, Incident, attempt

    async def told() -> int | DuetError | OSError:
        try:
            return await work
        except DuetError as error:
            return error
        except OSError as error:
            if _is_of_the_output(error):
                return error
            raise

    result = asyncio.run(attempt(told(), where="at the command line"))
    match result:
        case int():
            return result
        case OSError():
            raise result
        case Incident():
            return fail(call.as_json, "incident", result.text, result.id)
        case error:
            return fail(call.as_json, _kind(error), str(error), code=_code(error))


def _kind(error: Exception) -> str:
    """Give the class as a word: `StoreUnavailable` is `store_unavailable`."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in type(error).__name__).lstrip("_")


def _code(error: Exception) -> int:
    from bot.errors import BadInput

    return EXIT_USAGE if isinstance(error, BadInput) else EXIT_FAILED


def fail(as_json: bool, kind: str, message: str, incident: str = "", *, code: int = EXIT_FAILED) -> int:
    from adapters.terminal.outbound import dumped, error_json
    from bot.redaction import neutralised

    if as_json:
        click.echo(dumped(error_json(kind, message, incident)))
    tail = f" (incident {incident})" if incident else ""
    click.echo(f"duet: {neutralised(message)}{tail}", err=True)
    return code


def _our_faults() -> type[Exception]:
    """Give what `except` is to catch: looked up when something was raised, so that `--help` need not load it."""
    from bot.errors import DuetError

    return DuetError


def called(cli: click.Command, arguments: list[str]) -> int:
    """Run the program; give its exit code. Raises: ModuleNotFoundError when a dependency is missing."""
    _mend_streams()
    is_json = "--json" in arguments
    try:
        result = cli.main(arguments, prog_name="duet", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except (click.Abort, KeyboardInterrupt):
        return fail(is_json, "interrupted", "Stopped.", code=EXIT_INTERRUPTED)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return EXIT_USAGE
    except click.ClickException as error:
        where = getattr(error, "ctx", None)
        hint = f" Try `{where.command_path} --help`." if where else ""
        return fail(is_json, "usage", f"{error.format_message()}{hint}", code=EXIT_USAGE)
    except _our_faults() as error:
        return fail(is_json, _kind(error), str(error), code=_code(error))
    except OSError as error:
        if not _is_of_the_output(error):
            return fail(is_json, "failed", f"{error}.")
        # What is still buffered must not raise once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # else the reader has gone (`| head`), and wants to hear no more
            click.echo(f"duet: The output cannot be written: {error.strerror}.", err=True)
        return EXIT_FAILED


def _is_of_the_output(error: OSError) -> bool:
    """Tell whether it is stdout that cannot be written: a stream has no name."""
    return error.filename is None and error.errno in (errno.EPIPE, errno.ENOSPC, errno.EIO, errno.EFBIG, errno.EDQUOT)


def _mend_streams() -> None:
    """Let a stream that is closed (`>&-`) be empty, and what the output's alphabet lacks be a question mark."""
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115 - for as long as the program runs
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 - as stdin
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115 - as stdin
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
