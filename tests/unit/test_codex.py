"""The Codex: what is in the folder is found, what is gone is not, and nothing hostile in a question matters."""

import asyncio
import os
import sqlite3
import time
from pathlib import Path

import pytest

from bot.conversation import RoomKey
from bot.drivers.codex import Codex
from bot.errors import CodexUnreadable
from bot.ports import Band

ROOM = RoomKey("slack", "T1", "C1")
OTHER = RoomKey("slack", "T1", "C2")

BRANCHES = """# Branch naming

How branches are named.

## The convention

Every branch is named `<type>/<ticket>-<description>`.

## Hotfixes

A hotfix branch starts from the production tag.
"""
REVIEWS = """# Reviews

## Approvals

Two people approve every pull request. See DEC-0054.
"""


@pytest.fixture
def folder(tmp_path):
    codex = tmp_path / "codex"
    codex.mkdir()
    (codex / "branches.md").write_text(BRANCHES)
    (codex / "reviews.md").write_text(REVIEWS)
    return codex


@pytest.fixture
async def opened(folder, tmp_path):
    codex = await Codex.open(folder, tmp_path / "index.db", base_url="https://example.org/standards/")
    yield codex
    await codex.close()


async def found(codex, question, *earlier, room=ROOM):
    return [hit.section.heading for hit in (await codex.search(question, earlier, room=room, limit=5)).hits]


def written(path: Path, text: str, *, age_s: float = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    when = path.stat().st_mtime - age_s
    os.utime(path, (when, when))


async def test_a_question_finds_its_section_with_a_deep_link(opened):
    findings = await opened.search("What is our branch naming convention?", (), room=ROOM, limit=3)
    section = findings.hits[0].section
    assert (section.document, section.heading, section.line) == ("branches.md", "The convention", 5)
    assert opened.url(section) == "https://example.org/standards/branches.md#the-convention"
    assert findings.band is Band.HIGH
    assert findings.hits[0].components["words"] > 0


async def test_a_question_that_one_section_wholly_holds_is_sure_to_the_last_digit(opened):
    """Summed in the order of a set, the same search gave 1.0 in one process and a little less in the next."""
    words = "branch type ticket short description hotfix production tag review approval convention name"
    for count in range(1, len(words.split())):
        findings = await opened.search(" ".join(words.split()[:count]), (), room=ROOM, limit=1)
        assert findings.confidence == 1.0 or findings.confidence < 0.999


async def test_a_follow_up_without_a_subject_uses_the_question_before(opened):
    earlier = "What is our branch naming convention?"
    assert (await found(opened, "what about for hotfixes?", earlier))[0] == "Hotfixes"


async def test_a_change_of_topic_is_not_pulled_back_to_the_question_before(opened):
    earlier = "What is our branch naming convention?"
    assert (await found(opened, "How many people approve a pull request?", earlier))[0] == "Approvals"


async def test_a_question_outside_the_codex_has_low_confidence(opened):
    assert (await opened.search("What is our vacation policy?", (), room=ROOM, limit=3)).band is Band.LOW


@pytest.mark.parametrize(
    "question",
    [
        '"',
        "'",
        "a:b",
        "NOT",
        "AND OR NOT NEAR",
        "*",
        "(",
        "title:x",
        "what's the branch, roughly?",
        "^",
        "-",
        "\0",
        "x" * 5000,
    ],
)
async def test_no_question_can_break_the_search(opened, question):
    await opened.search(question, ("and?",), room=ROOM, limit=3)


async def test_a_question_of_a_megabyte_is_searched_in_a_moment(opened):
    started = time.monotonic()
    for question in ("x" * 1_000_000, "walrus otter-fox " * 60_000, "\u65e5" * 300_000, "a." * 500_000):
        await opened.search(question, (question,), room=ROOM, limit=3)
    assert time.monotonic() - started < 10


async def test_a_question_of_stop_words_alone_finds_nothing_or_something_but_fails_not(opened):
    await opened.search("what is it about", (), room=ROOM, limit=3)
    assert (await opened.search("   ", (), room=ROOM, limit=3)).hits == ()


async def test_an_identifier_is_found(opened):
    assert (await found(opened, "DEC-0054"))[0] == "Approvals"


async def test_a_mistyped_word_is_put_right(opened):
    assert (await found(opened, "how many poeple aprove a pull request"))[0] == "Approvals"


async def test_an_abbreviation_finds_what_is_written_out(opened):
    assert (await found(opened, "who signs off my PR?"))[0] == "Approvals"


async def test_a_changed_file_is_taken_in_and_its_old_text_is_gone(opened, folder):
    written(folder / "branches.md", "# Branch naming\n\n## Submarines\n\nSubmarines are yellow.\n")
    changes = await opened.refresh()
    assert changes.replaced == ("branches.md",)
    assert (await found(opened, "colour of submarines"))[0] == "Submarines"
    assert "Hotfixes" not in await found(opened, "hotfix branch production tag")


async def test_a_file_changed_without_change_of_size_or_time_is_taken_in(opened, folder):
    path = folder / "branches.md"
    before = path.stat()
    path.write_text(BRANCHES.replace("production", "recreation"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (await opened.refresh()).replaced == ("branches.md",)


async def test_a_removed_file_is_gone_at_once(opened, folder):
    (folder / "reviews.md").unlink()
    assert (await opened.refresh()).forgotten == ("reviews.md",)
    assert "Approvals" not in await found(opened, "who approves a pull request")
    assert opened.section(ROOM, "reviews.md#approvals") is None
    assert [document.name for document in opened.documents(ROOM)] == ["branches.md"]


async def test_a_renamed_file_is_found_under_its_new_name_only(opened, folder):
    (folder / "reviews.md").rename(folder / "approvals.md")
    await opened.refresh()
    assert [document.name for document in opened.documents(ROOM)] == ["approvals.md", "branches.md"]


async def test_nothing_is_written_when_nothing_changed(folder, tmp_path):
    for path in folder.iterdir():
        written(path, path.read_text(), age_s=60)
    codex = await Codex.open(folder, tmp_path / "index.db")
    state = (tmp_path / "index.db-wal").stat().st_size
    assert not await codex.refresh()
    assert (tmp_path / "index.db-wal").stat().st_size == state
    await codex.close()


async def test_the_running_program_notices_a_change_within_seconds(opened, folder):
    noticed = asyncio.Event()
    watching = asyncio.create_task(opened.watch(interval_s=0.05, on_change=lambda changes: noticed.set()))
    written(folder / "new.md", "# Zebras\n\nZebras are striped.\n")
    await asyncio.wait_for(noticed.wait(), 5)
    assert (await found(opened, "striped zebras"))[0] == "Zebras"
    watching.cancel()


async def test_watching_goes_on_when_the_folder_is_away_for_a_moment(opened, folder):
    noticed = asyncio.Event()
    watching = asyncio.create_task(opened.watch(interval_s=0.05, on_change=lambda changes: noticed.set()))
    folder.rename(folder.with_name("away"))
    await asyncio.sleep(0.2)
    assert await found(opened, "hotfix branch production")
    folder.with_name("away").rename(folder)
    written(folder / "new.md", "# Zebras\n\nZebras are striped.\n")
    await asyncio.wait_for(noticed.wait(), 5)
    watching.cancel()


async def test_a_file_that_is_not_utf8_is_named_skipped_and_counted(folder, tmp_path):
    (folder / "latin.md").write_bytes("# Größe".encode("latin-1"))
    codex = await Codex.open(folder, tmp_path / "index.db")
    [document] = [document for document in codex.documents(ROOM) if document.faults]
    assert (document.name, document.sections) == ("latin.md", 0)
    assert codex.faults == ("latin.md: it is not UTF-8 (byte 4) and was skipped; save it as UTF-8.",)
    await codex.close()


async def test_links_are_followed_inside_the_folder_only(folder, tmp_path):
    outside = tmp_path / "secret.md"
    outside.write_text("# Secret\n\nThe password is swordfish.\n")
    (folder / "leak.md").symlink_to(outside)
    (folder / "loop").symlink_to(folder)
    (folder / "again.md").symlink_to(folder / "reviews.md")
    (folder / "notes.txt").write_text("# Notes\n\nAbout walruses.\n")
    (folder / "notes.md").symlink_to(folder / "notes.txt")
    codex = await Codex.open(folder, tmp_path / "index.db")
    assert [document.name for document in codex.documents(ROOM)] == ["branches.md", "notes.md", "reviews.md"]
    assert await found(codex, "password swordfish") == []
    assert "leak.md: it is a link that leads out of the Codex folder" in codex.faults[0]
    await codex.close()


async def test_hidden_folders_and_other_files_are_left_out(folder, tmp_path):
    for name in (".git/x.md", "node_modules/p/README.md", "code.py", "image.png"):
        written(folder / name, "# Walrus\n\nwalrus\n")
    for name in ("deep/er/PAGE.MD", "a.mdx", "b.markdown"):
        written(folder / name, "# Walrus\n\nwalrus\n")
    codex = await Codex.open(folder, tmp_path / "index.db")
    names = [document.name for document in codex.documents(ROOM)]
    assert names == ["a.mdx", "b.markdown", "branches.md", "deep/er/PAGE.MD", "reviews.md"]
    await codex.close()


async def test_which_files_are_documents_can_be_set(folder, tmp_path):
    written(folder / "docs/in.txt", "# In\n\nwalrus\n")
    codex = await Codex.open(folder, tmp_path / "index.db", globs=("docs/**/*.txt",))
    assert [document.name for document in codex.documents(ROOM)] == ["docs/in.txt"]
    await codex.close()


async def test_a_missing_folder_says_what_to_do(tmp_path):
    with pytest.raises(CodexUnreadable, match=r"cannot be read .*DUET_CODEX"):
        await Codex.open(tmp_path / "nowhere", tmp_path / "index.db")


async def test_an_empty_folder_says_what_to_do(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(CodexUnreadable, match="holds no document"):
        await Codex.open(tmp_path / "empty", tmp_path / "index.db")


async def test_text_without_spaces_is_found_by_words_of_two_characters(folder, tmp_path):
    written(folder / "zh.md", "# 规范\n\n## 分支命名\n\n每个分支的名称由类型和工单号组成。\n\n## 评审\n\n两人批准。\n")
    written(folder / "ja.md", "# 規約\n\n## 当番の交代\n\n当番は毎週月曜日に交代する。\n")
    codex = await Codex.open(folder, tmp_path / "index.db")
    assert (await found(codex, "分支怎么命名？"))[0] == "分支命名"
    assert (await found(codex, "批准"))[0] == "评审"
    assert (await found(codex, "当番はいつ交代しますか"))[0] == "当番の交代"
    await codex.close()


async def test_owners_words_for_a_document_are_found(folder, tmp_path):
    written(folder / "leave.md", "---\naliases: [vacation, holidays]\n---\n# Leave\n\nThirty days a year.\n")
    codex = await Codex.open(folder, tmp_path / "index.db")
    assert (await found(codex, "How much vacation do I get?"))[0] == "Leave"
    await codex.close()


async def test_a_very_long_section_is_found_and_given_once(folder, tmp_path):
    filler = "\n\n".join(f"Paragraph {n} about nothing in particular, again and again." for n in range(2000))
    written(folder / "long.md", f"# Long\n\n## Everything\n\n{filler}\n\nThe walrus sleeps at noon.\n\n{filler}\n")
    codex = await Codex.open(folder, tmp_path / "index.db")
    hits = (await codex.search("when does the walrus sleep", (), room=ROOM, limit=5)).hits
    assert [hit.section.heading for hit in hits if hit.section.document == "long.md"] == ["Everything"]
    assert "walrus sleeps at noon" in hits[0].passage
    assert len(hits[0].passage.split()) < 400
    await codex.close()


async def test_a_heading_without_text_brings_the_section_below_it(folder, tmp_path):
    text = "# Strategies\n\n## Canary deployments\n\n### When\n\nTo try a change on few users.\n\n## Other\n\nNo.\n"
    (folder / "strategies.md").write_text(text)
    codex = await Codex.open(folder, tmp_path / "index.db")
    assert (await found(codex, "canary deployments"))[:2] == ["Canary deployments > When", "Canary deployments"]
    only = await codex.search("canary deployments", (), room=ROOM, limit=1)
    assert [hit.section.text for hit in only.hits] == ["To try a change on few users."]
    await codex.close()


async def test_a_table_of_contents_does_not_come_before_what_it_names(folder, tmp_path):
    contents = "# Names\n\n## Contents\n\n" + "- [Naming a walrus branch](#naming-a-walrus-branch)\n" * 3
    (folder / "names.md").write_text(f"{contents}\n## Naming a walrus branch\n\nWrite the walrus first.\n")
    codex = await Codex.open(folder, tmp_path / "index.db")
    assert (await found(codex, "how is a walrus branch named"))[0] == "Naming a walrus branch"
    await codex.close()


async def test_sections_are_given_in_order(opened):
    assert [s.heading for s in opened.sections(ROOM, "branches.md")] == ["Branch naming", "The convention", "Hotfixes"]
    assert opened.sections(ROOM, "nowhere.md") == ()
    assert opened.section(ROOM, "branches.md#hotfixes").text == "A hotfix branch starts from the production tag."


# Access


async def test_a_document_bound_to_a_channel_is_for_no_other(folder, tmp_path):
    written(folder / "secret.md", "---\nchannels: [C2, slack/T9/*]\n---\n# Salaries\n\nThe walrus earns most.\n")
    codex = await Codex.open(folder, tmp_path / "index.db")
    assert await found(codex, "how much does the walrus earn", room=ROOM) == []
    assert (await found(codex, "how much does the walrus earn", room=OTHER))[0] == "Salaries"
    assert (await found(codex, "walrus earns", room=RoomKey("slack", "T9", "C7")))[0] == "Salaries"
    assert codex.section(ROOM, "secret.md#salaries") is None
    assert codex.sections(ROOM, "secret.md") == ()
    assert "secret.md" not in [document.name for document in codex.documents(ROOM)]
    await codex.close()


async def test_whoever_names_a_room_like_a_bound_channel_does_not_get_in(folder, tmp_path):
    """Over HTTP the caller chooses the session's name, and a channel's id is no secret."""
    (folder / "secret.md").write_text("---\nchannels: [C1]\n---\n# Secret\n\nThe wombat is paid in gold.\n")
    (folder / "mobile").mkdir()
    (folder / "mobile" / "apps.md").write_text("# Apps\n\nThe numbat is released on Mondays.\n")
    codex = await Codex.open(folder, tmp_path / "index.db", rooms={"C2": "mobile", "web/*/team": "mobile"})
    slack, impostor = RoomKey("slack", "T1", "C1"), RoomKey("web", "3f2a", "C1")
    assert "Secret" in await found(codex, "wombat gold", room=slack)
    assert "Secret" not in await found(codex, "wombat gold", room=impostor)
    assert "secret.md" not in [document.name for document in codex.documents(impostor)]
    assert codex.section(impostor, "secret.md#secret") is None
    assert codex.sections(impostor, "secret.md") == ()
    assert "mobile/apps.md" not in [document.name for document in codex.documents(RoomKey("web", "3f2a", "C2"))]
    assert [document.name for document in codex.documents(RoomKey("web", "3f2a", "team"))] == ["mobile/apps.md"]
    await codex.close()


async def test_a_codex_that_does_not_exist_is_named_by_doctor(folder, tmp_path):
    codex = await Codex.open(folder, tmp_path / "index.db", rooms={"C2": "mobil"})
    assert [check.seen for check in codex.checks() if check.name == "codex rooms"] == [
        "no document lies in mobil/, so its rooms see none"
    ]
    await codex.close()


async def test_a_document_is_shut_from_the_moment_it_is_bound(opened, folder):
    assert await found(opened, "hotfix branch production tag")
    written(folder / "branches.md", "---\nchannels: [C2]\n---\n" + BRANCHES)
    await opened.refresh()
    findings = await opened.search("hotfix branch production tag", (), room=ROOM, limit=9)
    assert {hit.section.document for hit in findings.hits} <= {"reviews.md"}


async def test_shut_documents_do_not_crowd_out_open_ones(folder, tmp_path):
    for number in range(300):
        written(folder / f"s{number}.md", "---\nchannels: [C2]\n---\n# Walrus walrus\n\nwalrus walrus walrus\n")
    written(folder / "open.md", "# Animals\n\nA bear, a fox, an otter and one walrus live here, among many more.\n")
    codex = await Codex.open(folder, tmp_path / "index.db")
    assert (await found(codex, "walrus"))[0] == "Animals"
    await codex.close()


async def test_a_room_sees_its_own_codex_and_every_other_room_the_rest(folder, tmp_path):
    written(folder / "mobile/branches.md", "# Mobile branches\n\nMobile branches are named after birds.\n")
    codex = await Codex.open(folder, tmp_path / "index.db", rooms={"slack/T1/C2": "mobile"})
    assert [document.name for document in codex.documents(OTHER)] == ["mobile/branches.md"]
    assert [document.name for document in codex.documents(ROOM)] == ["branches.md", "reviews.md"]
    assert await found(codex, "How are branches named?", room=OTHER) == ["Mobile branches"]
    assert "Mobile branches" not in await found(codex, "How are branches named?", room=ROOM)
    await codex.close()


# Damage


async def test_a_damaged_index_is_made_anew(folder, tmp_path):
    index = tmp_path / "index.db"
    await (await Codex.open(folder, index)).close()
    for damage in (b"", b"not a database at all" * 100, index.read_bytes()[:9000]):
        index.write_bytes(damage)
        codex = await Codex.open(folder, index)
        assert (await found(codex, "hotfix branch production tag"))[0] == "Hotfixes"
        await codex.close()


async def test_text_that_was_changed_within_the_index_is_never_served(folder, tmp_path):
    index = tmp_path / "index.db"
    await (await Codex.open(folder, index)).close()
    with sqlite3.connect(index) as db:
        db.execute(
            "update section set text = 'A hotfix branch starts from anywhere.' where key = 'branches.md#hotfixes'"
        )
    db.close()
    codex = await Codex.open(folder, index)
    assert codex.section(ROOM, "branches.md#hotfixes").text == "A hotfix branch starts from the production tag."
    await codex.close()


async def test_damage_while_running_is_mended_within_the_same_search(opened, tmp_path):
    index = tmp_path / "index.db"
    with sqlite3.connect(index) as db:
        db.execute("drop table chunk")
    db.close()
    assert (await found(opened, "hotfix branch production tag"))[0] == "Hotfixes"


async def test_an_index_of_another_version_is_made_anew(folder, tmp_path):
    index = tmp_path / "index.db"
    with sqlite3.connect(index) as db:
        db.execute("create table document(x)")
        db.execute("pragma user_version = 1")
    db.close()
    codex = await Codex.open(folder, index)
    assert await found(codex, "hotfix branch")
    await codex.close()


async def test_several_processes_may_open_the_same_index_at_once(folder, tmp_path):
    codexes = await asyncio.gather(*(Codex.open(folder, tmp_path / "index.db") for _ in range(4)))
    for codex in codexes:
        assert (await found(codex, "hotfix branch production tag"))[0] == "Hotfixes"
        await codex.close()


# Thresholds


async def test_calibrated_thresholds_are_kept_beside_the_index(folder, tmp_path):
    codex = await Codex.open(folder, tmp_path / "index.db")
    path = await codex.calibrate(0.97, 0.99)
    await codex.close()
    assert path == tmp_path / "index.thresholds.json"
    again = await Codex.open(folder, tmp_path / "index.db")
    question = "Which hotfix branch starts from the moon?"
    assert (await again.search(question, (), room=ROOM, limit=1)).band is Band.LOW
    await again.close()


async def test_thresholds_that_cannot_be_read_are_left_out(folder, tmp_path, caplog):
    (tmp_path / "index.thresholds.json").write_text("{")
    codex = await Codex.open(folder, tmp_path / "index.db")
    assert (await codex.search("branch naming convention", (), room=ROOM, limit=1)).band is Band.HIGH
    assert "Left out the thresholds" in caplog.text
    await codex.close()
