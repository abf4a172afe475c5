"""The Codex's folder: which files are documents, which of them changed, and their text."""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bot.errors import CodexUnreadable
from bot.redaction import well_formed

GLOBS = ("*.md", "*.mdx", "*.markdown")
LIMIT_BYTES = 16 * 1024 * 1024

_SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__"})


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file of the folder: `name` with forward slashes below it; size in bytes, time of change in nanoseconds."""

    name: str
    path: str
    size: int
    mtime_ns: int


def find_files(folder: Path, *, globs: Sequence[str] = GLOBS) -> tuple[list[FoundFile], list[str]]:
    """Give the documents below `folder` in order of name, and a sentence for each that was passed over.

    Hidden folders and `node_modules` are not looked into. A pattern without a slash is matched against a file's name,
    one with a slash against its path; case does not matter. A link is followed only to a file inside the folder.
    Raises: CodexUnreadable when the folder itself cannot be read.
    """
    try:
        root = folder.resolve(strict=True)
        with os.scandir(root):
            pass
    except OSError as error:
        raise CodexUnreadable(
            f"The Codex folder {folder} cannot be read ({error.strerror}): "
            "set `codex` (DUET_CODEX) to a folder of Markdown files."
        ) from error
    found: list[FoundFile] = []
    links: list[tuple[str, Path]] = []
    faults: list[str] = []
    for name, entry in _walk(str(root), globs, faults):
        if entry.is_symlink():
            links.append((name, Path(entry.path)))
        elif file := _looked_at(name, entry, faults):
            found.append(file)
    taken = {file.path for file in found} if links else set()
    for name, path in links:
        target = Path(os.path.realpath(path))  # unlike `resolve`, it gives a loop as it stands
        if not target.is_relative_to(root):
            faults.append(f"{name}: it is a link that leads out of the Codex folder, and is not followed.")
        elif str(target) not in taken and not target.is_dir() and (file := _looked_at(name, target, faults)):
            found.append(file)
            taken.add(file.path)
    return sorted(found, key=lambda file: file.name), faults


def _walk(root: str, globs: Sequence[str], faults: list[str]) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Give (name below `root`, entry) of every file that a pattern names, links too. It runs every two seconds."""
    accepts = _matcher(globs)
    waiting = [""]
    while waiting:
        below = waiting.pop()
        try:
            with os.scandir(os.path.join(root, below)) as entries:
                for entry in entries:
                    if (readable := well_formed(entry.name)) != entry.name:
                        faults.append(f"{below}{readable}: its name is not UTF-8, and it was skipped.")
                    elif entry.is_dir(follow_symlinks=False):
                        if not entry.name.startswith(".") and entry.name not in _SKIPPED_FOLDERS:
                            waiting.append(f"{below}{entry.name}/")
                    elif accepts(below, entry.name):
                        yield below + entry.name, entry
        except OSError as error:
            faults.append(f"{below or '.'}: it cannot be read ({error.strerror}).")


def _matcher(globs: Sequence[str]) -> Callable[[str, str], bool]:
    """Give a test for (folder, file name): a pattern without a slash is about the name alone."""
    patterns = [re.compile(fnmatch.translate(glob.lower().replace("**/", ""))) for glob in globs]
    by_path = ["/" in glob for glob in globs]

    def accepts(below: str, name: str) -> bool:
        lower = name.lower()
        return any(
            pattern.match((below + name).lower() if whole else lower)
            for pattern, whole in zip(patterns, by_path, strict=True)
        )

    return accepts


def _looked_at(name: str, entry: os.DirEntry[str] | Path, faults: list[str]) -> FoundFile | None:
    try:
        seen = entry.stat()
    except OSError as error:
        faults.append(f"{name}: it cannot be read ({error.strerror}).")
        return None
    if not stat.S_ISREG(seen.st_mode):  # reading a pipe would wait for ever
        faults.append(f"{name}: it is no file and was skipped.")
        return None
    return FoundFile(name, os.fspath(entry), seen.st_size, seen.st_mtime_ns)


def decode(data: bytes, name: str) -> tuple[str, str]:
    """Give (text, ''), or ('', why it cannot be used)."""
    if len(data) > LIMIT_BYTES:
        return "", f"{name}: it is larger than {LIMIT_BYTES // 1024 // 1024} MiB and was skipped."
    try:
        return data.decode("utf-8"), ""
    except UnicodeDecodeError as error:
        return "", f"{name}: it is not UTF-8 (byte {error.start}) and was skipped; save it as UTF-8."
