"""The index of one Codex: an SQLite file of its own, derived from the folder and disposable.

A connection belongs to the thread that opened it. Every file is one transaction, so what stands in the index is a
whole document or nothing of it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bot.drivers.codex_files import FoundFile
from bot.drivers.codex_rows import Known, Match, Shelf, Table
from bot.drivers.codex_text import clean, letters_expression, match_expression, searchable, windows
from bot.sections import Document, Parsed, Section

VERSION = 10  # raise it when the tables, the cutting or the cleaning change: an index of another version is made anew

LETTERS_UP_TO_CHUNKS = 20_000
CANDIDATES = 200  # chunks that the full-text index gives for one question

# Numbers are never used twice (autoincrement): vectors held in memory may be older than the tables.
_TABLES = """
create table document(id integer primary key autoincrement, name text not null unique, title text not null,
    sections int not null, faults text not null, channels text, size int not null, mtime_ns int not null,
    sha blob not null, seen_ns int not null, digest blob not null);
create table section(id integer primary key autoincrement, document int not null, key text not null unique,
    headings text not null, anchor text not null, line int not null, end_line int not null, level int not null,
    text text not null);
create index section_document on section(document);
create table chunk(id integer primary key autoincrement, section int not null, passage text not null,
    text text not null, hash blob not null);
create index chunk_section on chunk(section);
create index chunk_hash on chunk(hash);
create table name(id integer primary key autoincrement, section int not null, text text not null, hash blob not null);
create index name_section on name(section);
create table vector(hash blob primary key, vector blob not null, tokens blob not null, token_ids blob not null);
create virtual table lexical using fts5(title, crumbs, heading, body,
    tokenize="porter unicode61 categories 'L* N* Co M*'");
create virtual table letters using fts5(title, crumbs, heading, body, tokenize='trigram');
create virtual table word using fts5(text, content='chunk', content_rowid='id', detail='none', columnsize=0,
    tokenize="unicode61 categories 'L* N* Co M*'");
create virtual table vocabulary using fts5vocab(word, row);
create table counter(name text primary key, value int not null) without rowid;
insert into counter values ('structure', 0), ('vectors', 0);
create table vector_model(id text not null);
"""


class Index:
    """One connection to the index of one Codex."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        self._db.execute("pragma busy_timeout = 30000")

    @classmethod
    def open(cls, path: Path) -> Index:
        """Open the index at `path`, making it anew where there is none, or one of another version or a damaged one."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with _only_one(path):
            if (index := cls._existing(path)) is not None:
                return index
            for suffix in ("", "-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            index = cls(path)
            index._create()
            return index

    @classmethod
    def _existing(cls, path: Path) -> Index | None:
        """Give the index at `path` if it can be used."""
        index = cls(path)
        try:
            if index.version == VERSION and index.is_sound():
                return index
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                index.close()
                raise
        index.close()
        return None

    @property
    def version(self) -> int:
        return int(self._db.execute("pragma user_version").fetchone()[0])

    def close(self) -> None:
        self._db.close()

    def _create(self) -> None:
        self._db.execute("pragma journal_mode = wal")
        self._db.execute("pragma synchronous = normal")
        with self.writing():
            for statement in _TABLES.strip().split(";\n"):
                self._db.execute(statement)
            self._db.execute(f"pragma user_version = {VERSION}")

    def is_sound(self) -> bool:
        """Say whether pages, tables and every document's text are as they were written."""
        if self._db.execute("pragma quick_check(1)").fetchone()[0] != "ok":
            return False
        digests = dict(self._db.execute("select id, digest from document"))
        found = {number: hashlib.blake2b(digest_size=16) for number in digests}
        rows = self._db.execute("select document, key, headings, text from section order by id")
        for document, key, headings, text in rows:
            if document not in found:
                return False
            _add_to(found[document], key, headings, text)
        return all(found[number].digest() == digest for number, digest in digests.items())

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold one write transaction."""
        self._db.execute("begin immediate")
        try:
            yield
        except BaseException:
            self._db.execute("rollback")
            raise
        self._db.execute("commit")

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Hold one read transaction: everything within sees the same index."""
        self._db.execute("begin")
        try:
            yield
        finally:
            self._db.execute("rollback")

    # What changed

    def known(self) -> dict[str, Known]:
        rows = self._db.execute("select name, size, mtime_ns, sha, seen_ns from document")
        return {name: Known(*rest) for name, *rest in rows}

    def counter(self, name: str) -> int:
        """Give how often the `structure` or the `vectors` changed."""
        return int(self._db.execute("select value from counter where name = ?", (name,)).fetchone()[0])

    def touch(self, file: FoundFile, *, seen_ns: int) -> None:
        """Note that a file was read and holds what it held."""
        with self.writing():
            self._db.execute(
                "update document set size = ?, mtime_ns = ?, seen_ns = ? where name = ?",
                (file.size, file.mtime_ns, seen_ns, file.name),
            )

    def replace(self, file: FoundFile, parsed: Parsed, *, sha: bytes, seen_ns: int) -> None:
        """Put a document in place of what was known under its name, in one transaction."""
        with self.writing():
            self._drop(file.name)
            self._add(file, parsed, sha=sha, seen_ns=seen_ns)
            self._bump("structure")

    def forget(self, names: Iterable[str]) -> None:
        """Take documents out, in one transaction."""
        with self.writing():
            for name in names:
                self._drop(name)
            self._db.execute(
                "delete from vector where hash not in (select hash from chunk) and hash not in (select hash from name)"
            )
            self._bump("structure")

    def _bump(self, counter: str) -> None:
        self._db.execute("update counter set value = value + 1 where name = ?", (counter,))

    def _drop(self, name: str) -> None:
        row = self._db.execute("select id from document where name = ?", (name,)).fetchone()
        if row is None:
            return
        chunks = "select c.id, c.text from chunk c join section s on s.id = c.section where s.document = ?"
        for chunk, text in self._db.execute(chunks, row).fetchall():
            self._db.execute("insert into word(word, rowid, text) values ('delete', ?, ?)", (chunk, text))
            self._db.execute("delete from lexical where rowid = ?", (chunk,))
            self._db.execute("delete from letters where rowid = ?", (chunk,))
            self._db.execute("delete from chunk where id = ?", (chunk,))
        self._db.execute("delete from name where section in (select id from section where document = ?)", row)
        self._db.execute("delete from section where document = ?", row)
        self._db.execute("delete from document where id = ?", row)

    def _add(self, file: FoundFile, parsed: Parsed, *, sha: bytes, seen_ns: int) -> None:
        document = parsed.document
        channels = None if parsed.channels is None else json.dumps(parsed.channels)
        digest = hashlib.blake2b(digest_size=16)
        for section in parsed.sections:
            _add_to(digest, section.id, json.dumps(section.headings), section.text)
        number = self._insert(
            "document(name, title, sections, faults, channels, size, mtime_ns, sha, seen_ns, digest)",
            *(document.name, document.title, document.sections, json.dumps(document.faults), channels),
            *(file.size, file.mtime_ns, sha, seen_ns, digest.digest()),
        )
        for section in parsed.sections:
            self._add_section(number, section, aliases=parsed.aliases)

    def _insert(self, table: str, *values: object) -> int:
        marks = ", ".join("?" * len(values))
        return self._db.execute(f"insert into {table} values ({marks})", values).lastrowid or 0  # noqa: S608 -- our own table names

    def _add_section(self, document: int, section: Section, *, aliases: Sequence[str]) -> None:
        number = self._insert(
            "section(document, key, headings, anchor, line, end_line, level, text)",
            *(document, section.id, json.dumps(section.headings), section.anchor),
            *(section.line, section.end_line, section.level, section.text),
        )
        for name in dict.fromkeys([section.breadcrumb, *(" > ".join((a, *section.headings)) for a in aliases)]):
            self._insert("name(section, text, hash)", number, name, digest_of(name))
        title = searchable(" / ".join((section.title, *aliases)))
        crumbs = searchable(" > ".join(section.headings[:-1]))
        is_small = self.is_small
        heading = searchable(section.headings[-1] if section.headings else "")  # the title has its own column
        for passage in windows(section.text):
            body = clean(passage)
            text = f"{section.breadcrumb}\n{body}"
            part = "" if passage == section.text else passage
            chunk = self._insert("chunk(section, passage, text, hash)", number, part, text, digest_of(text))
            columns = (title, crumbs, heading, searchable(body))
            self._insert("lexical(rowid, title, crumbs, heading, body)", chunk, *columns)
            if is_small:
                self._insert("letters(rowid, title, crumbs, heading, body)", chunk, *columns)
            self._insert("word(rowid, text)", chunk, text)

    # What is there

    def shelves(self) -> list[Shelf]:
        rows = self._db.execute("select id, name, title, sections, faults, channels from document order by name")
        return [
            Shelf(
                number,
                Document(name, title, sections, tuple(json.loads(faults))),
                None if channels is None else tuple(json.loads(channels)),
            )
            for number, name, title, sections, faults, channels in rows
        ]

    def channels_of(self, document: str) -> tuple[str, ...] | None:
        """Give the channels that a document is bound to; None where it is bound to none, or unknown."""
        row = self._db.execute("select channels from document where name = ?", (document,)).fetchone()
        return None if row is None or row[0] is None else tuple(json.loads(row[0]))

    def matches(self, question: str, *, shut: Iterable[int] = (), limit: int = CANDIDATES) -> list[Match]:
        """Give the chunks that share words with `question`, best first; none of the documents in `shut`."""
        expression = match_expression(question)
        if not expression:
            return []
        return [Match(*row) for row in self._db.execute(_MATCHES, (expression, json.dumps(list(shut)), limit))]

    def letter_matches(self, question: str, *, shut: Iterable[int] = (), limit: int = CANDIDATES) -> list[Match]:
        """Give the chunks that share runs of three letters with `question`; of a large Codex none."""
        expression = letters_expression(question)
        if not expression or not self.is_small:
            return []
        return [Match(*row) for row in self._db.execute(_LETTER_MATCHES, (expression, json.dumps(list(shut)), limit))]

    @property
    def is_small(self) -> bool:
        """Say whether letters are looked for too: at 100,000 sections they would take 76 ms of every search."""
        beyond = self._db.execute("select 1 from chunk limit 1 offset ?", (LETTERS_UP_TO_CHUNKS,)).fetchone()
        return beyond is None

    def sections(self, numbers: Sequence[int]) -> dict[int, Section]:
        """Give sections by their number in the index."""
        rows = self._db.execute(f"{_SECTION} where s.id in ({_GIVEN})", (json.dumps(numbers),))
        return {number: _section(rest) for number, *rest in rows}

    def sections_of(self, document: str) -> list[tuple[int, Section]]:
        rows = self._db.execute(f"{_SECTION} where d.name = ? order by s.id", (document,))
        return [(number, _section(rest)) for number, *rest in rows]

    def section(self, key: str) -> Section | None:
        """Give the section with the id `key`."""
        row = self._db.execute(f"{_SECTION} where s.key = ?", (key,)).fetchone()
        return _section(row[1:]) if row else None

    def passages(self, chunks: Sequence[int]) -> dict[int, str]:
        """Give the text of chunks that are part of a longer section; '' for a chunk that is a whole one."""
        rows = "select id, passage from chunk where id in (select value from json_each(?))"
        return dict(self._db.execute(rows, (json.dumps(chunks),)))

    def first_below(self, numbers: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Give (section, its first chunk) that follows directly below each of the given headings without text."""
        return {parent: (child, chunk) for parent, child, chunk in self._db.execute(_BELOW, (json.dumps(numbers),))}

    def vocabulary(self) -> dict[str, int]:
        """Give every word of the Codex and how many chunks hold it."""
        return dict(self._db.execute("select term, doc from vocabulary"))

    def holders(self, terms: Iterable[str]) -> dict[str, int]:
        """Give in how many chunks each term stands, whatever its ending."""
        sql = "select count(*) from lexical where lexical match ?"
        return {term: int(self._db.execute(sql, (f'"{term}"',)).fetchone()[0]) for term in terms}

    def held_by(self, chunk: int, terms: Iterable[str]) -> set[str]:
        """Give those of the terms that stand in `chunk`, whatever their ending."""
        sql = "select 1 from lexical where lexical match ? and rowid = ?"
        return {term for term in terms if self._db.execute(sql, (f'"{term}"', chunk)).fetchone()}

    # Vectors

    def use_model(self, model_id: str) -> None:
        """Throw the vectors of another model away."""
        row = self._db.execute("select id from vector_model").fetchone()
        if row is None or row[0] != model_id:
            with self.writing():
                self._db.execute("delete from vector")
                self._db.execute("delete from vector_model")
                self._insert("vector_model(id)", model_id)
                self._bump("vectors")

    def unembedded(self, *, limit: int) -> list[tuple[bytes, str, bool]]:
        """Give (hash, text, whether it is a name) of what has no vector."""
        rows = self._db.execute(
            "select hash, text, false from chunk where hash not in (select hash from vector)"
            " union select hash, text, true from name where hash not in (select hash from vector) limit ?",
            (limit,),
        )
        return [(digest, text, bool(is_name)) for digest, text, is_name in rows]

    def count_unembedded(self) -> int:
        sql = (
            "select count(*) from (select hash from chunk union select hash from name) u"
            " where u.hash not in (select hash from vector)"
        )
        return int(self._db.execute(sql).fetchone()[0])

    def keep_vectors(self, rows: Iterable[tuple[bytes, bytes, bytes, bytes]]) -> None:
        """Store (hash, vector, tokens, token ids), in one transaction."""
        with self.writing():
            self._db.executemany(
                "insert or ignore into vector(hash, vector, tokens, token_ids) values (?, ?, ?, ?)", rows
            )
            self._bump("vectors")

    def vector_keys(self, table: Table) -> list[tuple[int, bytes]]:
        """Give (number, hash) of every row of a table, in order."""
        return self._db.execute(_KEYS[table]).fetchall()

    def vectors(self, table: Table, numbers: Sequence[int]) -> list[tuple[int, bytes, bytes]]:
        """Give (number, vector, token ids) of those rows that have been embedded."""
        return self._db.execute(_VECTORS[table], (json.dumps(numbers),)).fetchall()

    def places_of_chunks(self) -> list[tuple[int, int]]:
        """Give (section, document) of every chunk, in order of chunk."""
        sql = "select c.section, s.document from chunk c join section s on s.id = c.section order by c.id"
        return self._db.execute(sql).fetchall()

    def sections_of_names(self) -> list[int]:
        """Give the section of every name, in order of name."""
        return [section for (section,) in self._db.execute("select section from name order by id")]

    def tokens(self, chunks: Sequence[int]) -> dict[int, bytes]:
        """Give the token vectors of chunks that have them."""
        rows = (
            "select c.id, v.tokens from json_each(?) g join chunk c on c.id = g.value join vector v on v.hash = c.hash"
        )
        return dict(self._db.execute(rows, (json.dumps(chunks),)))

    def chunk_count(self) -> int:
        return int(self._db.execute("select count(*) from chunk").fetchone()[0])


@contextmanager
def _only_one(path: Path) -> Iterator[None]:
    """Keep a second process from taking an index that is just being made for a damaged one."""
    with open(path.with_name(path.name + ".lock"), "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def is_damage(error: sqlite3.Error) -> bool:
    """Say whether `error` means that the file is no sound index, rather than busy, full or out of reach."""
    code = getattr(error, "sqlite_errorcode", None) or sqlite3.SQLITE_ERROR
    return code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_FORMAT)


# Documents that are shut are left out before the limit: they must not crowd out those that are open.
_MATCHES = """
select f.chunk, c.section, s.document, f.score from (
    select rowid as chunk, -bm25(lexical, 2, 2, 4, 1) as score from lexical
    where lexical match ? and rowid not in (
        select c.id from json_each(?) shut join section s on s.document = shut.value join chunk c on c.section = s.id)
    order by score desc limit ?) f
join chunk c on c.id = f.chunk join section s on s.id = c.section
order by f.score desc, f.chunk
"""

_KEYS: Mapping[Table, str] = {
    "chunk": "select id, hash from chunk order by id",
    "name": "select id, hash from name order by id",
}
_VECTORS: Mapping[Table, str] = {
    "chunk": "select t.id, v.vector, v.token_ids from json_each(?) g"
    " join chunk t on t.id = g.value join vector v on v.hash = t.hash",
    "name": "select t.id, v.vector, v.token_ids from json_each(?) g"
    " join name t on t.id = g.value join vector v on v.hash = t.hash",
}

_LETTER_MATCHES = _MATCHES.replace("lexical", "letters")

# Sections of a document are numbered in order.
_BELOW = """
select p.id, c.id, min(k.id) from json_each(?) g
join section p on p.id = g.value and p.text = '' and p.level > 0
join section c on c.id = p.id + 1 and c.document = p.document and c.level > p.level and c.text <> ''
join chunk k on k.section = c.id
group by p.id
"""

_GIVEN = "select value from json_each(?)"
_SECTION = (
    "select s.id, s.key, d.name, d.title, s.headings, s.anchor, s.line, s.end_line, s.text, s.level"
    " from section s join document d on d.id = s.document"
)


def _section(row: Sequence[Any]) -> Section:
    key, document, title, headings, *rest = row
    return Section(key, document, title, tuple(json.loads(headings)), *rest)


def _add_to(digest: hashlib.blake2b, *texts: str) -> None:
    for text in texts:
        digest.update(text.encode("utf-8", "surrogatepass") + b"\0")


def digest_of(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
