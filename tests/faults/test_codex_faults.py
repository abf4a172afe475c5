"""The index of the Codex survives what happens to files and processes."""

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bot.conversation import RoomKey
from bot.drivers.codex import Codex
from bot.errors import CodexUnreadable

ROOM = RoomKey("terminal", "local", "faults")
INDEXING = """
import asyncio, sys
from pathlib import Path
from bot.drivers.codex import Codex

async def main():
    told = lambda done, whole: print(done, flush=True)
    await Codex.open(Path(sys.argv[1]), Path(sys.argv[2]), progress=told)

asyncio.run(main())
"""


@pytest.fixture
def folder(tmp_path):
    codex = tmp_path / "codex"
    codex.mkdir()
    for number in range(200):
        (codex / f"page{number}.md").write_text(
            f"# Page {number}\n\n## Walrus {number}\n\nThe walrus is number{number}.\n"
        )
    return codex


async def test_kill_9_while_indexing_leaves_whole_documents_and_the_next_start_goes_on(folder, tmp_path):
    index = tmp_path / "index.db"
    child = subprocess.Popen(
        [sys.executable, "-c", INDEXING, str(folder), str(index)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    for _ in range(20):
        assert child.stdout.readline()
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    codex = await Codex.open(folder, index)
    assert len(codex.documents(ROOM)) == 200
    for number in (0, 7, 199):
        [hit, *_] = (await codex.search(f"number{number}", (), room=ROOM, limit=1)).hits
        assert hit.section.heading == f"Walrus {number}"
    await codex.close()


@pytest.mark.parametrize("cut", [0, 1, 100, 4096, 5000, -1])
async def test_a_truncated_index_is_made_anew(folder, tmp_path, cut):
    index = tmp_path / "index.db"
    await (await Codex.open(folder, index)).close()
    index.write_bytes(index.read_bytes()[:cut])
    codex = await Codex.open(folder, index)
    assert (await codex.search("number7", (), room=ROOM, limit=1)).hits[0].section.heading == "Walrus 7"
    await codex.close()


@pytest.mark.parametrize("place", ["a folder", "below a file"])
async def test_an_index_that_cannot_be_written_is_said_in_a_sentence(folder, tmp_path, place):
    index = tmp_path / "index.db"
    if place == "a folder":
        index.mkdir()
    else:
        index.write_text("x")
        index = index / "index.db"
    with pytest.raises(CodexUnreadable, match="cannot be used"):
        await Codex.open(folder, index)


async def test_an_index_held_by_another_is_waited_for(folder, tmp_path):
    import sqlite3

    index = tmp_path / "index.db"
    codex = await Codex.open(folder, index)
    other = sqlite3.connect(index, isolation_level=None, check_same_thread=False)
    other.execute("begin immediate")
    (folder / "page7.md").write_text("# New\n\nThe otter is here.\n")
    refreshing = asyncio.create_task(codex.refresh())
    await asyncio.sleep(0.2)
    started = time.monotonic()
    assert (await codex.search("number8", (), room=ROOM, limit=1)).hits  # reading goes on meanwhile
    assert time.monotonic() - started < 5
    other.execute("rollback")
    other.close()
    assert (await refreshing).replaced == ("page7.md",)
    await codex.close()
