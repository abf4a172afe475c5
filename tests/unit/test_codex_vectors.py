"""Search by meaning: vectors come in the background, are kept by content, and words serve until they are there."""

import asyncio
import hashlib
import re
import sqlite3
import threading
from dataclasses import dataclass

import numpy as np
import pytest

from bot.checks import Health
from bot.conversation import RoomKey
from bot.drivers.codex import Codex

ROOM = RoomKey("slack", "T1", "C1")
SYNONYMS = {"vacation": "leave", "holiday": "leave", "money": "pay", "wage": "pay"}


@dataclass
class Made:
    vector: bytes
    tokens: bytes
    token_ids: bytes


@dataclass
class Asked:
    vector: np.ndarray
    tokens: np.ndarray
    token_ids: tuple[int, ...]


class BagOfWords:
    """A vector model of words and a few synonyms. `gate` holds the making of passages back until it is set."""

    model_id = "bag-of-words"

    def __init__(self, *, is_open=True):
        self.texts = []
        self.gate = threading.Event()
        if is_open:
            self.gate.set()

    def passages(self, texts):
        self.gate.wait(10)
        self.texts += texts
        return [self._made(text) for text in texts]

    def question(self, text):
        whole, tokens, ids = self._vectors(text)
        return Asked(whole, tokens, tuple(ids))

    def known_words(self):
        return frozenset({"vacation", "holiday"})

    def _made(self, text):
        whole, tokens, ids = self._vectors(text)
        return Made(
            *(np.round(x * 127).astype(np.int8).tobytes() for x in (whole, tokens)), np.array(ids, np.uint16).tobytes()
        )

    def _vectors(self, text):
        words = [SYNONYMS.get(word, word) for word in re.findall(r"[a-z]+", text.lower())] or ["nothing"]
        seeds = [int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big") for word in words]
        tokens = np.array([np.random.default_rng(seed).standard_normal(384) for seed in seeds], np.float32)
        tokens /= np.linalg.norm(tokens, axis=1, keepdims=True)
        whole = tokens.sum(axis=0)
        return whole / np.linalg.norm(whole), tokens, [seed % 65_536 for seed in seeds]


@pytest.fixture
def folder(tmp_path):
    codex = tmp_path / "codex"
    codex.mkdir()
    (codex / "leave.md").write_text("# Leave\n\n## Days\n\nEverybody has thirty days.\n\n## Asking\n\nAsk your lead.\n")
    (codex / "branches.md").write_text("# Branches\n\n## Names\n\nA branch has a type.\n")
    return codex


async def test_a_question_in_other_words_is_found_once_vectors_are_there(folder, tmp_path):
    model = BagOfWords()
    codex = await Codex.open(folder, tmp_path / "index.db", load_model=lambda: model)
    assert await codex.embedded()
    findings = await codex.search("vacation", (), room=ROOM, limit=3)
    assert findings.hits[0].section.document == "leave.md"
    assert set(findings.hits[0].components) == {"words", "text", "name", "tokens"}
    assert codex.way == "meaning"
    await codex.close()


async def test_words_serve_while_vectors_are_being_made(folder, tmp_path):
    model = BagOfWords(is_open=False)
    codex = await Codex.open(folder, tmp_path / "index.db", load_model=lambda: model)
    findings = await asyncio.wait_for(codex.search("branch type", (), room=ROOM, limit=3), 5)
    assert findings.hits[0].section.heading == "Names"
    assert codex.way == "words"
    model.gate.set()
    await asyncio.wait_for(codex.embedded(), 10)
    await codex.search("branch type", (), room=ROOM, limit=3)
    assert codex.way == "meaning"
    await codex.close()


async def test_progress_is_told_while_vectors_are_made(folder, tmp_path):
    model = BagOfWords(is_open=False)
    told = []
    codex = await Codex.open(folder, tmp_path / "index.db", load_model=lambda: model)
    waiting = asyncio.create_task(codex.embedded(progress=lambda done, whole: told.append((done, whole))))
    await asyncio.sleep(0)
    model.gate.set()
    await asyncio.wait_for(waiting, 10)
    assert told[-1][0] == told[-1][1] > 0
    await codex.close()


async def test_vectors_are_made_once_for_each_text(folder, tmp_path):
    model = BagOfWords()
    for _ in range(2):
        codex = await Codex.open(folder, tmp_path / "index.db", load_model=lambda: model)
        await codex.embedded()
        await codex.close()
    assert len(model.texts) == len(set(model.texts))


async def test_an_edit_makes_vectors_for_what_changed_only(folder, tmp_path):
    model = BagOfWords()
    codex = await Codex.open(folder, tmp_path / "index.db", load_model=lambda: model)
    await codex.embedded()
    model.texts.clear()
    (folder / "leave.md").write_text("# Leave\n\n## Days\n\nEverybody has forty days.\n\n## Asking\n\nAsk your lead.\n")
    await codex.refresh()
    await codex.embedded()
    assert model.texts == ["Leave > Days\nEverybody has forty days."]
    assert (await codex.search("forty", (), room=ROOM, limit=1)).hits[0].section.heading == "Days"
    await codex.close()


async def test_vectors_of_text_that_is_gone_are_thrown_away(folder, tmp_path):
    model = BagOfWords()
    codex = await Codex.open(folder, tmp_path / "index.db", load_model=lambda: model)
    await codex.embedded()
    (folder / "leave.md").unlink()
    await codex.refresh()
    await codex.close()
    with sqlite3.connect(tmp_path / "index.db") as db:
        left = db.execute("select count(*) from vector").fetchone()[0]
        used = db.execute("select count(*) from (select hash from chunk union select hash from name)").fetchone()[0]
    db.close()
    assert left == used > 0


async def test_another_model_makes_its_own_vectors(folder, tmp_path):
    first, second = BagOfWords(), BagOfWords()
    second.model_id = "another"
    for model in (first, second):
        codex = await Codex.open(folder, tmp_path / "index.db", load_model=lambda model=model: model)
        await codex.embedded()
        await codex.close()
    assert sorted(second.texts) == sorted(first.texts)


async def test_a_follow_up_is_understood_by_meaning_too(folder, tmp_path):
    model = BagOfWords()
    codex = await Codex.open(folder, tmp_path / "index.db", load_model=lambda: model)
    await codex.embedded()
    findings = await codex.search("and who do I ask?", ["How many vacation days are there?"], room=ROOM, limit=1)
    assert findings.hits[0].section.document == "leave.md"
    await codex.close()


async def test_a_document_bound_to_a_channel_is_shut_by_meaning_too(folder, tmp_path):
    model = BagOfWords()
    (folder / "leave.md").write_text("---\nchannels: [C9]\n---\n" + (folder / "leave.md").read_text())
    codex = await Codex.open(folder, tmp_path / "index.db", load_model=lambda: model)
    await codex.embedded()
    findings = await codex.search("vacation days", (), room=ROOM, limit=5)
    assert {hit.section.document for hit in findings.hits} == {"branches.md"}
    await codex.close()


async def test_closing_while_vectors_are_made_keeps_those_that_are(folder, tmp_path):
    for number in range(100):
        (folder / f"page{number}.md").write_text(f"# Page {number}\n\nText number {number}.\n")
    model = BagOfWords()
    codex = await Codex.open(folder, tmp_path / "index.db", load_model=lambda: model)
    while not model.texts:
        await asyncio.sleep(0.001)
    await asyncio.wait_for(codex.close(), 10)
    again = await Codex.open(folder, tmp_path / "index.db", load_model=lambda: model)
    await again.embedded()
    assert len(model.texts) - len(set(model.texts)) <= 32  # at most the batch that was being made
    await again.close()


async def test_a_model_that_fails_leaves_search_by_words(folder, tmp_path, caplog):
    class Broken(BagOfWords):
        def passages(self, texts):
            raise RuntimeError("no memory")

    codex = await Codex.open(folder, tmp_path / "index.db", load_model=Broken)
    await asyncio.wait_for(codex.embedded(), 5)
    assert (await codex.search("branch type", (), room=ROOM, limit=1)).hits[0].section.heading == "Names"
    assert "making vectors of the Codex" in caplog.text
    await codex.close()


async def test_without_a_model_doctor_says_what_is_lost(folder, tmp_path):
    codex = await Codex.open(folder, tmp_path / "index.db")
    assert await codex.embedded() is False
    [check] = [check for check in codex.checks() if check.name == "search"]
    assert (check.verdict, "by words alone" in check.seen) == (Health.WARN, True)
    await codex.close()
