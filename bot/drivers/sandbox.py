"""One locked-down Docker container a room: commands in, results out, files in and out."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from bot.conversation import Command, CommandResult, Ended, RoomKey
from bot.drivers.command_output import LiveOutput, clean_text, painted_output
from bot.drivers.container import COMMAND_USER, SandboxSpec, room_hash, snapshot_folder
from bot.drivers.containers import ENTER, SHELL, run_argv
from bot.drivers.engine import Address, Engine, InTheWay, NotThere
from bot.drivers.exec_stream import Exec, ExecEnd
from bot.drivers.ledger import Ledger, SandboxRow, SandboxState
from bot.drivers.room_sandboxes import RoomSandboxes, Voided, finished
from bot.drivers.snapshots import RoomHold
from bot.drivers.upkeep import Upkeep
from bot.errors import BadInput, SandboxUnavailable, attempt
from bot.redaction import neutralised

log = logging.getLogger(__name__)

MAX_CODE_BYTES = 100_000  # the kernel takes 128 KiB in one argument
GRACE_S = 2.5  # the inner clock first asks, then kills after a second; the outer one comes after both
TIMED_OUT = (124, 137, 143)  # from `timeout`: asked, killed, and asked where busybox is the clock
DESTROY_WAIT_S = 5.0
VOID = "The room was reset before this command began."

# What lies in the workspace is a stranger's: the part is made anew and never written through a link or a pipe, and what
# bears the name already is replaced and never entered or followed.
PUT = ENTER + (
    'head -c "$2" | {\n'
    'p=$(mktemp .duet-part-XXXXXX) && cat >"$p" && [ "$(wc -c <"$p")" -eq "$2" ] && chmod 644 "$p" &&\n'
    'mv -fT -- "$p" "./$1" && exit 0\n'
    'rm -f -- "$p"; cat >/dev/null; exit 1; }'
)
# A link is followed before it is judged: it must end at a file of the workspace. The dot keeps a final newline.
GET = ENTER + (
    'case "$1" in /*) p=$1;; *) p=./$1;; esac; [ -e "$p" ] || exit 3\n'
    'p=$(readlink -f "$p"; echo .); p=${p%??}; case "$p/" in /workspace/*) ;; *) exit 4;; esac\n'
    '[ ! -d "$p" ] || exit 5; [ -f "$p" ] || exit 6; [ -r "$p" ] || exit 7; exec cat "$p"'
)
GET_FAULTS = {
    3: "There is no file {path} in this room's workspace.",
    4: "{path} lies outside this room's workspace; copy it there first.",
    5: "{path} is a folder; pack it first, as by `tar -czf folder.tgz FOLDER`.",
    6: "{path} is no plain file.",
    7: "{path} is closed to reading; open it first, as by `chmod u+r FILE`.",
}
MAX_PATH_BYTES = 4096  # the kernel's
MAX_NAME_BYTES = 200  # the kernel's is 255


class DockerSandbox:
    """The `Sandbox` port over a Docker engine.

    One command at a time a room, rooms side by side up to `spec.rooms_at_once`. Nothing is done at construction; the
    engine may be away then. `upkeep` is for the process that keeps house; `close` for every process.
    """

    def __init__(
        self, spec: SandboxSpec, *, home: Path, install_id: str, ledger: Ledger, clock: Callable[[], int]
    ) -> None:
        self.spec = spec
        address = Address(spec.docker_host, tls_verify=spec.docker_tls_verify, certificates=spec.docker_cert_path)
        self.engine = Engine(address, streams=spec.rooms_at_once)
        self._rooms = RoomSandboxes(
            spec,
            engine=self.engine,
            folder=snapshot_folder(home),
            install_id=install_id,
            ledger=ledger,
            clock=clock,
        )
        self.upkeep = Upkeep(self._rooms)
        self._slots = asyncio.Semaphore(spec.rooms_at_once)
        self._cleaning: set[asyncio.Task[Any]] = set()

    @property
    def looser(self) -> tuple[str, ...]:
        """Give a phrase for each limit that is looser than the default."""
        return self.spec.looser

    async def run(self, command: Command, *, on_output: Callable[[str], None] | None = None) -> CommandResult:
        """Run one command in its room; cancelling kills it. Raises: SandboxUnavailable only."""
        if fault := refusal(command.code):
            return not_started(command, fault)
        hold = await self._rooms.locks.hold(room_hash(command.room))
        try:
            async with self._slots:
                return await self._run_held(command, hold, on_output)
        except Voided:
            hold.release()
            return not_started(command, VOID)
        except BaseException:
            hold.release()
            raise

    async def _run_held(
        self, command: Command, hold: RoomHold, on_output: Callable[[str], None] | None
    ) -> CommandResult:
        """Run with the room held. The hold passes to the cleaning, which ends it."""
        live = LiveOutput(on_output, limit_chars=self.spec.kept_bytes) if on_output else None
        began = time.time()
        row, end = await self._executed(command, live)
        if live:
            live.flush()
        if end.why == "aborted" or (end.why == "eof" and end.exit_code not in (None, 125, 137)):
            # The wrapper has emptied the container. Whether it really did is looked at while the answer is on its way;
            # so is what an engine that went away has left, as far as it can be.
            self._spawn(self._cleaned(row, hold))
            return self._result(command, end, note="", memory=False)
        cleaning = self._spawn(self._cleaned(row, None))
        await finished(cleaning)
        memory = await self._was_memory(row, end, since_s=began)
        hold.release()
        note = cleaning.result()
        return self._result(command, end, note=note if isinstance(note, str) else "", memory=memory)

    async def _executed(self, command: Command, live: LiveOutput | None) -> tuple[SandboxRow, ExecEnd]:
        """Make the room ready and run; once more in a new container where the old one turns out to be gone."""
        for last in (False, True):
            row = await self._rooms.open(command.room, command.generation)
            job = self._job(row, command.code, live)
            try:
                return row, await self._rooms.containers.exec(job, limit_s=self.spec.timeout_s + GRACE_S)
            except (NotThere, InTheWay) as error:
                self._rooms.forget(command.room)
                if job.started:
                    return row, job.so_far("lost")
                if last:
                    raise SandboxUnavailable(f"The sandbox does not stay up: {error}") from error
            except SandboxUnavailable:
                self._rooms.forget(command.room)
                if job.started:  # it did run: that is a result, not "not run"
                    return row, job.so_far("aborted")
                raise
            except asyncio.CancelledError:
                if job.started:
                    await finished(self._spawn(self._cleaned(row, None)))
                raise
        raise AssertionError("unreachable")

    def _job(self, row: SandboxRow, code: str, live: LiveOutput | None) -> Exec:
        return Exec(
            row.container_id,
            run_argv(code, timeout_s=self.spec.timeout_s),
            user=COMMAND_USER,
            limit_s=self.spec.timeout_s + GRACE_S,
            kept_bytes=self.spec.kept_bytes,
            seen_bytes=self.spec.seen_bytes,
            sink=live.feed if live else None,
        )

    async def _cleaned(self, row: SandboxRow, hold: RoomHold | None) -> str:
        """Empty the container and note its use; give a note for the room."""
        try:
            note = await self._rooms.empty(row)
            await self._rooms.used(row)
            await self._rooms.settle_name(row)
            return note
        except SandboxUnavailable:
            self._rooms.forget(row.room)  # looked at again before the next command
            await self._rooms.used(row)
            return ""
        finally:
            if hold:
                hold.release()

    async def _was_memory(self, row: SandboxRow, end: ExecEnd, *, since_s: float) -> bool:
        if end.why != "eof" or end.exit_code not in (None, 137) or end.seconds >= self.spec.timeout_s:
            return False
        try:
            return await self._rooms.containers.ran_out_of_memory(row.container_id, since_s=since_s)
        except (SandboxUnavailable, NotThere, InTheWay):
            return False

    def _result(self, command: Command, end: ExecEnd, *, note: str, memory: bool) -> CommandResult:
        ended, why = self._ending(end, memory=memory)
        left_out = end.stdout.left_out_bytes + end.stderr.left_out_bytes
        result = CommandResult(
            command.code,
            ended,
            exit_code=end.exit_code if ended is Ended.EXIT else None,
            stdout=clean_text(end.stdout),
            stderr=clean_text(end.stderr),
            truncated=bool(left_out) or end.why == "flood",
            duration_ms=round(end.seconds * 1000),
            note=" ".join(part for part in (why, note) if part),
        )
        return replace(result, painted=painted_output(end.stdout, end.stderr, result.output))

    def _ending(self, end: ExecEnd, *, memory: bool) -> tuple[Ended, str]:
        """Say how a command ended, and why in words where it was not by itself."""
        limit = self.spec.timeout_s
        if end.why == "timeout" or (end.exit_code in TIMED_OUT and end.seconds >= limit):
            return Ended.TIMEOUT, f"Stopped after {limit:g} s."
        if end.why == "flood":
            return Ended.KILLED, f"Stopped after {self.spec.seen_bytes // 1_000_000} MB of output."
        if end.why == "aborted":
            return Ended.KILLED, "The Docker engine went away while it ran; it may have been cut short."
        if end.why == "lost":
            return Ended.KILLED, "The sandbox was taken away while it ran."
        if memory:
            return Ended.MEMORY, f"Out of memory ({self.spec.memory_bytes >> 20} MB)."
        if end.exit_code is None or end.exit_code == 137:
            return Ended.KILLED, "Killed."
        return Ended.EXIT, ""

    async def interrupt(self, room: RoomKey) -> None:
        """Kill whatever a dead process left running in the room. Never raises."""
        await attempt(self._interrupted(room), where="ending what runs in a room")

    async def _interrupted(self, room: RoomKey) -> None:
        row = await self._rooms.row(room)
        if row.state is not SandboxState.LIVE:
            return
        hold = await self._rooms.locks.hold(room_hash(room))
        await self._cleaned(row, hold)

    async def put(self, room: RoomKey, generation: int, name: str, data: bytes) -> None:
        """Lay a file into the workspace under its last name. Raises: BadInput, SandboxUnavailable."""
        if len(data) > self.spec.workspace_bytes:
            raise BadInput(f"{name} does not fit into the workspace ({self.spec.workspace_mb} MB).")
        end = await self._in_room(room, generation, [SHELL, "-c", PUT, "duet", safe_name(name), str(len(data))], data)
        if end.exit_code != 0:
            raise BadInput(f"{name} could not be laid into the workspace: {clean_text(end.stderr).strip()}")

    async def get(self, room: RoomKey, generation: int, path: str) -> bytes:
        """Fetch a file from the workspace. Raises: BadInput, SandboxUnavailable."""
        if "\0" in path or not path or len(path.encode("utf-8", "replace")) >= MAX_PATH_BYTES:
            raise BadInput("Name a file in the workspace, such as `report.csv`.")
        end = await self._in_room(room, generation, [SHELL, "-c", GET, "duet", path], None)
        if end.why == "flood":
            raise BadInput(f"{path} is larger than the workspace ({self.spec.workspace_mb} MB).")
        if fault := GET_FAULTS.get(end.exit_code or 0):
            raise BadInput(fault.format(path=path))
        if end.exit_code != 0:
            raise BadInput(f"{path} could not be read: {clean_text(end.stderr).strip() or end.why}")
        head, tail = end.stdout.parts()
        return head + tail

    async def _in_room(self, room: RoomKey, generation: int, argv: list[str], data: bytes | None) -> ExecEnd:
        """Run one of our own programs in the room's container, with `data` as its input where given."""
        hold = await self._rooms.locks.hold(room_hash(room))
        try:
            async with self._slots:
                return await self._served(room, generation, argv, data)
        except Voided:
            raise BadInput("The room was reset meanwhile.") from None
        finally:
            hold.release()

    async def _served(self, room: RoomKey, generation: int, argv: list[str], data: bytes | None) -> ExecEnd:
        containers = self._rooms.containers
        for last in (False, True):
            row = await self._rooms.open(room, generation)
            try:
                if data is None:
                    end = await containers.fetch(row.container_id, argv, limit_bytes=self.spec.workspace_bytes)
                else:
                    end = await containers.feed(row.container_id, argv, [data])
                    await self._rooms.used(row)
            except (NotThere, InTheWay) as error:
                self._rooms.forget(room)
                if last:
                    raise SandboxUnavailable(f"The sandbox does not stay up: {error}") from error
                continue
            await self._rooms.settle_name(row)
            return end
        raise AssertionError("unreachable")

    async def destroy(self, room: RoomKey, *, through: int) -> None:
        """Remove container and snapshot of every generation up to `through`.

        Does not wait for a running command: removing its container ends it. Raises: SandboxUnavailable; what could
        not be removed is remembered and removed by the sweep, or before the room's next command.
        """
        was_ever_made = await self._rooms.ledger.sandbox(room) is not None
        await self._rooms.doom(room, through=through)
        if not was_ever_made:  # no engine is needed to remove nothing
            await self._rooms.ledger.doom_sandbox(room, through=through, destroyed=True)
            return
        await self._rooms.remove_doomed(room, through=through)  # ends what runs, so that the room comes free
        try:
            async with asyncio.timeout(DESTROY_WAIT_S):
                hold = await self._rooms.locks.hold(room_hash(room))
        except TimeoutError:
            return  # the containers are gone; the rows are put right by the sweep
        try:
            await self._rooms.finish_doom(room)
        finally:
            hold.release()

    async def settled(self) -> None:
        """Wait until the clearing up after past commands is done."""
        while self._cleaning:
            await asyncio.wait(self._cleaning)

    async def close(self) -> None:
        """Let cleaning end, save what is dirty, and let the engine go. Containers stay for the next start."""
        if self._cleaning:
            await asyncio.wait(self._cleaning, timeout=15)
        await self.upkeep.close()
        self.engine.close()

    def _spawn(self, work: Coroutine[Any, Any, str]) -> asyncio.Task[Any]:
        task = asyncio.create_task(attempt_note(work))
        self._cleaning.add(task)
        task.add_done_callback(self._cleaning.discard)
        return task


async def attempt_note(work: Coroutine[Any, Any, str]) -> str:
    """Await `work`; a fault becomes an incident in the log and no note."""
    outcome = await attempt(work, where="clearing up after a command")
    return outcome if isinstance(outcome, str) else ""


def refusal(code: str) -> str:
    """Say why `code` cannot be run at all, or '' when it can."""
    if "\0" in code:
        return "A command cannot hold a NUL character."
    try:
        size = len(code.encode())
    except UnicodeEncodeError:
        return "The command is not valid text."
    if size > MAX_CODE_BYTES:
        return f"The command is {size:,} bytes long; at most {MAX_CODE_BYTES:,} can be run. Put it in a file."
    return "" if code.strip() else "The command is empty."


def not_started(command: Command, note: str) -> CommandResult:
    return CommandResult(command.code, Ended.NOT_STARTED, note=note)


def safe_name(name: str) -> str:
    """Give the last part of a file's name, visible characters alone: where it lies is not for its sender to say."""
    last = re.sub(r"[\n\t]", "", neutralised(re.split(r"[/\\]", name)[-1])).strip()
    if last in ("", ".", ".."):
        return "file"
    stem, ending = os.path.splitext(last)
    ending = _cut(ending, MAX_NAME_BYTES // 4)
    return _cut(stem, MAX_NAME_BYTES - len(ending.encode())) + ending


def _cut(text: str, limit_bytes: int) -> str:
    """Give as much of `text` as fits, in whole characters; what is no text becomes a question mark."""
    return text.encode("utf-8", "replace")[:limit_bytes].decode("utf-8", "ignore")
