"""What search costs beside the full-text query it rests on, in the same run."""

import random
import sqlite3
import statistics
import time

from bot.conversation import RoomKey
from bot.drivers.codex import Codex
from bot.drivers.codex_text import match_expression

ROOM = RoomKey("terminal", "local", "bench")
WORDS = [f"word{number}" for number in range(3000)]
QUESTIONS = [f"what is word{n} for word{n * 7 % 3000} and word{n * 13 % 3000}" for n in range(1, 40)]


def ms(work):
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1000


async def test_a_search_by_words_costs_little_beside_the_bare_query(tmp_path):
    rng = random.Random(1)
    folder = tmp_path / "codex"
    folder.mkdir()
    for page in range(50):
        sections = (f"## Section {n}\n\n{' '.join(rng.choices(WORDS, k=60))}\n" for n in range(20))
        (folder / f"page{page}.md").write_text(f"# Page {page}\n\n" + "\n".join(sections))
    codex = await Codex.open(folder, tmp_path / "index.db")
    bare = sqlite3.connect(tmp_path / "index.db")
    query = "select rowid, bm25(lexical) from lexical where lexical match ? order by 2 limit 200"
    floor, cost = [], []
    for question in QUESTIONS:
        expression = match_expression(question)
        floor.append(ms(lambda e=expression: bare.execute(query, (e,)).fetchall()))
        started = time.perf_counter()
        await codex.search(question, (), room=ROOM, limit=6)
        cost.append((time.perf_counter() - started) * 1000)
    bare.close()
    await codex.close()
    ratio = statistics.median(cost) / statistics.median(floor)
    print(f"search by words: {ratio:.1f} times the bare query of {statistics.median(floor):.2f} ms")
    assert ratio < 40
