"""The index of the Codex survives what happens to files and processes."""

import asyncio
import os
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


# A folder as people and programs leave it


async def test_pipes_loops_and_names_that_are_no_text_are_named_and_passed_over(tmp_path):
    folder = tmp_path / "codex"
    folder.mkdir()
    (folder / "good.md").write_text("# Good\n\nZebras are painted on Tuesdays.\n")
    os.mkfifo(folder / "pipe.md")
    (folder / "loop.md").symlink_to("pool.md")
    (folder / "pool.md").symlink_to("loop.md")
    (folder / "gone.md").symlink_to("nowhere.md")
    (folder / "self").symlink_to(".")
    (folder / "drawer.md").mkdir()
    (folder / "drawer.md" / "inner.md").write_text("# Inner\n")
    (folder / "drawer-link.md").symlink_to("drawer.md")
    Path(os.fsdecode(bytes(folder) + b"/bad\xff.md")).write_text("# Bad\n")
    Path(os.fsdecode(bytes(folder) + b"/sub\xff")).mkdir()
    (folder / "line\nbreak \"and' 名前.md").write_text("# Odd\n\nOtters swim.\n")
    codex = await Codex.open(folder, tmp_path / "index.db")
    names = [document.name for document in codex.documents(ROOM)]
    assert names == ["drawer.md/inner.md", "good.md", "line\nbreak \"and' 名前.md"]
    named = sorted(fault.split(":")[0] for fault in codex.faults)
    assert named == ["bad\ufffd.md", "gone.md", "loop.md", "pipe.md", "pool.md", "sub\ufffd"]
    await codex.close()


@pytest.mark.parametrize(
    "text",
    [
        '---\ntitle: "half \\ud800"\naliases: ["\\udfff"]\n---\n# T\n\nwombat\n',
        "# N\0ul\n\nwombat \0\n",
        "# Image\n\n" + "[" * 300_000 + "\n\n## T\n\nwombat\n",
        "# Image\n\n" + "QUJD" * 500_000 + "\n\nwombat\n",
        "---\na: &a [x, x, x, x]\nb: &b [*a, *a, *a]\naliases: *b\n---\n# T\n\nwombat\n",
        "---\ntitle: !!python/object/apply:os.getcwd []\n---\n# T\n\nwombat\n",
        ">" * 20_000 + " x\n\n# T\n\nwombat\n",
    ],
    ids=["half a character", "NUL", "brackets", "base64", "aliases", "tag", "nested"],
)
async def test_no_text_can_stop_the_index(tmp_path, text):
    folder = tmp_path / "codex"
    folder.mkdir()
    (folder / "page.md").write_text(text)
    codex = await Codex.open(folder, tmp_path / "index.db")
    [hit] = (await codex.search("wombat", (), room=ROOM, limit=1)).hits
    assert "wombat" in hit.section.text
    await codex.close()


async def test_a_bound_document_that_can_no_longer_be_read_stays_bound(tmp_path):
    folder = tmp_path / "codex"
    folder.mkdir()
    (folder / "open.md").write_text("# Open\n\nZebras.\n")
    (folder / "layoffs.md").write_text("---\nchannels: [C1]\n---\n# Layoffs\n\nWombats.\n")
    codex = await Codex.open(folder, tmp_path / "index.db")
    (folder / "layoffs.md").write_bytes(b"---\nchannels: [C1]\n---\n# Layoffs caf\xe9\n")
    await codex.refresh()
    assert [document.name for document in codex.documents(ROOM)] == ["open.md"]
    bound = RoomKey("slack", "T1", "C1")
    assert [document.name for document in codex.documents(bound)] == ["layoffs.md", "open.md"]
    await codex.close()
