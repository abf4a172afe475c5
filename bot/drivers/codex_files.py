"""The Codex's folder: which files are documents, which of them changed, and their text."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bot.errors import CodexUnreadable

GLOBS = ("*.md", "*.mdx", "*.markdown")
LIMIT_BYTES = 16 * 1024 * 1024

_SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__"})


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file of the folder: `name` with forward slashes below it; size in bytes, time of change in nanoseconds."""

    name: str
    path: Path
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
    found: dict[Path, FoundFile] = {}
    links: list[tuple[str, Path]] = []
    faults: list[str] = []
    for name, path, is_link in _walk(root, globs, faults):
        if is_link:
            links.append((name, path))
        elif file := _looked_at(name, path, faults):
            found[path] = file
    for name, path in links:
        target = path.resolve()
        if not target.is_relative_to(root):
            faults.append(f"{name}: it is a link that leads out of the Codex folder, and is not followed.")
        elif target not in found and target.is_file() and (file := _looked_at(name, target, faults)):
            found[target] = file
    return sorted(found.values(), key=lambda file: file.name), faults


def _walk(root: Path, globs: Sequence[str], faults: list[str]) -> Iterator[tuple[str, Path, bool]]:
    def note(error: OSError) -> None:
        where = Path(error.filename).relative_to(root).as_posix() if error.filename else "a folder"
        faults.append(f"{where}: it cannot be read ({error.strerror}).")

    for base, folders, files in os.walk(root, onerror=note):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in _SKIPPED_FOLDERS)
        for file in files:
            path = Path(base, file)
            name = path.relative_to(root).as_posix()
            if any(_matches(name, glob) for glob in globs):
                yield name, path, path.is_symlink()


def _matches(name: str, glob: str) -> bool:
    subject = name if "/" in glob else name.rsplit("/", 1)[-1]
    return fnmatch.fnmatchcase(subject.lower(), glob.lower().replace("**/", ""))


def _looked_at(name: str, path: Path, faults: list[str]) -> FoundFile | None:
    try:
        stat = path.stat()
    except OSError as error:
        faults.append(f"{name}: it cannot be read ({error.strerror}).")
        return None
    return FoundFile(name, path, stat.st_size, stat.st_mtime_ns)


def decode(data: bytes, name: str) -> tuple[str, str]:
    """Give (text, ''), or ('', why it cannot be used)."""
    if len(data) > LIMIT_BYTES:
        return "", f"{name}: it is larger than {LIMIT_BYTES // 1024 // 1024} MiB and was skipped."
    try:
        return data.decode("utf-8"), ""
    except UnicodeDecodeError as error:
        return "", f"{name}: it is not UTF-8 (byte {error.start}) and was skipped; save it as UTF-8."
