"""Files that people attach: fetched from Slack, whole for the room's workspace, and as text where they are text."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from adapters.slack.calls import Calls, patiently
from adapters.slack.inbound import attachment
from adapters.slack.wording import one_line
from bot.conversation import Attachment
from bot.errors import OutletError

FILES = 8
TEXT_BYTES = 256 * 1024
FILE_BYTES = 8 << 20

_TEXT_TYPES = ("text/", "message/rfc822")
_TEXT_SUBTYPES = frozenset({"json", "xml", "yaml", "toml", "javascript", "python", "sh", "sql"})
_TEXT_ENDS = frozenset(
    {"md", "txt", "log", "py", "js", "ts", "go", "rs", "java", "c", "h", "cpp", "rb", "sh", "sql", "json", "yaml"}
    | {"yml", "toml", "ini", "cfg", "csv", "tsv", "xml", "html", "css", "diff", "patch"}
)


@dataclass(frozen=True, slots=True)
class _Fetched:
    """A file's bytes, or why there are none."""

    file: Attachment
    data: bytes = b""
    why_not: str = ""


class Files:
    """Fetches the files of turns, from Slack and from `hosts` alone: the bot's token goes along."""

    def __init__(self, calls: Calls, *, hosts: Iterable[str] = ()) -> None:
        self._calls = calls
        self._hosts = frozenset(hosts)

    async def fetched(
        self, files: Sequence[Attachment], notes: list[str]
    ) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, bytes], ...]]:
        """Give what the files say that are text, and the bytes of all; `notes` gets what was left out, and why."""
        texts: list[tuple[str, str]] = []
        whole: list[tuple[str, bytes]] = []
        for found in await asyncio.gather(*map(self._fetched, files[:FILES])):
            name = _apart(found.file.name, {name for name, _ in whole})
            text, why_not = "", found.why_not
            if not why_not:
                whole.append((name, found.data))
                text, why_not = _text_of(found)
            if why_not:
                notes.append(f"{one_line(name, 80)} was not read: {why_not}")
            else:
                texts.append((name, text))
        notes += [f"{one_line(file.name, 80)} was not read: too many files." for file in files[FILES:]]
        return tuple(texts), tuple(whole)

    async def _fetched(self, file: Attachment) -> _Fetched:
        try:
            file = await self._known(file)
            if not self._is_slacks(file.where):
                return _Fetched(file, why_not="it is kept outside Slack.")
            too_large = _Fetched(file, why_not=f"it is larger than {FILE_BYTES >> 20} MiB.")
            if file.size_bytes > FILE_BYTES:
                return too_large
            where = file.where
            data = await patiently(lambda: self._calls.download(where, limit_bytes=FILE_BYTES + 1))
            return _Fetched(file, data) if len(data) <= FILE_BYTES else too_large
        except OutletError as error:
            return _Fetched(file, why_not=str(error))

    async def _known(self, file: Attachment) -> Attachment:
        """Give the file with what Slack kept back in a shared channel: its name, kind and address."""
        if not file.where.startswith("file:"):
            return file
        id = file.where.removeprefix("file:")
        told = await patiently(lambda: self._calls.file(id))
        return attachment(told) or file

    def _is_slacks(self, url: str) -> bool:
        """Tell whether the address may be asked for with our token."""
        parts = urlsplit(url)
        if parts.netloc in self._hosts:
            return True
        host = parts.hostname or ""
        return parts.scheme == "https" and (host == "slack.com" or host.endswith(".slack.com"))


def _text_of(found: _Fetched) -> tuple[str, str]:
    """Give a file's text, or why it cannot be read as such."""
    if not is_text(found.file):
        return "", "it is not text."
    if len(found.data) > TEXT_BYTES:
        return "", f"it is larger than {TEXT_BYTES >> 10} KiB."
    try:
        return found.data.decode("utf-8-sig"), ""
    except UnicodeDecodeError:
        return "", "it is not UTF-8 text."


def _apart(name: str, taken: set[str]) -> str:
    """Give the name, or one with a number where another file has it: pasted pictures are all `image.png`."""
    path, number = PurePosixPath(name), 2
    while name in taken:
        name = f"{path.stem}-{number}{path.suffix}"
        number += 1
    return name


def is_text(file: Attachment) -> bool:
    """Tell whether a file claims to be text. Whether it is, its bytes decide."""
    kind, _, subtype = file.media_type.partition("/")
    if file.media_type.startswith(_TEXT_TYPES):
        return True
    if kind == "application" and subtype.removeprefix("x-") in _TEXT_SUBTYPES:
        return True
    return "." in file.name and file.name.rpartition(".")[2].lower() in _TEXT_ENDS
