"""A sandbox without an engine that keeps the contract of the port: the same contract tests run against both.

It understands enough shell for tests: `echo`, `printf`, `cat`, `true`, `false`, `exit`, `sleep`, `pwd`, `yes`, `rm`,
`ls` and `kill -9 $$`, joined by `;` or `&&`, with `>`, `>>` and `>&2`. Anything else ends with 127. `outputs` gives
what a command answers by its code, before any of that.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from bot.conversation import Command, CommandResult, Ended, RoomKey
from bot.drivers.command_output import clean_text, painted_output
from bot.drivers.exec_stream import Kept
from bot.drivers.sandbox import VOID, not_started, refusal, safe_name
from bot.errors import BadInput, SandboxUnavailable


@dataclass
class _Room:
    generation: int
    files: dict[str, bytes] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class FakeSandbox:
    """Rooms in memory. `unavailable` set makes every call fail as an engine that is away does."""

    def __init__(
        self, *, timeout_s: float = 2.0, kept_bytes: int = 64_000, outputs: Mapping[str, str] | None = None
    ) -> None:
        self.timeout_s = timeout_s
        self.kept_bytes = kept_bytes
        self.outputs = dict(outputs or {})
        self.unavailable: SandboxUnavailable | None = None
        self.ran: list[Command] = []
        self.destroyed: list[tuple[RoomKey, int]] = []
        self.interrupted: list[RoomKey] = []
        self.looser: tuple[str, ...] = ()
        self._rooms: dict[RoomKey, _Room] = {}
        self._doomed: dict[RoomKey, int] = {}

    async def run(self, command: Command, *, on_output: Callable[[str], None] | None = None) -> CommandResult:
        if fault := refusal(command.code):
            return not_started(command, fault)
        self._admit()
        if self._is_void(command.room, command.generation):
            return not_started(command, VOID)
        room = self._room(command.room, command.generation)
        async with room.lock:
            self.ran.append(command)
            began = time.monotonic()
            shell = _Shell(room.files, self.kept_bytes, on_output)
            try:
                async with asyncio.timeout(self.timeout_s):
                    result = await self._outcome(command, shell)
            except TimeoutError:
                note = f"Stopped after {self.timeout_s:g} s."
                result = replace(shell.result(command.code), ended=Ended.TIMEOUT, exit_code=None, note=note)
            return replace(result, duration_ms=round((time.monotonic() - began) * 1000))

    async def _outcome(self, command: Command, shell: _Shell) -> CommandResult:
        if command.code in self.outputs:
            shell.say(1, self.outputs[command.code].encode("utf-8", "replace"))
            return shell.result(command.code)
        await shell.run(command.code)
        return shell.result(command.code)

    async def put(self, room: RoomKey, generation: int, name: str, data: bytes) -> None:
        self._admit()
        self._fence(room, generation)
        self._room(room, generation).files[safe_name(name)] = data

    async def get(self, room: RoomKey, generation: int, path: str) -> bytes:
        self._admit()
        self._fence(room, generation)
        files = self._room(room, generation).files
        if (name := path.removeprefix("/workspace/")) not in files:
            raise BadInput(f"There is no file {path} in this room's workspace.")
        return files[name]

    async def interrupt(self, room: RoomKey) -> None:
        self.interrupted.append(room)

    async def destroy(self, room: RoomKey, *, through: int) -> None:
        self._doomed[room] = max(through, self._doomed.get(room, -1))
        if room in self._rooms and self._rooms[room].generation <= through:
            del self._rooms[room]
        self._admit()
        self.destroyed.append((room, through))

    async def close(self) -> None:
        self._rooms.clear()

    def _admit(self) -> None:
        if self.unavailable is not None:
            raise self.unavailable

    def _fence(self, room: RoomKey, generation: int) -> None:
        if self._is_void(room, generation):
            raise BadInput("The room was reset meanwhile.")

    def _is_void(self, room: RoomKey, generation: int) -> bool:
        there = self._rooms.get(room)
        return generation <= self._doomed.get(room, -1) or (there is not None and generation < there.generation)

    def _room(self, key: RoomKey, generation: int) -> _Room:
        if key not in self._rooms or self._rooms[key].generation < generation:
            self._rooms[key] = _Room(generation)
        return self._rooms[key]


class _Exit(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class _Killed(Exception):
    pass


class _Shell:
    """As much of a shell as the docstring of the module says."""

    def __init__(self, files: dict[str, bytes], kept_bytes: int, on_output: Callable[[str], None] | None) -> None:
        self._files = files
        self._kept = {1: Kept(kept_bytes), 2: Kept(kept_bytes)}
        self._tell = on_output
        self._status = 0
        self._ended = Ended.EXIT
        self._note = ""

    def say(self, stream: int, data: bytes) -> None:
        self._kept[stream].add(data)
        if self._tell and data:
            self._tell(data.decode("utf-8", "replace"))

    def result(self, code: str) -> CommandResult:
        result = CommandResult(
            code,
            self._ended,
            exit_code=self._status if self._ended is Ended.EXIT else None,
            stdout=clean_text(self._kept[1]),
            stderr=clean_text(self._kept[2]),
            truncated=any(kept.left_out_bytes for kept in self._kept.values()),
            note=self._note,
        )
        return replace(result, painted=painted_output(self._kept[1], self._kept[2], result.output))

    async def run(self, code: str) -> None:
        try:
            for line in code.replace("&&", "\n&&").replace(";", "\n").splitlines():
                word = line.strip()
                if word.startswith("&&"):
                    if self._status:
                        continue
                    word = word.removeprefix("&&").strip()
                if word:
                    await self._simple(word)
        except _Exit as end:
            self._status = end.code
        except _Killed:
            self._ended, self._note = Ended.KILLED, "Killed."

    async def _simple(self, line: str) -> None:
        words = shlex.split(line)
        target = 1
        if ">&2" in words:
            words.remove(">&2")
            target = 2
        file, append = None, False
        for sign in (">>", ">"):
            if sign in words:
                at = words.index(sign)
                file, append = words[at + 1], sign == ">>"
                words = words[:at] + words[at + 2 :]
        out = await self._program(words)
        if file is not None:
            self._files[file] = (self._files.get(file, b"") if append else b"") + out
        else:
            self.say(target, out)

    async def _program(self, words: list[str]) -> bytes:
        name, *rest = words
        self._status = 0
        match name:
            case "echo":
                return (" ".join(rest) + "\n").encode()
            case "printf":
                return rest[0].encode().decode("unicode_escape").encode("latin-1")
            case "cat" | "rm":
                return self._file(name, rest[-1])
            case "ls":
                return "".join(f"{file}\n" for file in sorted(self._files)).encode()
            case "true" | "false":
                self._status = int(name == "false")
            case "pwd":
                return b"/workspace\n"
            case "sleep":
                await asyncio.sleep(float(rest[0]))
            case "exit":
                raise _Exit(int(rest[0]) if rest else 0)
            case "kill":
                raise _Killed
            case "yes":
                self._kept[1].add(b"y\n" * 4_000_000)
                self._ended, self._note = Ended.KILLED, "Stopped after 8 MB of output."
            case _:
                self._status = 127
                self.say(2, f"/bin/bash: line 1: {name}: command not found\n".encode())
        return b""

    def _file(self, program: str, name: str) -> bytes:
        if name not in self._files:
            self._status = 1
            self.say(2, f"{program}: {name}: No such file or directory\n".encode())
            return b""
        if program == "cat":
            return self._files[name]
        del self._files[name]
        return b""
