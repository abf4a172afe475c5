"""Which documents a room may see: its own Codex's, without those bound to other channels.

The Codex folder may hold several Codexes, one a subfolder: a room that is given `mobile` sees what lies in `mobile/`;
every other room sees the rest, the Codex called `default`. A document's front matter may bind it to channels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from bot.conversation import RoomKey
from bot.drivers.codex_index import Index
from bot.drivers.codex_rows import Shelf
from bot.sections import Document

DEFAULT = "default"
NAMED_BY_CALLERS = frozenset({"web"})  # platforms where whoever asks may name the room as they like


def names_room(entry: str, room: RoomKey) -> bool:
    """Say whether `entry` means `room`: a channel's id, a whole room (`slack/T1/C0123`) or a pattern of one.

    Where callers name their rooms themselves, a bare id means none: they would get in by calling a room so.
    """
    is_channel = entry == room.channel and room.platform not in NAMED_BY_CALLERS
    return is_channel or fnmatchcase(str(room), entry)


@dataclass(frozen=True, slots=True)
class Access:
    """`rooms` maps entries as in `names_room` to the name of a Codex; the first that fits counts."""

    rooms: Mapping[str, str] = field(default_factory=dict)

    def codex_of(self, room: RoomKey) -> str:
        """Give the name of the Codex that `room` sees."""
        return next((codex for entry, codex in self.rooms.items() if names_room(entry, room)), DEFAULT)

    def unknown(self, documents: Iterable[str]) -> list[str]:
        """Give the names of Codexes that are no subfolder with a document."""
        folders = {name.split("/", 1)[0] for name in documents if "/" in name}
        return sorted(set(self.rooms.values()) - folders - {DEFAULT})

    def may_see(self, room: RoomKey, document: str, channels: Sequence[str] | None) -> bool:
        """Say whether `room` may see a document, bound to `channels` by its front matter or to none (None)."""
        if channels is not None and not any(names_room(entry, room) for entry in channels):
            return False
        if not self.rooms:
            return True
        folder = document.split("/", 1)[0] if "/" in document else DEFAULT
        return self.codex_of(room) == (folder if folder in self.rooms.values() else DEFAULT)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The documents of one state of the index, and who may see them."""

    structure: int
    shelves: Mapping[str, Shelf]
    access: Access
    _shut: dict[RoomKey, frozenset[int]] = field(default_factory=dict)

    @classmethod
    def load(cls, index: Index, access: Access) -> Catalogue:
        """Read the catalogue; within a transaction it belongs to what else is read there."""
        return cls(index.counter("structure"), {shelf.document.name: shelf for shelf in index.shelves()}, access)

    def is_open(self, room: RoomKey, document: str) -> bool:
        """Say whether `room` may see a document; one that is unknown it may not."""
        shelf = self.shelves.get(document)
        return shelf is not None and self.access.may_see(room, document, shelf.channels)

    def documents(self, room: RoomKey) -> tuple[Document, ...]:
        """Give the documents that `room` may see, in order of name."""
        return tuple(shelf.document for name, shelf in self.shelves.items() if self.is_open(room, name))

    def shut_to(self, room: RoomKey) -> frozenset[int]:
        """Give the numbers of the documents that `room` must not see."""
        if room not in self._shut:
            shut = (shelf.id for name, shelf in self.shelves.items() if not self.is_open(room, name))
            self._shut[room] = frozenset(shut)
        return self._shut[room]
