"""The `duet` command. Beside `bot.serving` the only module that names adapters.

Results go to stdout and all else to stderr; with `--json` stdout holds exactly one object, whatever happens. Heavy
imports wait until a command needs them, so that `--help` answers at once.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, NoReturn

from bot import __version__

FIRST_COMMAND = (
    "python3 -m venv .venv && .venv/bin/pip install -q --require-hashes -r requirements.lock && "
    '.venv/bin/python -m bot ask "What is our branch naming convention?"'
)


def _without_dependencies(missing: str | None) -> NoReturn:
    print(f"Duet needs its dependencies ({missing} is not installed). Install and ask with:\n", file=sys.stderr)
    print(FIRST_COMMAND)
    raise SystemExit(2)


try:
    import click

    from adapters.terminal.cli import (
        EXIT_FAILED,
        Call,
        acting,
        called,
        done,
        fail,
        given,
        in_room,
        in_thread,
        reading,
    )
except ModuleNotFoundError as error:  # a fresh checkout: say what to type instead of a traceback
    _without_dependencies(error.name)
except KeyboardInterrupt:
    raise SystemExit(130) from None

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from adapters.terminal.app import Terminal
    from adapters.terminal.once import Once
    from bot.app import Parts
    from bot.drivers.codex import Codex


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="duet %(version)s")
@acting
def cli(call: Call) -> None:
    """Answers from your team's written standards, with sources; runs commands in a locked-down sandbox.

    \b
    duet ask "What is our branch naming convention?"
    duet chat
    """


# ── Asking ────────────────────────────────────────────────────────────────────────────────────────────────────────


@cli.command()
@in_room
@in_thread
@acting
def chat(call: Call, room: str, thread: str | None) -> int:
    """Talk with Duet: it streams, remembers, and runs commands. /help inside lists what else there is."""

    async def work(parts: Parts, terminal: Terminal) -> int:
        from adapters.terminal.app import Chat
        from adapters.terminal.inbound import session_named
        from adapters.terminal.lines import lines_of

        session = session_named(room, thread)
        history = parts.settings.home_dir / "chat-history"
        lines = lines_of(sys.stdin, history, parts.redact, is_live=terminal.is_live)
        await Chat(terminal, session, lines).hold()
        return 0

    return _with_duet(call, work)


@cli.command()
@click.argument("question", nargs=-1, required=True)
@in_room
@in_thread
@reading
def ask(call: Call, question: tuple[str, ...], room: str, thread: str | None) -> int:
    """Ask one question; - reads it from the input.

    Exit code 0: answered, covered by the standards or not. 1: the turn failed, the question is kept.
    2: wrong usage or setting.
    """
    from adapters.terminal.inbound import usable

    text = usable(given(question))
    return _once(call, lambda once: once.ask(text, room, thread))


@cli.command(context_settings={"ignore_unknown_options": True})
@click.argument("command", nargs=-1, required=True)
@in_room
@reading
def run(call: Call, command: tuple[str, ...], room: str) -> int:
    """Run a shell command in the room's sandbox.

    The exit code is the command's own; 125 when it was not started.
    """
    import shlex

    code = command[0] if len(command) == 1 else shlex.join(command)
    return _once(call, lambda once: once.run(code, room))


@cli.command()
@click.argument("path")
@click.option("-o", "--output", metavar="FILE", help="Where to write it, - is the output; else its own name.")
@in_room
@acting
def get(call: Call, path: str, output: str | None, room: str) -> int:
    """Bring a file out of the room's sandbox. An existing file is not overwritten."""

    async def work(parts: Parts, _: Terminal) -> int:
        from adapters.terminal.inbound import room_named
        from adapters.terminal.once import written_out

        click.echo(written_out(await parts.duet.get_file(room_named(room), path), path, output), err=True)
        return 0

    return _with_duet(call, work, is_reading=True)


@cli.command()
@in_room
@in_thread
@click.option("--yes", is_flag=True, help="Do not ask.")
@reading
def reset(call: Call, room: str, thread: str | None, yes: bool) -> int:
    """Clear a room: every conversation in it and its sandbox. With --thread that conversation alone."""
    if not yes and sys.stdin.isatty():
        what = f"thread {thread} of room {room}" if thread else f"room {room}: every conversation in it and its sandbox"
        if not click.confirm(f"Clear {what}?", err=True):
            return fail(call.as_json, "cancelled", "Nothing was cleared.")
    return _once(call, lambda once: once.reset(room, thread))


# ── The standards ─────────────────────────────────────────────────────────────────────────────────────────────────


@cli.command()
@click.argument("question", nargs=-1, required=True)
@click.option("--limit", default=5, show_default=True, type=click.IntRange(1, 50), help="How many sections.")
@click.option("--explain", is_flag=True, help="Show what each score is made of.")
@in_room
@reading
def search(call: Call, question: tuple[str, ...], limit: int, explain: bool, room: str) -> int:
    """Show the sections of the standards that fit a question best."""
    from adapters.terminal import once
    from adapters.terminal.inbound import usable

    text = usable(given(question))
    return _with_codex(
        call, lambda codex, _: once.search(codex, text, room, limit=limit, explain=explain, as_json=call.as_json)
    )


@cli.command()
@reading
def index(call: Call) -> int:
    """Read the standards anew and list what was taken in."""
    from adapters.terminal import once

    return _with_codex(call, lambda codex, folder: once.index(codex, str(folder), as_json=call.as_json))


@cli.command("eval")
@click.argument("questions", type=click.Path(exists=True, dir_okay=False, path_type=str))
@click.option("--html", metavar="FILE", help="Also write a page that a person can read.")
@click.option("--calibrate", is_flag=True, help="Set from these questions when the standards count as covering one.")
@reading
def evaluate(call: Call, questions: str, html: str | None, calibrate: bool) -> int:
    """Measure the search with questions whose sections are known.

    QUESTIONS is a file of JSON objects, one a line; docs/standards.md names their fields.
    """
    from adapters.terminal.measuring import Measuring

    measuring = Measuring(questions, html, calibrates=calibrate, as_json=call.as_json)
    return _with_codex(call, lambda codex, folder: measuring.run(codex, folder.name))


# ── Reading and keeping house ─────────────────────────────────────────────────────────────────────────────────────


@cli.command()
@reading
def rooms(call: Call) -> int:
    """List every room that was ever asked in."""
    return _once(call, lambda once: once.rooms(), is_reading=True)


@cli.command()
@click.option("--day", type=click.DateTime(["%Y-%m-%d"]), help="A day in UTC (default: today).")
@reading
def usage(call: Call, day: datetime | None) -> int:
    """Show who used how many tokens in which room on one day. Their cost too, where a price is set."""
    from bot.app import now_ms
    from bot.budget import day_of

    price = call.settings().budget_price
    return _once(call, lambda once: once.usage(f"{day:%Y-%m-%d}" if day else day_of(now_ms()), price), is_reading=True)


@cli.command()
@in_room
@click.option("--format", "form", type=click.Choice(["md", "json"]), default="md", show_default=True)
@reading
def log(call: Call, room: str, form: str) -> int:
    """Print a room's prompt log.

    For each model call: exactly what was sent, the sections with their scores, the reply and the time.
    """
    call.as_json |= form == "json"
    return _once(call, lambda once: once.log(room), is_reading=True)


@cli.command()
@reading
def config(call: Call) -> int:
    """Show every setting, its value and where that came from. Secrets are masked."""
    from adapters.terminal.outbound import settings_json, settings_text

    shown = call.settings().shown()
    call.print(settings_text(shown), lambda: settings_json(shown))
    return 0


@cli.command()
@click.option("--offline", is_flag=True, help="Call nothing beyond this machine.")
@reading
def doctor(call: Call, offline: bool) -> int:
    """Look at everything Duet needs and say what to mend. Exit code 1: something fails."""

    async def work() -> int:
        from adapters.discord.checks import checks as discord_checks
        from adapters.slack.checks import checks as slack_checks
        from adapters.terminal.outbound import checks_json, checks_text, have_failed
        from adapters.web.checks import checks as web_checks
        from bot.chores import checks

        settings = call.settings()
        looks = (checks, slack_checks, discord_checks, web_checks)
        found = [check for look in looks for check in await look(settings, offline=offline)]
        call.print(checks_text(found), lambda: checks_json(found))
        return EXIT_FAILED if have_failed(found) else 0

    return done(call, work())


@cli.group()
def image() -> None:
    """The sandbox's image."""


@image.command("build")
@acting
def image_build(call: Call) -> int:
    """Make the image that commands run in. Takes a few minutes on the Docker engine."""

    async def work() -> int:
        from bot.chores import build_image

        settings = call.settings()
        await build_image(settings, progress=lambda line: click.echo(line, err=True))
        click.echo(settings.sandbox_image)
        return 0

    return done(call, work())


@cli.group()
def model() -> None:
    """Weights to install: for search, and a language model."""


@model.command("install")
@click.argument("pack", type=click.Choice(["semantic", "local"]))
@click.option("--yes", is_flag=True, help="Do not ask.")
@acting
def model_install(call: Call, pack: str, yes: bool) -> int:
    """Fetch a pack of weights. Says size and licence first; every file is checked by its hash."""
    from adapters.terminal.progress import Progress, asked
    from bot.chores import install_pack

    bar = Progress(sys.stderr, is_live=sys.stderr.isatty())
    is_there = install_pack(call.settings(), pack, confirm=lambda text: asked(text, is_sure=yes), progress=bar.show)
    bar.end()
    click.echo(f"{pack} is installed." if is_there else "Nothing was installed.", err=not is_there)
    return 0 if is_there else EXIT_FAILED


@model.command("serve")
@click.option("--port", type=int, default=8788, show_default=True, help="Port on 127.0.0.1; 0 takes any free one.")
@acting
def model_serve(call: Call, port: int) -> int:
    """Serve the built-in language model to programs of this machine."""

    async def work() -> int:
        from bot.model_choice import serve_local

        await serve_local(call.settings(), port=port, ready=click.echo)
        return 0

    return done(call, work())


@cli.group()
def setup() -> None:
    """Connect Duet to a chat platform, step by step."""


@setup.command("slack")
@click.option("--events-url", default="", metavar="URL", help="For signed HTTP events in place of Socket Mode.")
@acting
def setup_slack(call: Call, events_url: str) -> int:
    """Print the link that makes the Slack app, and the steps left. The tokens given are written into .env."""
    from adapters.slack.setup import setup_text, write_env
    from adapters.terminal.tokens import set_up

    names = ("SLACK_BOT_TOKEN", "SLACK_SIGNING_SECRET" if events_url else "SLACK_APP_TOKEN")
    return set_up(setup_text(events_url=events_url), names, write_env)


@setup.command("discord")
@click.option("--application", default="", metavar="ID", help="The application's id, where no token is set yet.")
@acting
def setup_discord(call: Call, application: str) -> int:
    """Print the invite link, and the steps left. The token given is written into .env."""
    from adapters.discord.setup import setup_text, write_env
    from adapters.terminal.tokens import set_up

    def write(path: Path, tokens: Mapping[str, str]) -> None:
        write_env(path, tokens["DISCORD_TOKEN"])
        click.echo(setup_text(token=tokens["DISCORD_TOKEN"]))

    steps = setup_text(token=call.settings().discord_token, application_id=application)
    return set_up(steps, ("DISCORD_TOKEN",), write)


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    For bash: eval "$(duet completion bash)"
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    if found is not None:
        click.echo(found(cli, {}, "duet", "_DUET_COMPLETE").source())


# ── The other fronts ──────────────────────────────────────────────────────────────────────────────────────────────


@cli.command()
@acting
def serve(call: Call) -> int:
    """Answer over HTTP and on every platform that is configured. Until SIGTERM or Ctrl-C."""

    async def work() -> int:
        from bot.serving import serve

        call.logs_to_file = False
        await serve(call.settings(), ready=click.echo)
        return 0

    return done(call, work())


# ── Plumbing ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _with_duet(call: Call, work: Callable[[Parts, Terminal], Awaitable[int]], *, is_reading: bool = False) -> int:
    """Open everything, do the work at this terminal and close; `is_reading` takes no turn up."""

    async def opened() -> int:
        from adapters.terminal.app import this_terminal
        from bot.app import new_id, now_ms, open_duet

        async with open_duet(call.settings()) as parts:
            if not is_reading:
                parts.duet.start()
            return await work(parts, this_terminal(parts.duet, new_id, now_ms))

    return done(call, opened())


def _once(call: Call, work: Callable[[Once], Awaitable[int]], *, is_reading: bool = False) -> int:
    async def at_terminal(_: Parts, terminal: Terminal) -> int:
        from adapters.terminal.once import Once

        return await work(Once(terminal, call.as_json))

    return _with_duet(call, at_terminal, is_reading=is_reading)


def _with_codex(call: Call, work: Callable[[Codex, Path], Awaitable[str]]) -> int:
    """Open the index alone, print what the work gives, and close."""

    async def opened() -> int:
        from bot.app import open_codex

        settings = call.settings()
        codex = await open_codex(settings)
        try:
            click.echo(await work(codex, settings.codex_dir))
        finally:
            await codex.close()
        return 0

    return done(call, opened())


def main() -> None:
    """Run the program and leave with its exit code."""
    try:
        code = called(cli, sys.argv[1:])
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in ("bot", "adapters"):
            raise
        _without_dependencies(error.name)
    raise SystemExit(code)


if __name__ == "__main__":
    main()
