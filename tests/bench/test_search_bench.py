"""What search costs beside the full-text queries it rests on, in the same run."""

import random
import sqlite3
import statistics
import time

from bot.conversation import RoomKey
from bot.drivers.codex import Codex
from bot.drivers.codex_text import letters_expression, match_expression

ROOM = RoomKey("terminal", "local", "bench")
RANDOM = random.Random(1)
WORDS = ["".join(RANDOM.choices("etaoinshrdlucmfwypbg", k=RANDOM.randint(4, 9))) for _ in range(3000)]
QUESTIONS = [f"what is {' '.join(RANDOM.choices(WORDS, k=4))}?" for _ in range(40)]


def ms(work):
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1000


async def test_a_search_by_words_costs_little_beside_the_bare_queries(tmp_path):
    folder = tmp_path / "codex"
    folder.mkdir()
    for page in range(50):
        sections = (f"## Section {n}\n\n{' '.join(RANDOM.choices(WORDS, k=60))}\n" for n in range(20))
        (folder / f"page{page}.md").write_text(f"# Page {page}\n\n" + "\n".join(sections))
    codex = await Codex.open(folder, tmp_path / "index.db")
    bare = sqlite3.connect(tmp_path / "index.db")
    by_words = "select rowid, bm25(lexical) from lexical where lexical match ? order by 2 limit 200"
    by_letters = "select rowid, bm25(letters) from letters where letters match ? order by 2 limit 200"
    floor, cost = [], []
    for question in QUESTIONS:
        plain = ms(lambda q=question: bare.execute(by_words, (match_expression(q),)).fetchall())
        floor.append(plain + ms(lambda q=question: bare.execute(by_letters, (letters_expression(q),)).fetchall()))
        started = time.perf_counter()
        await codex.search(question, (), room=ROOM, limit=6)
        cost.append((time.perf_counter() - started) * 1000)
    bare.close()
    await codex.close()
    ratio = statistics.median(cost) / statistics.median(floor)
    print(f"search by words: {ratio:.1f} times the bare queries of {statistics.median(floor):.2f} ms")
    assert ratio < 15
